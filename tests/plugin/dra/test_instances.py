"""A MIG device is made for one claim, and gone after it; the machine below ends the daemon at any of its calls."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from plugin.base.errors import MigError
from plugin.changes.mig_layout.holders import with_users
from plugin.changes.mig_layout.model import Entry, Layout
from plugin.changes.mig_layout.plan import plan_layout
from plugin.dra import messages as api
from plugin.dra.devices import DRIVER, DraDevice
from plugin.dra.gpus.instances import Partitioner
from plugin.dra.partitions import set_apart
from plugin.dra.store import PARTITIONS, read_partitions
from plugin.driver.mig_instances import CuttableGpu
from tests.plugin.dra.cut_node import GPUS, PROFILES, Cut, Daemon, fits, make, make_tree
from tests.plugin.fakes import gpu
from tests.plugin.mig_layout.driver import Killed

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from plugin.dra.claims import ClaimName

CLAIMS = st.integers(0, 5)
NUMBERS = st.integers(0, 200)


class Node(RuleBasedStateMachine):
    """One node under claims, people who cut GPUs by hand, a driver that goes and comes, and kills at any call."""

    @initialize()
    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp())
        make_tree(self.folder)
        self.driver = Cut()
        self.allocated: dict[int, DraDevice] = {}
        self.given: dict[int, str] = {}  # claim → UUID of its MIG device
        self.by_hand: set[tuple[str, int]] = set()
        self.begin()

    def begin(self) -> None:
        self.daemon = Daemon(self.folder, self.driver, self._read)
        self._settle()

    def _settle(self) -> None:
        with suppress(Killed):
            self.loop.run_until_complete(self.daemon.settle())

    def _read(self, claim: ClaimName) -> dict[str, Any]:
        device = self.allocated[int(claim.name)].name
        result = {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": device}
        allocation = {"devices": {"results": [result]}}
        return {"metadata": {"uid": f"uid-{claim.name}"}, "status": {"allocation": allocation}}

    @rule(claim=CLAIMS, number=NUMBERS, kill_at=st.none() | st.integers(0, 2))
    def a_pod_comes(self, claim: int, number: int, kill_at: int | None) -> None:
        """The scheduler takes what its sums allow, also where somebody has made an instance there since."""
        partitions = [each for each in self.daemon.devices.values() if each.draw is not None]
        if claim in self.allocated or not partitions:
            return
        wanted = partitions[number % len(partitions)]
        if wanted.name not in {each.name for each in self.allocated.values()} and fits(
            [*self.allocated.values(), wanted]
        ):
            self.allocated[claim] = wanted
            self._prepare(claim, kill_at)

    @precondition(lambda self: self.allocated)
    @rule(number=CLAIMS, kill_at=st.none() | st.integers(0, 2))
    def the_kubelet_has_a_claim_prepared(self, number: int, kill_at: int | None) -> None:
        self._prepare(sorted(self.allocated)[number % len(self.allocated)], kill_at)

    def _prepare(self, claim: int, kill_at: int | None) -> None:
        asked = api.Claim(namespace="ml", name=str(claim), uid=f"uid-{claim}")
        request = api.NodePrepareResourcesRequest(claims=(asked,))
        if kill_at is not None:
            self.driver.before_call = Ending(kill_at)
        try:
            (answer,) = self.loop.run_until_complete(self.daemon.service.prepare(request)).claims
        except Killed:
            self.driver.before_call = lambda: None
            self.begin()
            return
        self.driver.before_call = lambda: None
        if answer.value is not None and not answer.value.error:
            (name,) = answer.value.devices[0].cdi_device_ids
            self.given[claim] = name.partition("=")[2].replace("_", "/")
        self._settle()

    @precondition(lambda self: self.allocated)
    @rule(number=CLAIMS)
    def a_claim_goes(self, number: int) -> None:
        self._give_back(sorted(self.allocated)[number % len(self.allocated)])

    def _give_back(self, claim: int) -> None:
        request = api.NodeUnprepareResourcesRequest(
            claims=(api.Claim(namespace="ml", name=str(claim), uid=f"uid-{claim}"),)
        )
        self.given.pop(claim, None)
        (answer,) = self.loop.run_until_complete(self.daemon.service.unprepare(request)).claims
        assert answer.value is not None
        assert not answer.value.error  # with or without a driver
        del self.allocated[claim]
        self._settle()

    @precondition(lambda self: not self.driver.is_away)
    @rule(index=st.integers(0, GPUS - 1), number=NUMBERS, is_complete=st.booleans())
    def somebody_cuts_a_gpu_by_hand(self, index: int, number: int, *, is_complete: bool) -> None:
        uuid = gpu(index).uuid
        places = [(each, *place) for each in PROFILES for place in each.places]
        found, start, size = places[number % len(places)]
        with suppress(MigError):
            made = self.driver.create(uuid, found.id, start, size)
            self.by_hand.add((uuid, made))
            if is_complete:
                self.driver.add_compute(uuid, made, found.slices)
        self._settle()

    @precondition(lambda self: self.by_hand and not self.driver.is_away)
    @rule()
    def and_destroys_that_again(self) -> None:
        uuid, made = self.by_hand.pop()
        self.driver.destroy(uuid, made)
        self._settle()

    @rule(is_away=st.booleans())
    def the_driver_goes_or_comes(self, *, is_away: bool) -> None:
        self.driver.is_away = is_away
        self._settle()

    @precondition(lambda self: self.driver.is_away)
    @rule()
    def the_driver_comes(self) -> None:
        self.the_driver_goes_or_comes(is_away=False)

    @rule()
    def the_daemon_is_killed(self) -> None:
        self.begin()

    @rule()
    def the_machine_boots(self) -> None:
        self.driver.gpus = {uuid: replace(each, instances=()) for uuid, each in self.driver.gpus.items()}
        self.by_hand.clear()
        self.given.clear()  # containers are made anew, after their claims are prepared again
        self.begin()

    @invariant()
    def each_claim_has_its_own(self) -> None:
        if not hasattr(self, "daemon"):
            return
        there = {
            uuid: (each.profile, each.start, each.size)
            for found in self.driver.gpus.values()
            for each in found.instances
            for uuid in each.uuids
        }
        assert len(set(self.given.values())) == len(self.given)
        for claim, uuid in self.given.items():
            profile_id, start = self.allocated[claim].name.rsplit("-", 2)[1:]
            meant = next(each for each in PROFILES if each.id == int(profile_id))
            assert there[uuid][:2] == (meant.name, int(start))
        for uuid, number in self.by_hand:
            assert number in {each.id for each in self.driver.gpus[uuid].instances}
        for found in self.driver.gpus.values():
            taken = [index for each in found.instances for index in range(each.start, each.start + each.size)]
            assert len(taken) == len(set(taken))

    def teardown(self) -> None:
        if not hasattr(self, "daemon"):
            return
        self.driver.is_away = False
        for claim in tuple(self.allocated):
            self._give_back(claim)
        self._settle()
        left = {(uuid, each.id) for uuid, found in self.driver.gpus.items() for each in found.instances}
        assert left == self.by_hand
        folder = self.folder / PARTITIONS
        assert not folder.exists() or not list(folder.iterdir())
        self.loop.close()


class Ending:
    """Ends the process at one of its calls that change something."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1


