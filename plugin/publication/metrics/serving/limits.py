"""Limits in the driver, by container: the driver is asked for them, and the kubelet's folders for the names.

Not here: what becomes of it on a page (`memory`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from plugin.holdings.holders.cgroup import parse_cgroup
from plugin.publication.metrics.serving.owners import TIMEOUT_S, in_a_thread
from plugin.publication.metrics.serving.scrape import DriverQuestion

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from plugin.driver.memory_limit import GroupMemory
    from plugin.holdings.holders.cgroup import Place
    from plugin.holdings.holders.pod_names import PodNames
    from plugin.kubelet.pod_resources.attribution import PodContainer
    from plugin.publication.metrics.memory import Limited
    from plugin.sharing.memory_limits.keeper import LimitedGroup


class LimitSource(Protocol):
    """Who knows the groups with limits."""

    async def read(self) -> tuple[tuple[LimitedGroup, Mapping[str, GroupMemory]], ...]:
        """Return what the driver says of each."""


class LimitQuestion:
    """Asks when somebody looks. Names are read in a thread, which may hang on a broken disk."""

    def __init__(self, source: LimitSource, log_root: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._source = source
        self._log_root = log_root
        self._places: frozenset[Place] = frozenset()
        self._names: PodNames | None = None
        self._ask_names: DriverQuestion[Mapping[Place, PodContainer]] = DriverQuestion(
            in_a_thread, self._look_up, timeout_s
        )

    async def __call__(self) -> Limited:
        """Return limit and use of every container with a limit, by container and GPU; without a name it is left out."""
        groups = [(parse_cgroup(f"0::{group.path}"), memory) for group, memory in await self._source.read()]
        if not groups:
            return {}
        self._places = frozenset(place for place, _ in groups)
        names = await self._ask_names() or {}
        return {
            (names[place], uuid): of_gpu
            for place, memory in groups
            for uuid, of_gpu in memory.items()
            if place in names
        }

    def _look_up(self) -> Mapping[Place, PodContainer]:
        if self._names is None:
            from plugin.holdings.holders.pod_names import PodNames  # noqa: PLC0415 - not before there is a limit

            self._names = PodNames(self._log_root)
        return self._names.look_up(self._places)
