"""That an upgrade failed on a node is kept until the node has the declared driver, whichever that is."""

from __future__ import annotations

import threading

import pytest

from provision.apply.model import Assessment, NodeResult, Note, Status
from provision.planning.node_plan import NodePlan
from provision.rollout.adapters import Adapters
from provision.rollout.decision.prepare import Prepared
from provision.rollout.errors import ConflictError
from provision.rollout.execution import Job, execute
from provision.rollout.interface.instructions import Instructions
from provision.rollout.model import Phase
from provision.rollout.returns import forget_returns
from provision.rollout.steps.node_steps import NodeSteps
from tests.provision.apply.fakes import FakeFleet, cluster_of, context, facts_of
from tests.provision.apply.fakes import FakeNode as Machine
from tests.provision.apply.test_rollout_verbs import apply
from tests.provision.rollout.fakes import OLD, FakeCluster, FakeNode, record, state, view
from tests.provision.samples import make_stack

RETURNED = record(Phase.RETURNED, is_returning=True, failed_in=Phase.VERIFY, reason="3 of 4 GPUs answer")


def forget(cluster: FakeCluster, status: Status = Status.UNCHANGED, **prepared: object) -> list[str]:
    """Do it at the end of an apply that found ``n1``; return what people are told."""
    told: list[str] = []
    node = state("n1", view("n1", RETURNED), target=OLD, is_disruptive=False, is_as_declared=True)
    forget_returns(
        cluster,
        Prepared(states=(node,), **prepared),  # type: ignore[arg-type]  # fields by name
        [NodeResult("n1", status)],
        lambda progress: told.append(progress.text if isinstance(progress, Note) else ""),
        "ada",
    )
    return told


def test_a_node_whose_former_driver_is_declared_again_is_returned_no_more() -> None:
    fleet = FakeFleet({"n1": Machine(["driver"]), "n2": Machine(["driver"])})
    cluster = cluster_of(fleet)
    cluster.nodes["n1"].record = RETURNED
    cluster.nodes["n2"].record = record(Phase.DONE, target=OLD)

    assert apply(fleet, cluster) == 0

    assert cluster.nodes["n1"].record is None
    assert cluster.nodes["n2"].record is not None, "an upgrade that went well is remembered"


@pytest.mark.parametrize("is_outdated", [False, True])
def test_it_is_kept_where_something_else_is_declared_by_now(*, is_outdated: bool) -> None:
    """The new driver failed on it, its former one was declared, and at the end of that rollout the new one again."""
    fleet = FakeFleet({"n1": Machine(["driver"])})
    cluster = FakeCluster({"n1": FakeNode(record=RETURNED)})
    node = state("n1", view("n1", RETURNED), target=OLD, is_disruptive=False, is_as_declared=True)
    told = Instructions(is_outdated=is_outdated)
    job = Job(
        context=context(fleet),
        adapters=Adapters(cluster=cluster, steps=NodeSteps(context(fleet), {}), instructions=told),
        prepared=Prepared(states=(node,)),
        answers={"n1": Assessment(facts_of("n1", "driver"), NodePlan(node="n1"))},
        stacks={"n1": make_stack(driver={"version": OLD})},
    )

    done = execute(job, lambda _progress: None, parallel=1, cancel=threading.Event(), holder="ada")

    assert [result.status for result in done.results] == [Status.UNCHANGED]
    assert (cluster.nodes["n1"].record is not None) is is_outdated


@pytest.mark.parametrize("status", [Status.WAITING, Status.REFUSED, Status.UNREACHABLE, Status.SKIPPED])
def test_one_that_is_not_as_declared_stays_so(status: Status) -> None:
    cluster = FakeCluster({"n1": FakeNode(record=RETURNED)})
    assert forget(cluster, status) == []
    assert cluster.nodes["n1"].record == RETURNED


def test_one_that_somebody_else_is_at_is_left_alone() -> None:
    at_work = FakeCluster({"n1": FakeNode(record=RETURNED)}, is_held=True)
    assert forget(at_work) == ["that upgrades failed is not forgotten yet: somebody else is at work"]
    assert at_work.nodes["n1"].record == RETURNED

    moved = FakeCluster({"n1": FakeNode(record=record(Phase.CORDON))})
    assert forget(moved) == []
    assert moved.nodes["n1"].record == record(Phase.CORDON)


def test_what_cannot_be_written_does_not_spoil_the_apply() -> None:
    def refuse(what: str) -> None:
        raise ConflictError(f"{what}: somebody else changed n1")

    cluster = FakeCluster({"n1": FakeNode(record=RETURNED)}, effect=refuse)
    assert forget(cluster) == ["write n1 nothing: somebody else changed n1: that an upgrade failed on it is kept"]
    assert not cluster.is_held


def test_one_that_goes_through_the_rollout_has_a_record_of_its_own() -> None:
    cluster = FakeCluster({"n1": FakeNode(record=RETURNED)}, is_held=True)
    assert forget(cluster, Status.CONVERGED, rollout=("n1",)) == []
    assert cluster.nodes["n1"].record == RETURNED


def test_check_mode_forgets_nothing() -> None:
    fleet = FakeFleet({"n1": Machine(["driver"])})
    cluster = cluster_of(fleet)
    cluster.nodes["n1"].record = RETURNED
    assert apply(fleet, cluster, check=True) == 0
    assert cluster.nodes["n1"].record == RETURNED
