"""Another MIG layout, by the engine of an upgrade: each node out of service, once, and no driver to return to."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.apply.model import Failure, NodeResult, Status
from provision.rollout.decision.outcome import results_of
from provision.rollout.decision.policy import Policy
from provision.rollout.decision.undoing import Part, part_of
from provision.rollout.model import ChangeKind, NodeView, Phase
from provision.rollout.step import StepOutcome
from tests.provision.rollout.fakes import (
    CALM,
    NEW,
    OLD,
    Clock,
    FakeCluster,
    FakeSteps,
    KilledError,
    killed_at,
    make_engine,
    record,
    state,
)
from tests.provision.rollout.process import fleet, statuses
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from provision.apply.model import Observer
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.model import Origin

MIG = ChangeKind.MIG


@dataclass
class Dividing(FakeSteps):
    """Steps that divide GPUs in the place of a swap; ``in_use`` are nodes of which a GPU is taken by somebody."""

    divided: set[str] = field(default_factory=set)
    in_use: set[str] = field(default_factory=set)

    def run(
        self, node: str, phase: Phase, observe: Observer, cancel: threading.Event, back: Origin | None = None
    ) -> StepOutcome:
        outcome = super().run(node, phase, observe, cancel, back)
        if phase is Phase.SWAP and outcome.failure is None:
            if node in self.in_use:
                return StepOutcome(failure=Failure(Status.FAILED, "GPU 3: 1g.10gb at 1:1 is used by pod shop/web"))
            self.divided.add(node)
            return StepOutcome(swapped=NodeResult(node, Status.CONVERGED, 1, 1))
        return outcome


@dataclass
class Machines:
    """A fleet with the declared driver; of its layout, each apply sees which nodes have it."""

    cluster: FakeCluster
    steps: Dividing

    @classmethod
    def of(cls, *names: str) -> Machines:
        cluster = fleet(*names)
        for node in cluster.nodes.values():
            node.driver = NEW
        return cls(cluster, Dividing(cluster))

    def apply(self) -> dict[str, NodeResult]:
        cancel = threading.Event()
        ending = make_engine(self.cluster, self.steps, self._states(), Policy(), Clock(), cancel=cancel).run()
        return results_of(ending, list(self.cluster.nodes), canceled=False)

    def _states(self) -> list[NodeState]:
        return [
            state(
                name,
                NodeView(name=name, record=node.record, is_cordoned=node.is_cordoned, is_ready=node.is_ready),
                origin=NEW,
                is_disruptive=name not in self.steps.divided,
                is_as_declared=name in self.steps.divided,
                kind=MIG,
                may_return=False,
            )
            for name, node in self.cluster.nodes.items()
        ]


def test_nodes_that_differ_are_divided_one_after_the_other_each_out_of_service() -> None:
    machines = Machines.of("n1", "n2", "n3")
    machines.steps.divided.add("n2")

    machines.apply()

    assert machines.steps.divided == {"n1", "n2", "n3"}
    assert machines.cluster.most_out == 1
    assert machines.cluster.evicted == ["n1-a", "n1-b", "n3-a", "n3-b"]
    assert machines.cluster.nodes["n2"].touched == []
    for name in ("n1", "n3"):
        node = machines.cluster.nodes[name]
        assert node.record is not None
        assert (node.record.kind, node.record.phase) == (MIG, Phase.DONE)
        assert (node.driver, node.is_cordoned, node.is_released) == (NEW, False, False)


def test_a_node_that_cannot_be_divided_stays_out_of_service_with_the_reason_until_it_can() -> None:
    machines = Machines.of("n1", "n2")
    machines.steps.in_use.add("n1")

    failed = machines.apply()

    assert statuses(failed) == ["failed", "waiting"]
    node = machines.cluster.nodes["n1"]
    assert node.record is not None
    assert (node.record.phase, node.record.failed_in) == (Phase.FAILED, Phase.SWAP)
    assert node.record.reason == "GPU 3: 1g.10gb at 1:1 is used by pod shop/web"
    assert Phase.ROLLBACK not in node.touched, "there is no former driver to return to"
    assert (node.is_cordoned, node.is_released) == (True, True)
    assert machines.cluster.nodes["n2"].touched == []

    machines.steps.in_use.clear()
    assert statuses(machines.apply()) == ["converged", "converged"]
    assert machines.steps.divided == {"n1", "n2"}
    assert not any(each.is_cordoned for each in machines.cluster.nodes.values())


def test_whatever_is_killed_the_next_apply_ends_with_every_node_divided_and_in_service() -> None:
    for effect in itertools.count():
        machines = Machines.of("n1", "n2")
        machines.cluster.effect = machines.steps.effect = killed_at(effect)
        try:
            machines.apply()
            lived = True
        except KilledError:
            lived = False
        machines.cluster.effect = machines.steps.effect = CALM
        machines.cluster.is_held = False
        machines.apply()

        assert machines.steps.divided == {"n1", "n2"}, effect
        for node in machines.cluster.nodes.values():
            assert not node.is_cordoned, effect
            assert not node.is_released, effect
        assert machines.cluster.most_out == 1, effect
        if lived:
            assert effect > 10
            return


def test_a_change_that_is_taken_back_before_it_began_hides_no_upgrade_before_it() -> None:
    """The node was back in service as it was, and `rollback` knew of no upgrade any more."""
    machines = Machines.of("n1")
    node = machines.cluster.nodes["n1"]
    node.record, node.is_cordoned = record(Phase.DRAIN, target=NEW, origin=NEW, upgraded_from=OLD, kind=MIG), True
    machines.steps.divided.add("n1")  # the former layout is declared again

    assert statuses(machines.apply()) == ["unchanged"]

    assert (node.is_cordoned, node.touched) == (False, [])
    assert part_of(make_stack(driver={"version": NEW}).driver, node.record) is Part.TO_RETURN
    machines.steps.divided.clear()
    assert statuses(machines.apply()) == ["converged"]
    assert part_of(make_stack(driver={"version": NEW}).driver, node.record) is Part.TO_RETURN