class LongNode(Node):
    """The same, thirty times as often."""


TestNode = Node.TestCase
TestNode.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
TestLongNode = pytest.mark.long(pytest.mark.timeout(1800)(LongNode.TestCase))
TestLongNode.settings = settings(max_examples=600, stateful_step_count=40, deadline=None)


@pytest.fixture
def node() -> Node:
    made = Node()
    made.start()
    return made


def test_a_partition_is_made_for_its_claim_and_destroyed_after_it(node: Node) -> None:
    name = next(each for each in node.daemon.devices if each.endswith("-9-4"))
    node.allocated[1] = node.daemon.devices[name]
    before = list(node.daemon.devices)
    node.the_kubelet_has_a_claim_prepared(0, None)
    assert node.driver.devices(gpu(0).uuid) == [("3g.40gb", (3,))]
    assert list(node.daemon.devices) == before  # what is published stays as it was
    (uuid,) = node.given.values()
    assert uuid in {each.uuid for each in node.daemon.present}
    assert not any(each.slices for each in node.daemon.instances.without_made(node.daemon.inventory).devices)
    node.a_claim_goes(0)
    assert node.driver.devices(gpu(0).uuid) == []
    node.teardown()


def test_a_partition_is_given_once_it_has_been_seen(node: Node) -> None:
    """Which was not waited for: of two claims in a row the second one was refused."""
    node.allocated[1] = next(iter(node.daemon.devices.values()))
    node.daemon.looks_after = True
    node.the_kubelet_has_a_claim_prepared(0, None)
    assert set(node.given.values()) <= {each.uuid for each in node.daemon.present}
    assert node.given
    node.daemon.looks_after = False
    node.teardown()


