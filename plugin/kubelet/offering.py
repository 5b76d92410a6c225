"""What kubelets see of GPUs and other devices: their resources, each registered from its first device on.

The two come from different sources at different times, and what one of them brings leaves the other one's alone.
Not here: where they come from, which resource a device belongs to, and how a registration is kept.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.errors import KubeletError, KubeletSilent
from plugin.devices.allocation.table import EMPTY_TABLE, NoSharing, find_missing_channels, prepare_tables
from plugin.devices.other.offered import OtherPlan
from plugin.devices.resources import NO_CARDS, MemoryCards, find_memory_cards, without_all, without_sharing
from plugin.devices.sharing import SHARE, device_of, kind_of
from plugin.kubelet.device_plugin.nearby import Nearby
from plugin.kubelet.hold_back import hold_back
from plugin.kubelet.list_size import plan_that_fits
from plugin.kubelet.pod_resources.allocatable import list_allocatable
from plugin.kubelet.registration.link import Link, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.base.log import Logger
    from plugin.devices.allocation.table import AllocationTable, Sharing
    from plugin.devices.inventory import Inventory
    from plugin.devices.other.offered import OtherResource
    from plugin.devices.resources import Offer, OfferPlan
    from plugin.kubelet.device_plugin.observers import AllocationObserver, CallCounter
    from plugin.kubelet.pod_resources.holdings import Held
    from plugin.settings.node_config import NodeConfig

    _Shown = tuple[tuple[Offer, ...], AllocationTable]

_ASK_AGAIN_S = 0.05  # the kubelet answers 100 times a second
_ALLOCATABLE_S = 1.0


class Offering:
    """Shows the current inventory.

    `on_state` hears what the links wait for, "" once all have registered; `crashed` of a bug, `counter` of calls,
    `observer` of what they ask for. `sharing` says which GPUs can be shared through MPS.
    """

    def __init__(
        self,
        logger: Logger,
        timing: Timing,
        *,
        on_state: Callable[[str], None],
        crashed: Callable[[BaseException], None],
        counter: CallCounter,
        observer: AllocationObserver,
        sharing: Sharing | None = None,
    ) -> None:
        self._log = logger
        self._timing = timing
        self._on_state = on_state
        self._crashed = crashed
        self._counter = counter
        self._observer = observer
        self._sharing = sharing or NoSharing()
        self._kubelet_root = Path()
        self._links: dict[str, Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[str, str] = {}  # resource → what its link waits for
        self._findings: dict[str, Mapping[str, str]] = {}  # of each source
        self._gpus: Mapping[str, _Shown] = {}
        self._others = OtherPlan()
        self._has_others = True
        self._nearby = Nearby()
        self._is_reconfigured = False
        self.unit_bytes: dict[str, int] = {}  # of the memory units that were offered of a GPU
        self.waits: tuple[tuple[str, str], ...] = ()  # devices that are held back, and for whom
        self.memory_cards: MemoryCards = NO_CARDS

    @property
    def resources(self) -> tuple[str, ...]:
        """The names under which any GPU is offered, healthy or not."""
        return tuple(self._gpus)

    @property
    def offered(self) -> int:
        """How many GPUs, or units of them, a pod could be given."""
        return sum(offer.is_healthy for offers, _ in self._gpus.values() for offer in offers)

    @property
    def shares_of(self) -> Mapping[str, int]:
        """Into how many shares each device is divided that is shared."""
        offered = (offer.device_id for offers, _ in self._gpus.values() for offer in offers)
        return Counter(device_of(device_id) for device_id in offered if kind_of(device_id) == SHARE)

    @property
    def others(self) -> Mapping[str, OtherResource]:
        """What there is of other devices, by the name of the resource."""
        return {name: each for name, each in self._others.resources.items() if name not in self._gpus}

    @property
    def lacks_kubelet(self) -> bool:
        """Whether there is something to show and no kubelet to show it to."""
        return bool(self._links) and all(link.lacks_kubelet for link in self._links.values())

    def plan(self, config: NodeConfig, inventory: Inventory) -> OfferPlan:
        """Return what is to be offered of an inventory, whatever has to wait."""
        return plan_that_fits(inventory, config.offer_rules)

    def show(self, config: NodeConfig, inventory: Inventory, held: Held | None = None) -> None:
        """Offer this inventory from now on; nothing is registered before there is a device.

        A resource that has lost its last device stays, empty. What a pod has in another way is held back (`waits`).
        """
        answers = config.settings.answers
        planned = without_sharing(plan_that_fits(inventory, config.offer_rules), self._sharing.problem)
        missing = find_missing_channels(answers, inventory) if inventory.devices else ""
        if missing and answers.imex.is_required:
            planned = without_all(planned, f"{missing}, and imex.required is set")
        found = hold_back(planned, held, self.unit_bytes)
        plan, self.waits = found.plan, found.waits
        self.memory_cards = find_memory_cards(plan)
        self._remember_sizes(plan)
        tables = prepare_tables(plan, inventory, answers, self._sharing)
        self._gpus = {name: (resource.offers, tables[name]) for name, resource in plan.resources.items()}
        if self._is_reconfigured and inventory.devices:
            self._withdraw_undeclared()
        waiting = {device_id: f"{device_id} waits: {who}" for device_id, who in self.waits}
        channels = {"imex": _say_missing(missing, is_required=answers.imex.is_required)} if missing else {}
        self._report("gpus", {**waiting, **channels, **dict(plan.findings)})
        self._show_all(config)

    def show_others(self, config: NodeConfig, plan: OtherPlan, *, is_offered: bool = True) -> None:
        """Offer these devices from now on beside the GPUs, or just know of them. A name that GPUs have is theirs."""
        self._others, self._has_others = plan, is_offered
        self._show_all(config)

    def _show_all(self, config: NodeConfig) -> None:
        """Publish every list, also where nothing is left; one that is as it was wakes no stream."""
        self._kubelet_root = config.kubelet_root
        shown = dict(self._gpus)
        findings = dict(self._others.findings)
        for name, resource in self._others.resources.items() if self._has_others else ():
            if name in shown:
                findings[name] = f"{resource.class_name}: nothing is offered as {name}: GPUs have that name"
            shown.setdefault(name, (resource.offers, resource.table))
        self._report("others", findings)
        new = [name for name in shown if name not in self._links]
        for name in new:
            self._links[name] = self._new_link(name, config)
        for name, link in self._links.items():
            link.publish(*shown.get(name, ((), EMPTY_TABLE)))
        for name in new:
            task = asyncio.ensure_future(self._links[name].run())
            self._tasks.add(task)
            task.add_done_callback(self._on_end)

    def _remember_sizes(self, plan: OfferPlan) -> None:
        """Note of what size memory units are, but of GPUs that wait: pods have units of the size before."""
        waiting = {device_id for device_id, _ in self.waits}
        for resource in plan.resources.values():
            for unit in resource.units:
                if unit.memory_bytes and unit.source_id not in waiting:
                    self.unit_bytes[unit.source_id] = unit.memory_bytes

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
        self._gpus = {}
        links, tasks = tuple(self._links.values()), tuple(self._tasks)
        self._links.clear()
        self._waiting.clear()
        for link in links:
            link.stop()
        if tasks:
            await asyncio.wait(tasks)

    async def configured(self, before: NodeConfig, config: NodeConfig) -> bool:
        """Have the next inventory withdraw what is not declared any more; what goes on being offered hears nothing.

        Where the kubelet is another one, everything is withdrawn now; returns whether it was so.
        """
        self._is_reconfigured = True
        is_moved = (before.kubelet_root, before.registration) != (config.kubelet_root, config.registration)
        if is_moved:
            await self.stop()
        return is_moved

    def _withdraw_undeclared(self) -> None:
        self._is_reconfigured = False
        for resource in set(self._links).difference(self._gpus, self._others.resources):
            self._links.pop(resource).stop()
            self._waiting.pop(resource, None)

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
            nearby=self._nearby,
        )

    def _on_link_state(self, resource: str, waiting_for: str) -> None:
        if resource not in self._links:
            return  # it is being withdrawn
        self._waiting[resource] = waiting_for
        self._on_state(next((words for words in self._waiting.values() if words), ""))

    def _report(self, source: str, findings: Mapping[str, str]) -> None:
        """Say what is new, or over, of what a source could not offer."""
        for topic in {**self._findings.get(source, {}), **findings}:
            self._log.standing(topic, findings.get(topic, ""))
        self._findings[source] = findings

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._crashed(error)


def _say_missing(missing: str, *, is_required: bool) -> str:
    effect = "no gpu is given away, as imex.required is set" if is_required else "containers start without it"
    return f"{missing}: {effect}"
