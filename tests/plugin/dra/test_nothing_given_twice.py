"""Whatever happens in whatever order, no GPU is given twice: pods by the device plugin, claims, and changes between."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from plugin.base.errors import RequestError
from plugin.base.log import Logger
from plugin.daemon.optional.claims import mark_held
from plugin.daemon.optional.division import Division
from plugin.devices.allocation.table import allocate
from plugin.devices.inventory import Inventory, next_inventory
from plugin.dra import messages as api
from plugin.dra.devices import DRIVER, find_devices, name_of
from plugin.dra.service import ClaimService, Health
from plugin.dra.store import ClaimStore, Record
from plugin.driver.snapshot import Snapshot
from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
from plugin.kubelet.pod_resources.holdings import HoldingsView, Pace
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus, whole_table

if TYPE_CHECKING:
    from plugin.dra.claims import ClaimName
    from plugin.dra.devices import DraDevice

GPUS = 3
NUMBERS = st.integers(0, GPUS - 1)
CLAIMS = st.integers(0, 4)
RESOURCE = "nvidia.com/gpu"
ALL = [each.uuid for each in gpus(GPUS)]
UUIDS = {name_of(each.uuid): each.uuid for each in gpus(GPUS)}


class Node(RuleBasedStateMachine):
    """One node: what its daemon decides with, a kubelet that lists pods late, and a scheduler that sees old slices."""

    @initialize()
    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp())
        self.there = set(range(GPUS))  # the GPUs that the driver lists
        self.declared: list[str] = []  # those that claims are to be given
        self.pods: dict[int, str] = {}  # by the device plugin: number → UUID
        self.listed: dict[int, str] = {}
        self.allocated: dict[int, str] = {}  # claim → name of its device, as the API has it
        self.with_claims: dict[int, str] = {}  # claim → UUID
        self.slices: set[str] = set()  # devices that were ever published
        self.begin()

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.view.stop()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()

    def begin(self) -> None:
        """Start a daemon: it knows what is on the disk, and what the kubelet says."""
        self.inventory = Inventory()  # a GPU that is lost over a restart is none that is known
        self.division = Division(self.folder, self.declared, Logger(), self.folder)
        self.view = HoldingsView(self._list, lambda *_: None, lambda: False, Logger(), Pace(starts_s=0.0))
        self.store = ClaimStore(self.folder, Logger())
        self.store.load()
        self.service = ClaimService(self, self.store, Health(), self._read, Logger(), patience_s=0.0)
        self.show()

    async def _list(self, _deadline_s: float) -> tuple[DeviceAssignment, ...]:
        return tuple(
            DeviceAssignment(PodContainer("ml", f"pod-{number}", "c"), RESOURCE, (uuid,))
            for number, uuid in self.listed.items()
        )

    def _read(self, claim: ClaimName) -> dict[str, Any]:
        device = self.allocated[int(claim.name)]
        result = {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": device}
        allocation = {"devices": {"results": [result]}}
        return {"metadata": {"uid": f"uid-{claim.name}"}, "status": {"allocation": allocation}}

    # What the service asks of the node

    @property
    def devices(self) -> dict[str, DraDevice]:
        return {each.name: each for each in find_devices(self.inventory)}

    async def look_again(self) -> None:
        await self.view.look_again()

    def holder(self, device: DraDevice) -> str:
        return self.view.holder_of(device.parts) or ""

    def prepare(self) -> None:
        """Nothing is written."""

    async def ready(self, record: Record) -> Record:
        """Return it: whole GPUs are there."""
        return record

    async def shared(self, record: Record) -> None:
        """No claim asks for it."""

    def prepared(self, record: Record) -> None:
        """Nobody keeps a history."""

    def changed(self) -> None:
        self.show()

    def show(self) -> None:
        """Publish, or offer to the kubelet, as the daemon does after each change."""
        found = Snapshot(VERSION, tuple(gpu(number) for number in sorted(self.there)))
        self.inventory = next_inventory(self.inventory, found, DictTree(set()))
        by_claims = self.division.find(self.inventory)
        own = {name: each for name, each in self.devices.items() if each.uuid in by_claims}
        holders = {name: self.view.holder_of(each.parts) for name, each in own.items()}
        if None not in holders.values():
            self.slices |= {name for name, who in holders.items() if not who}
        held = {each.uuid: claim for claim, each in self.store.held()}
        others = tuple(each for each in self.inventory.devices if each.gpu.uuid not in by_claims)
        self.table = whole_table(mark_held(replace(self.inventory, devices=others), held))

    # What happens

    @rule()
    def change_over(self) -> None:
        """To none for claims, which is the device plugin alone, or to all, which is claims alone."""
        self._divide(set() if self.declared else set(map(str, range(GPUS))))

    @rule(number=NUMBERS)
    def a_gpu_changes_sides_and_is_wanted_there(self, number: int) -> None:
        """One that somebody has, where anybody has one."""
        had = sorted({*self.pods.values(), *self.with_claims.values()})
        number = ALL.index(had[number % len(had)]) if had else number
        self._divide({str(number)}.symmetric_difference(self.declared))
        self.a_pod_asks_the_device_plugin(number)

    def _divide(self, claims: set[str]) -> None:
        self.declared = sorted(claims)
        self.division = Division(self.folder, self.declared, Logger(), self.folder)
        self.show()

    @rule(number=NUMBERS)
    def a_gpu_is_lost_or_the_one_that_was_comes_back(self, number: int) -> None:
        every = set(range(GPUS))
        self.there = every - {number} if self.there == every else every
        self.show()

    @rule(number=NUMBERS)
    def a_pod_asks_the_device_plugin(self, number: int) -> None:
        """The kubelet may still have an old list: what it asks for was offered at some time, and it has given none."""
        uuid = gpu(number).uuid
        if uuid in self.pods.values():
            return
        try:
            allocate(self.table, [uuid])
        except RequestError:
            return
        self.pods[max(self.pods, default=0) + 1] = uuid
        self.loop.run_until_complete(self._given(uuid))

    async def _given(self, uuid: str) -> None:
        self.view.changed([uuid])

    @rule()
    def the_kubelet_lists_its_pods(self) -> None:
        self.listed = dict(self.pods)
        self.loop.run_until_complete(self.view.ask_now(1.0))
        self.show()

    @precondition(lambda self: self.pods)
    @rule(number=NUMBERS)
    def a_pod_ends(self, number: int) -> None:
        key = sorted(self.pods)[number % len(self.pods)]
        self.pods.pop(key)
        self.listed.pop(key, None)

    @precondition(lambda self: self.slices)
    @rule(claim=CLAIMS, number=NUMBERS)
    def the_scheduler_allocates(self, claim: int, number: int) -> None:
        names = sorted(self.slices)
        name = names[number % len(names)]
        if claim not in self.allocated and name not in self.allocated.values():
            self.allocated[claim] = name

    @precondition(lambda self: self.allocated)
    @rule(number=CLAIMS)
    def the_kubelet_has_a_claim_prepared(self, number: int) -> None:
        claim = sorted(self.allocated)[number % len(self.allocated)]
        asked = api.Claim(namespace="ml", name=str(claim), uid=f"uid-{claim}")
        request = api.NodePrepareResourcesRequest(claims=(asked,))
        (answer,) = self.loop.run_until_complete(self.service.prepare(request)).claims
        if answer.value is not None and not answer.value.error:
            self.with_claims[claim] = UUIDS[answer.value.devices[0].device_name]

    @precondition(lambda self: self.allocated)
    @rule(number=CLAIMS)
    def a_claim_goes(self, number: int) -> None:
        claim = sorted(self.allocated)[number % len(self.allocated)]
        asked = api.Claim(namespace="ml", name=str(claim), uid=f"uid-{claim}")
        request = api.NodeUnprepareResourcesRequest(claims=(asked,))
        self.with_claims.pop(claim, None)
        self.loop.run_until_complete(self.service.unprepare(request))
        del self.allocated[claim]

    @rule()
    def the_daemon_is_killed(self) -> None:
        """By the time that another one asks, the kubelet has listed what was given before."""
        self.listed = dict(self.pods)
        self.view.stop()
        self.begin()

    @invariant()
    def nobody_shares_a_gpu(self) -> None:
        if not hasattr(self, "pods"):
            return
        given = [*self.pods.values(), *self.with_claims.values()]
        assert len(given) == len(set(given)), f"pods {self.pods}, claims {self.with_claims}"


class LongNode(Node):
    """The same, through 50 times as many changes between the interfaces."""


# Long ways: only they come to changes under pods and claims at the same time. Some 1,400 changes, and 70,000.
TestNode = Node.TestCase
TestNode.settings = settings(max_examples=30, stateful_step_count=200, deadline=None)
TestLongNode = pytest.mark.long(pytest.mark.timeout(1800)(LongNode.TestCase))
TestLongNode.settings = settings(max_examples=1500, stateful_step_count=200, deadline=None)
