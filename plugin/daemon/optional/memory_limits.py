"""Limits of containers' memory, wired into the daemon. Loaded where GPUs are offered in units: most nodes have none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plugin.sharing.memory_limits.ledger import MemoryLedger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.driver.telemetry import GroupMemory
    from plugin.kubelet.cdi_names import MemoryPart
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment
    from plugin.sharing.memory_limits.keeper import LimitedGroup, LimitKeeper
    from plugin.sharing.memory_limits.units import UnitBytes

    Ask = Callable[[Callable[[], None]], None]


class MemoryLimits:
    """Hears of allocations, answers the hook, and knows what is limited.

    `ask` has a function called in the driver's thread, `policy` is the node's `memoryLimits`, and `unit_bytes` the size
    of a device's units of memory (None: it is not offered in such), and `claimed` what claims have.
    """

    def __init__(
        self,
        *,
        ask: Ask,
        list_assignments: Callable[[float], Awaitable[tuple[DeviceAssignment, ...]]],
        unit_bytes: UnitBytes,
        claimed: Callable[[], Iterable[MemoryPart]],
        policy: Callable[[], str],
        cgroup_root: Path,
        logger: Logger,
    ) -> None:
        self.ledger = MemoryLedger(list_assignments, unit_bytes, claimed)
        self._ask = ask
        self._policy = policy
        self._root = cgroup_root
        self._log = logger
        self._keeper: LimitKeeper | None = None

    def prepare(self) -> LimitKeeper:
        """Load what it takes before another version takes the place of the files: call it where units are offered."""
        if self._keeper is None:
            self._keeper = self._make_keeper()
        return self._keeper

    @property
    def containers(self) -> frozenset[str]:
        """The ids of the containers that the driver keeps to a limit."""
        return frozenset() if self._keeper is None else self._keeper.containers

    async def answer(self, content: dict[str, Any]) -> dict[str, Any]:
        """Answer the request `limit`."""
        return await self.prepare().answer(content)

    async def read(self) -> tuple[tuple[LimitedGroup, Mapping[str, GroupMemory]], ...]:
        """Return what the driver says of the containers with limits, by the UUIDs of their GPUs."""
        return () if self._keeper is None else await self._keeper.read()

    def _make_keeper(self) -> LimitKeeper:
        from plugin.sharing.memory_limits.keeper import LimitKeeper
        from plugin.system.thread_calls import ThreadCalls

        return LimitKeeper(
            allocations=self.ledger,
            calls=ThreadCalls(self._ask),
            policy=self._policy,
            logger=self._log,
            root=self._root,
        )
