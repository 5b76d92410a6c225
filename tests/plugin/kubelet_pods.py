"""A kubelet's device manager in front of the daemon's own answers, without a socket: admissions as plain calls."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from lab.kubelet import AllocationRefused, Container, DeviceManager, Pod
from lab.kubelet.device_manager import Plugin
from plugin.base.errors import KubeletError, RequestError
from plugin.base.log import Logger
from plugin.devices.allocation.preference.choice import prefer
from plugin.devices.allocation.table import allocate
from plugin.devices.inventory import Inventory, next_inventory
from plugin.driver.snapshot import Snapshot
from plugin.kubelet.pod_resources.api import ListPodResourcesResponse
from plugin.kubelet.pod_resources.client import assignments_of
from plugin.kubelet.pod_resources.holdings import HoldingsView
from plugin.kubelet.rpc.codec import decode
from tests.plugin.fakes import VERSION, DictTree, gpus, whole_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from plugin.kubelet.pod_resources.attribution import DeviceAssignment

RESOURCE = "nvidia.com/gpu"


def pod(name: str, *containers: Container, uid: str = "", resource: str = RESOURCE) -> Pod:
    """Return a pod; without containers one that asks for one device."""
    return Pod(name, containers or (Container("main", 1),), resource, uid=uid)


class NodeOfPods:
    """So many GPUs, a kubelet's device manager, and what the daemon makes of the two. A context manager."""

    def __init__(self, count: int, *, lists_ended_pods: bool = False) -> None:
        self.device_manager = DeviceManager(lists_ended_pods=lists_ended_pods)
        self.table = whole_table(next_inventory(Inventory(), Snapshot(VERSION, gpus(count)), DictTree()))
        self.listings: list[tuple[DeviceAssignment, ...]] = []
        self.asked: list[float] = []
        self.answer: Callable[[], bytes] = self.device_manager.list_response
        self.meanwhile: Callable[[], None] = lambda: None  # between the kubelet's decision and the plugin's answer
        self._loop = asyncio.new_event_loop()
        self.view = HoldingsView(
            self._ask, lambda given, _at: self.listings.append(given), is_waiting=lambda: False, logger=Logger()
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.view.stop()
        self._loop.close()

    async def _ask(self, deadline_s: float) -> tuple[DeviceAssignment, ...]:
        self.asked.append(deadline_s)
        return assignments_of(decode(ListPodResourcesResponse, self.answer()))

    def refresh(self) -> None:
        """Have the daemon look at who has what, as it does after allocations."""
        self._loop.run_until_complete(self.view.ask_now(5.0))

    def admit(self, one: Pod) -> tuple[str, ...]:
        """Return the devices that a pod was given, or raise AllocationRefused."""
        given: list[str] = []

        def answer(device_ids: Sequence[str]) -> None:
            self.meanwhile()
            try:
                given.extend(self._loop.run_until_complete(self._allocate(device_ids)))
            except RequestError as error:
                raise AllocationRefused(error.message) from error

        def preferred(available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
            return prefer(self.table, self.view.reliable(available, required, size), required, size).chosen

        self.device_manager.admit(one, Plugin(lambda: tuple(self.table.entries), preferred, answer))
        return tuple(given)

    async def _allocate(self, device_ids: Sequence[str]) -> tuple[str, ...]:
        given = allocate(self.table, device_ids, await self.view.holdings(device_ids)).device_ids
        self.view.changed(given)
        return given


def unreachable() -> bytes:
    """Be a kubelet that does not answer."""
    raise KubeletError("kubelet.sock does not say who has which device", f"at {time.monotonic()}")