def test_what_the_next_claim_has_by_then_is_not_destroyed_after_the_one_before(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waited for a claim to be given back goes on before the task that destroys what it had."""
    node.allocated[1] = next(iter(node.daemon.devices.values()))
    node.the_kubelet_has_a_claim_prepared(0, None)
    late: list[Awaitable[None]] = []
    with monkeypatch.context() as patched:
        patched.setattr(node.daemon.instances, "_spawn", late.append)
        given_back = node.allocated[1]
        node.a_claim_goes(0)
        node.allocated[2] = given_back
        node.the_kubelet_has_a_claim_prepared(0, None)
    (uuid,) = node.given.values()
    for each in late:
        node.loop.run_until_complete(each)
    node.each_claim_has_its_own()
    assert uuid in {made for found in node.driver.gpus.values() for each in found.instances for made in each.uuids}
    node.teardown()


def test_what_is_made_while_the_configuration_is_read_anew_is_known_to_the_keeper_after_it(node: Node) -> None:
    """The driver makes it in its thread, whoever waits for that."""
    daemon = node.daemon
    name = next(iter(daemon.devices))
    before, after = (Partitioner(node.folder, node.driver, daemon.tree) for _ in range(2))
    made = before.make([name])
    _, names = after.read()
    assert names == {name}
    assert after.make([name]) == made
    assert not after.destroy([name])
    assert not any(each.instances for each in node.driver.gpus.values())
    node.teardown()


def test_a_gpu_that_did_not_say_how_it_is_cut_is_asked_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    read = node.driver.read_gpus
    silent = tuple(CuttableGpu(each.index, f"gpu {each.index}", -1, problem="unknown error") for each in read())
    with monkeypatch.context() as patched:
        patched.setattr(node.driver, "read_gpus", lambda: silent)
        node.begin()
        assert not node.daemon.devices
    node.loop.run_until_complete(node.daemon.settle())
    assert node.daemon.devices
    node.teardown()


def test_a_gpu_that_is_lost_is_not_taken_from_the_slices_and_what_claims_had_of_it_waits(node: Node) -> None:
    name = next(each for each in node.daemon.devices if each.endswith("-9-4"))
    node.allocated[1] = node.daemon.devices[name]
    node.the_kubelet_has_a_claim_prepared(0, None)
    before = list(node.daemon.devices)
    node.driver.lost.add(gpu(0).uuid)
    node.loop.run_until_complete(node.daemon.settle())
    assert list(node.daemon.devices) == before
    assert {each.unhealthy for each in node.daemon.devices.values() if each.parts[0] == gpu(0).uuid} == {"gpu is lost"}
    node.a_claim_goes(0)
    node.driver.lost.clear()
    node.loop.run_until_complete(node.daemon.settle())
    assert node.driver.devices(gpu(0).uuid) == []
    node.teardown()


def test_what_a_claim_had_is_destroyed_when_the_driver_is_back(node: Node) -> None:
    node.allocated[1] = next(iter(node.daemon.devices.values()))
    node.the_kubelet_has_a_claim_prepared(0, None)
    node.the_driver_goes_or_comes(is_away=True)
    node.a_claim_goes(0)
    node.the_daemon_is_killed()
    assert any(each.instances for each in node.driver.gpus.values())
    node.the_driver_comes()
    assert not any(each.instances for each in node.driver.gpus.values())
    node.teardown()


@pytest.mark.parametrize("calls", [0, 1])
def test_a_daemon_that_is_killed_while_it_makes_one_goes_on_with_it(node: Node, calls: int) -> None:
    node.allocated[1] = next(iter(node.daemon.devices.values()))
    node.the_kubelet_has_a_claim_prepared(0, calls)
    assert not node.given
    node.the_kubelet_has_a_claim_prepared(0, None)
    assert node.given
    assert sum(len(each.instances) for each in node.driver.gpus.values()) == 1
    node.teardown()


def test_what_is_made_by_hand_in_the_place_of_what_a_reboot_took_is_nobody_elses(node: Node) -> None:
    """It was taken for the claim's, whose file was still there, and would have been destroyed with it."""
    name = next(each for each in node.daemon.devices if each.endswith("-9-4"))
    node.allocated[1] = node.daemon.devices[name]
    node.the_kubelet_has_a_claim_prepared(0, None)
    node.the_machine_boots()
    make(node.driver, name)
    node.by_hand.add((gpu(0).uuid, 1))
    node.the_kubelet_has_a_claim_prepared(0, None)
    assert not node.given
    node.teardown()


def test_what_is_made_for_claims_is_no_layouts(node: Node) -> None:
    """A declared layout without MIG devices is what there is, and a change of the mode waits for the claim."""
    node.allocated[1] = next(iter(node.daemon.devices.values()))
    node.the_kubelet_has_a_claim_prepared(0, None)
    (first, *_) = with_users(set_apart(node.driver.read_gpus(), read_partitions(node.folder)))
    (plan,) = plan_layout(Layout((Entry((0,)),)), [first])
    assert not plan.steps
    assert not plan.refusal
    (plan,) = plan_layout(Layout((Entry((0,), is_enabled=False),)), [first])
    assert "a claim (" in plan.refusal
    node.teardown()
