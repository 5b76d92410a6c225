"""What kubelets see of an inventory: its resources, each registered from its first device on.

Not here: where an inventory comes from, which resource a device belongs to, and how a registration is kept.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.allocation.table import EMPTY_TABLE, prepare_table, tables_by_resource
from plugin.devices.resources import plan_offers
from plugin.errors import KubeletError, KubeletSilent
from plugin.kubelet.pod_resources.allocatable import list_allocatable
from plugin.kubelet.registration.link import Link, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.devices.inventory import Inventory
    from plugin.kubelet.device_plugin.allocation_observer import AllocationObserver
    from plugin.kubelet.device_plugin.call_counter import CallCounter
    from plugin.log import Logger
    from plugin.settings.node_config import NodeConfig

_ASK_AGAIN_S = 0.05  # the kubelet answers 100 times a second
_ALLOCATABLE_S = 1.0


def _names_of_offers(config: NodeConfig) -> tuple[object, ...]:
    """Return what a kubelet knows resources by."""
    return config.resource, config.settings.patterns, config.kubelet_root, config.registration


class Offering:
    """Shows the current inventory.

    `on_state` hears what the links wait for, "" once all have registered; `crashed` of a bug, `counter` of calls,
    `observer` of what they ask for.
    """

    def __init__(  # noqa: PLR0913 - keyword-only: who hears of what
        self,
        logger: Logger,
        timing: Timing,
        *,
        on_state: Callable[[str], None],
        crashed: Callable[[BaseException], None],
        counter: CallCounter,
        observer: AllocationObserver,
    ) -> None:
        self._log = logger
        self._timing = timing
        self._on_state = on_state
        self._crashed = crashed
        self._counter = counter
        self._observer = observer
        self._kubelet_root = Path()
        self._links: dict[str, Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[str, str] = {}  # resource → what its link waits for
        self._findings: dict[str, str] = {}

    @property
    def resources(self) -> tuple[str, ...]:
        """The names under which anything is offered, healthy or not."""
        return tuple(name for name, link in self._links.items() if link.publisher.current.offers)

    @property
    def offered(self) -> int:
        """How many devices a pod could be given."""
        return sum(offer.is_healthy for link in self._links.values() for offer in link.publisher.current.offers)

    @property
    def lacks_kubelet(self) -> bool:
        """Whether there is something to show and no kubelet to show it to."""
        return bool(self._links) and all(link.lacks_kubelet for link in self._links.values())

    def show(self, config: NodeConfig, inventory: Inventory) -> None:
        """Offer this inventory from now on; nothing is registered before there is a device.

        The table of the whole node is prepared once. A resource that has lost its last device stays, empty.
        """
        self._kubelet_root = config.kubelet_root
        plan = plan_offers(inventory, config.patterns, holds_back_mig=config.settings.holds_back_mig)
        whole = prepare_table(inventory, config.settings.answers)
        ids = {resource: [offer.device_id for offer in offers] for resource, offers in plan.resources.items()}
        tables = tables_by_resource(whole, ids)
        new = [resource for resource in plan.resources if resource not in self._links]
        for resource in new:
            self._links[resource] = self._new_link(resource, config)
        for resource, link in self._links.items():
            link.publish(plan.resources.get(resource, ()), tables.get(resource, EMPTY_TABLE))
        self._report(dict(plan.findings))
        for resource in new:
            task = asyncio.ensure_future(self._links[resource].run())
            self._tasks.add(task)
            task.add_done_callback(self._on_end)

    async def shown(self, *, to_at_least: int) -> None:
        """Wait until every kubelet that watches has the current lists; forever, if need be."""
        for link in tuple(self._links.values()):
            await link.publisher.shown(to_at_least=to_at_least)

    async def taken(self, *, to_at_least: int) -> None:
        """Wait as `shown` does, then until the kubelet would give away just what is healthy; forever, if need be.

        A list that was sent need not have been read. A kubelet that does not say what it would give away is trusted.
        """
        await self.shown(to_at_least=to_at_least)
        while await self._is_behind():  # noqa: ASYNC110 - the kubelet tells nobody by itself
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _is_behind(self) -> bool:
        if not any(link.publisher.open_streams for link in self._links.values()):
            return False
        try:
            allocatable = await list_allocatable(self._kubelet_root, _ALLOCATABLE_S)
        except KubeletSilent:
            return True
        except KubeletError:
            return False
        offers = [offer for link in self._links.values() for offer in link.publisher.current.offers]
        return any(offer.is_healthy is not (offer.device_id in allocatable) for offer in offers)

    async def stop(self) -> None:
        """Withdraw everything and stop serving; what is shown meanwhile is a new offer."""
        links, tasks = tuple(self._links.values()), tuple(self._tasks)
        self._links.clear()
        self._waiting.clear()
        for link in links:
            link.stop()
        if tasks:
            await asyncio.wait(tasks)

    async def stop_if_renamed(self, before: NodeConfig, config: NodeConfig) -> bool:
        """Withdraw everything where kubelets would know it by other names; returns whether it was so."""
        is_renamed = _names_of_offers(before) != _names_of_offers(config)
        if is_renamed:
            await self.stop()
        return is_renamed

    def _new_link(self, resource: str, config: NodeConfig) -> Link:
        self._waiting[resource] = "registering with the kubelet"
        return Link(
            resource=resource,
            kubelet_root=config.kubelet_root,
            registration=config.registration,
            logger=self._log,
            on_state=lambda waiting_for: self._on_link_state(resource, waiting_for),
            timing=self._timing,
            counter=self._counter,
            observer=self._observer,
        )

    def _on_link_state(self, resource: str, waiting_for: str) -> None:
        self._waiting[resource] = waiting_for
        self._on_state(next((words for words in self._waiting.values() if words), ""))

    def _report(self, findings: Mapping[str, str]) -> None:
        for device_id in {**self._findings, **findings}:
            self._log.standing(device_id, findings.get(device_id, ""))
        self._findings = dict(findings)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._crashed(error)
