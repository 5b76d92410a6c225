"""What the daemon says of memory units: nothing, and no more is imported, while no card is offered in units.

In front of `plugin.gpushare.keeper`. Used in the event loop's thread. The size of a unit of each GPU is remembered over
restarts in `memory-units.json` of the state folder: the kubelet knows units by number alone, and where another size is
declared while containers have some, the numbers would mean another amount of memory; what is declared waits then
(`plugin.kubelet.hold_back`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from plugin.base.documents import members, read_object, whole
from plugin.base.errors import os_reason
from plugin.system.durable import read_bounded, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.gpushare.keeper import UnitKeeper
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment

_SIZES = "memory-units.json"
_MAX_BYTES = 64 * 1024


class MemoryUnits:
    """`annotate` puts annotations on the Node."""

    def __init__(self, annotate: Callable[[Mapping[str, str | None]], None]) -> None:
        self._annotate = annotate
        self._keeper: UnitKeeper | None = None
        self._last: tuple[tuple[DeviceAssignment, ...], float] | None = None  # what the kubelet listed, and when

    def offered(self, resource: str, unit_bytes: int, cards: tuple[tuple[str, int, int, bool], ...]) -> None:
        """Take what is offered in units: UUID, index, number of units and whether it is healthy, of each card."""
        if self._keeper is None:
            if not cards:
                return
            self._keeper = self._make()
        from plugin.gpushare.books.model import Card

        self._keeper.offered(resource, unit_bytes, tuple(Card(*card) for card in cards))

    def allocated(self, resource: str, at: float) -> None:
        """Hear that a container was given devices."""
        if self._keeper is not None:
            self._keeper.allocated(resource, at)

    def listed(self, assignments: tuple[DeviceAssignment, ...], asked_at: float) -> None:
        """Take what the kubelet lists; `asked_at` is when it was asked, in seconds since the epoch."""
        self._last = assignments, asked_at
        if self._keeper is not None:
            self._keeper.listed(assignments, asked_at)

    def _make(self) -> UnitKeeper:
        from plugin.gpushare.keeper import UnitKeeper

        keeper = UnitKeeper(self._annotate)
        if self._last is not None:
            keeper.listed(*self._last)
        return keeper


def read_unit_sizes(folder: Path) -> dict[str, int]:
    """Return the bytes of a unit by GPU; what cannot be read is forgotten."""
    try:
        found = members(read_object(read_bounded(folder / _SIZES, _MAX_BYTES + 1), _MAX_BYTES).get("unitBytes"))
        return {uuid: whole(1)(size) for uuid, size in found.items()}
    except (OSError, ValueError):
        return {}


def write_unit_sizes(folder: Path, sizes: Mapping[str, int], logger: Logger) -> None:
    """Replace the file; one that cannot be written is told of."""
    problem = ""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(folder / _SIZES, json.dumps({"unitBytes": dict(sizes)}) + "\n")
    except OSError as error:
        problem = f"{folder / _SIZES} cannot be written: {os_reason(error)}"
    hint = {"hint": "do not change unitMiB and restart the daemon while containers have units"} if problem else {}
    logger.standing("memory units", problem, **hint)
