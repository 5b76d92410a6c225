"""Another interface of Kubernetes, by the engine of an upgrade: node by node, each in service, and back if it fails."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from provision.apply.model import Failure, NodeResult, Status
from provision.cluster.kubernetes.nodes.marks import NVIDIA_STATE, UPGRADE, render_patch
from provision.cluster.kubernetes.notices import LIFECYCLE, Notice, conditions, message_of
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.record import decode_record, encode_record
from provision.declaration.spec.model import GpuInterface, Wave
from provision.report.terminal import phase_words
from provision.rollout.decision.advance import advance
from provision.rollout.decision.order.membership import with_waves
from provision.rollout.decision.outcome import results_of
from provision.rollout.decision.policy import Policy, WavePolicy
from provision.rollout.decision.prepare import Prepared
from provision.rollout.decision.snapshot import Write
from provision.rollout.interface.progress import PhaseEntered
from provision.rollout.model import ChangeKind, NodeView, Phase
from provision.rollout.step import StepOutcome
from provision.rollout.steps.interface_steps import apply_steps
from tests.provision.rollout.fakes import (
    CALM,
    NEW,
    NOON,
    Clock,
    FakeCluster,
    KilledError,
    killed_at,
    make_engine,
    record,
    state,
    view,
)
from tests.provision.rollout.process import fleet, statuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.apply.model import Observer
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.model import Origin

PLUGIN, DRA, BOTH = GpuInterface


@dataclass
class Changing:
    """Steps that have nodes give GPUs by another interface; on those in ``refused`` no kubelet takes the new one."""

    cluster: FakeCluster
    has: dict[str, GpuInterface] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)  # whose way back fails as well
    effect: Callable[[str], None] = lambda _what: None
    is_declared: GpuInterface = DRA
    most_unproven: int = 0
    unproven: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(
        self, node: str, phase: Phase, observe: Observer, cancel: threading.Event, back: Origin | None = None
    ) -> StepOutcome:
        del observe, cancel
        self.effect(f"{phase} {node}")
        found = self.cluster.nodes[node]
        assert found.record is not None
        assert found.record.phase is phase, "the record names the phase before anything is done"
        found.touched.append(phase)
        wanted = self.is_declared if back is None else back.interface
        assert wanted is not None
        if phase in (Phase.SWAP, Phase.ROLLBACK):
            if phase is Phase.ROLLBACK and node in self.stuck:
                return StepOutcome(failure=Failure(Status.FAILED, "the disk is full"))
            with self.lock:
                self.unproven.add(node)
                self.most_unproven = max(self.most_unproven, len(self.unproven))
            self.has[node] = wanted
            return StepOutcome(swapped=NodeResult(node, Status.CONVERGED, 1, 1))
        assert phase is Phase.VERIFY, "nothing is released, and nothing resumed"
        if back is None and node in self.refused:
            return StepOutcome(failure=Failure(Status.FAILED, "the kubelet has not taken the driver gpu.nvidia.com"))
        assert self.has[node] is wanted
        with self.lock:
            self.unproven.discard(node)
        return StepOutcome()


@dataclass
class Machines:
    """A fleet with the declared driver, whose nodes give GPUs by the device plugin."""

    cluster: FakeCluster
    steps: Changing

    @classmethod
    def of(cls, *names: str) -> Machines:
        cluster = fleet(*names)
        for node in cluster.nodes.values():
            node.driver = NEW
        return cls(cluster, Changing(cluster, dict.fromkeys(names, PLUGIN)))

    def apply(
        self, policy: Policy | None = None, declared: GpuInterface = DRA, waves: tuple[Wave, ...] = ()
    ) -> dict[str, NodeResult]:
        self.steps.is_declared = declared
        cancel = threading.Event()
        states = with_waves(self._states(declared), waves, {})
        ending = make_engine(self.cluster, self.steps, states, policy or Policy(), Clock(), cancel=cancel).run()  # type: ignore[arg-type]  # steps as well
        return results_of(ending, list(self.cluster.nodes), canceled=False)

    def _states(self, declared: GpuInterface) -> list[NodeState]:
        return [
            state(
                name,
                NodeView(
                    name=name,
                    record=node.record,
                    is_cordoned=node.is_cordoned,
                    is_ready=node.is_ready,
                    gpu_pods=tuple(node.pods),
                ),
                origin=NEW,
                is_disruptive=self.steps.has[name] is not declared,
                is_as_declared=self.steps.has[name] is declared,
                kind=ChangeKind.INTERFACE,
                interface=declared,
                former_interface=self._former(name, declared),
            )
            for name, node in self.cluster.nodes.items()
        ]

    def _former(self, name: str, declared: GpuInterface) -> GpuInterface | None:
        """Return what a node has; where that is what is declared by now, its record knows what it had."""
        record = self.cluster.nodes[name].record
        has = self.steps.has[name]
        return has if has is not declared or record is None else record.former_interface

    def phase(self, name: str) -> Phase | None:
        record = self.cluster.nodes[name].record
        return None if record is None else record.phase


def test_nodes_change_over_one_after_the_other_in_service_and_no_pod_leaves() -> None:
    machines = Machines.of("n1", "n2", "n3")

    results = machines.apply()

    assert statuses(results) == ["converged"] * 3
    assert set(machines.steps.has.values()) == {DRA}
    assert machines.steps.most_unproven == 1, "the next one waits until the one before is proven"
    assert machines.cluster.evicted == []
    assert {cordoned for _node, _phase, cordoned in machines.cluster.writes} == {None}
    for node in machines.cluster.nodes.values():
        assert node.touched == [Phase.SWAP, Phase.VERIFY]
        assert node.record is not None
        assert (node.record.kind, node.record.interface, node.record.phase) == (ChangeKind.INTERFACE, DRA, Phase.DONE)
        assert len(node.pods) == 2
    assert all(result.upgrade is None for result in results.values()), "none was out of service"


def test_what_people_are_told_is_about_interfaces_and_not_about_drivers() -> None:
    told = [
        phase_words(PhaseEntered("n1", phase, reason, is_in_place=True))
        for phase, reason in (
            (Phase.SWAP, ""),
            (Phase.VERIFY, ""),
            (Phase.DONE, ""),
            (Phase.ROLLBACK, "goes back to giving GPUs by claims, since verify failed: it is so"),
        )
    ]
    assert not [words for words in told if "driver" in words or "service" in words]


def test_no_condition_of_a_maintenance_and_no_state_of_nvidia_s_is_on_its_node() -> None:
    at = Notice(node="n1", uid="u1", phase=Phase.SWAP, reason="", time=NOON, is_in_place=True)
    assert conditions(at, kinds=tuple(LIFECYCLE), before={}) == []
    assert "interface" in message_of(at)
    made = record(Phase.SWAP, kind=ChangeKind.INTERFACE, interface=DRA)
    node = msgspec.convert({"metadata": {"name": "n1", "uid": "u1"}, "spec": {}, "status": {}}, Node)
    patch = render_patch(made, cordoned=None, node=node)
    assert patch["metadata"]["labels"][NVIDIA_STATE] is None
    assert patch["metadata"]["labels"][UPGRADE] == "swap"
    assert "spec" not in patch


def test_as_many_at_once_as_are_allowed_and_no_more() -> None:
    machines = Machines.of(*(f"n{number}" for number in range(8)))

    machines.apply(Policy(max_parallel=4, max_unavailable=2))

    assert machines.steps.most_unproven <= 2
    assert set(machines.steps.has.values()) == {DRA}


def test_a_node_whose_kubelet_does_not_take_it_goes_back_and_the_others_stay_as_they_are() -> None:
    machines = Machines.of("n1", "n2")
    machines.steps.refused.add("n1")

    results = machines.apply()

    assert statuses(results) == ["returned", "waiting"]
    assert machines.steps.has == {"n1": PLUGIN, "n2": PLUGIN}
    node = machines.cluster.nodes["n1"]
    assert node.touched == [Phase.SWAP, Phase.VERIFY, Phase.ROLLBACK, Phase.VERIFY]
    assert node.record is not None
    assert (node.record.phase, node.record.failed_in) == (Phase.RETURNED, Phase.VERIFY)
    assert node.record.complaint == (
        "returned to giving GPUs by the device plugin, since verify failed: the kubelet has not taken the driver "
        "gpu.nvidia.com"
    )
    assert machines.cluster.nodes["n2"].touched == []

    machines.steps.refused.clear()
    assert statuses(machines.apply()) == ["converged", "converged"]


@pytest.mark.parametrize(
    ("former", "declared"), list(itertools.permutations(GpuInterface, 2)), ids=lambda each: each.value
)
def test_a_node_that_fails_has_the_interface_again_that_it_had(former: GpuInterface, declared: GpuInterface) -> None:
    machines = Machines.of("n1")
    machines.steps.has["n1"] = former
    machines.steps.refused.add("n1")

    assert statuses(machines.apply(declared=declared)) == ["returned"]

    assert machines.steps.has == {"n1": former}
    node = machines.cluster.nodes["n1"]
    assert node.record is not None
    assert decode_record(encode_record(node.record)).former_interface is former
    assert f"returned to giving GPUs by {former.words}" in node.record.complaint
    machines.steps.refused.clear()
    assert statuses(machines.apply(declared=declared)) == ["converged"]


def test_a_node_that_cannot_go_back_takes_pods_and_is_tried_again() -> None:
    machines = Machines.of("n1", "n2")
    machines.steps.refused.add("n1")
    machines.steps.stuck.add("n1")

    assert statuses(machines.apply()) == ["failed", "waiting"]
    node = machines.cluster.nodes["n1"]
    assert (machines.phase("n1"), node.is_cordoned) == (Phase.FAILED, False)

    machines.steps.refused.clear()
    assert statuses(machines.apply()) == ["converged", "converged"]
    assert machines.cluster.evicted == []


def test_a_canary_is_proven_and_soaks_before_the_others() -> None:
    machines = Machines.of("n1", "n2", "n3")
    machines.steps.refused.add("n1")
    waves = (WavePolicy(title="wave 1", soak=timedelta(0)), WavePolicy(title="wave 2", soak=timedelta(0)))

    machines.apply(Policy(max_parallel=3, max_unavailable=3, max_failures=3, waves=waves), waves=(Wave(size=1), Wave()))

    assert machines.phase("n1") is Phase.RETURNED
    assert machines.phase("n2") is None
    assert machines.phase("n3") is None


def test_a_declaration_that_is_taken_back_leads_every_node_back() -> None:
    machines = Machines.of("n1", "n2", "n3")
    machines.steps.refused.add("n2")
    machines.apply()
    assert machines.steps.has == {"n1": DRA, "n2": PLUGIN, "n3": PLUGIN}

    machines.steps.refused.clear()
    machines.apply(declared=PLUGIN)

    assert set(machines.steps.has.values()) == {PLUGIN}
    assert machines.phase("n1") is Phase.DONE
    assert machines.cluster.evicted == []


@pytest.mark.parametrize("refused", [False, True], ids=["it goes well", "a node goes back"])
@pytest.mark.parametrize("after", [DRA, PLUGIN])
def test_whatever_is_killed_the_next_apply_ends_with_every_node_as_declared(
    after: GpuInterface, *, refused: bool
) -> None:
    for effect in itertools.count():
        machines = Machines.of("n1", "n2")
        machines.steps.refused.update(["n1"] if refused else [])
        machines.cluster.effect = machines.steps.effect = killed_at(effect)
        try:
            machines.apply()
            lived = True
        except KilledError:
            lived = False
        machines.cluster.effect = machines.steps.effect = CALM
        machines.cluster.is_held = False
        machines.steps.unproven.clear()
        machines.steps.refused.clear()
        for _ in range(2 if refused else 1):  # a node that was on its way back comes to its end first
            machines.apply(declared=after)

        assert set(machines.steps.has.values()) == {after}, effect
        ends = (Phase.DONE, Phase.RETURNED, None) if refused and after is PLUGIN else (Phase.DONE, None)
        assert all(machines.phase(name) in ends for name in ("n1", "n2")), effect
        assert machines.cluster.evicted == []
        assert not any(node.is_cordoned for node in machines.cluster.nodes.values()), effect
        if lived:
            assert effect > 6
            return


@pytest.mark.parametrize("phase", [Phase.SWAP, Phase.VERIFY, Phase.ROLLBACK])
@pytest.mark.parametrize("kind", [ChangeKind.DRIVER, ChangeKind.REBOOT, ChangeKind.OTHER])
def test_a_node_that_is_to_leave_service_by_now_is_drained_first_wherever_its_change_of_interface_is(
    kind: ChangeKind, phase: Phase
) -> None:
    """Who does the other change knows nothing of interfaces: it would find the way back done, and verify a driver."""
    left = record(phase, target=NEW, origin=NEW, kind=ChangeKind.INTERFACE, interface=DRA)

    action, _held = advance(state("n1", view("n1", record=left), origin=NEW, kind=kind), left, NOON, NOON)

    assert isinstance(action, Write)
    assert (action.record.phase, action.record.kind, action.cordoned) == (Phase.DRAIN, kind, True)
    assert not action.record.is_returning
    assert action.record.interface is None


def test_the_way_back_to_an_interface_is_never_run_as_that_to_a_driver() -> None:
    """As where the plan of what is declared by now has a problem, so that the node cannot be changed otherwise."""
    back = record(Phase.ROLLBACK, target=NEW, origin=NEW, kind=ChangeKind.INTERFACE, interface=DRA)
    states = (
        state("n1", view("n1", record=back), kind=ChangeKind.DRIVER, obstacle="no package source has 575.57.08"),
        state("n2", kind=ChangeKind.DRIVER),
    )
    steps = apply_steps(None, Prepared(states=states))  # type: ignore[arg-type]  # no step is run
    assert steps.changing == {"n1"}
