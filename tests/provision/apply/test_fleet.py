"""What becomes of nodes when a fleet is applied."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from provision.apply.converge import assess
from provision.apply.errors import CanceledError, RunError
from provision.apply.fleet import apply_all
from provision.apply.model import NodeFinished, NodeResult, PassStarted, Status
from provision.apply.runner import RunStatus
from provision.planning.node_plan import NodePlan
from tests.provision.apply.fakes import FakeFleet, FakeNode, Watcher, context, facts_of, item, plan_drain, plan_packages

if TYPE_CHECKING:
    from provision.apply.context import ApplyContext
    from provision.declaration.fleet.facts.node import NodeFacts

HOLDER: dict[str, object] = {"pid": 7, "command": "train"}


def apply(context: ApplyContext, fleet: FakeFleet, parallel: int = 1) -> dict[str, NodeResult]:
    cancel = threading.Event()
    answers = assess(context, fleet.nodes, Watcher(), cancel)
    results = apply_all(context, answers, Watcher(), parallel=parallel, cancel=cancel)
    return {result.node: result for result in results}


@pytest.mark.parametrize(
    ("node", "status", "passes", "message"),
    [
        pytest.param(FakeNode(["driver", "runtime"]), Status.UNCHANGED, 0, "", id="as declared"),
        pytest.param(FakeNode(["driver"]), Status.CONVERGED, 1, "", id="one pass"),
        pytest.param(FakeNode(), Status.CONVERGED, 2, "", id="a second pass for what was foreseen"),
        pytest.param(FakeNode(["curse"]), Status.REFUSED, 0, "the node is cursed", id="problem"),
        pytest.param(FakeNode(reachable=False), Status.UNREACHABLE, 0, "no route to host", id="unreachable"),
        pytest.param(FakeNode(broken="driver"), Status.FAILED, 1, "cannot install driver", id="failed at once"),
        pytest.param(FakeNode(broken="runtime"), Status.FAILED, 2, "cannot install runtime", id="failed later"),
        pytest.param(
            FakeNode(deaf=True),
            Status.UNFINISHED,
            1,
            "after 1 pass, still to do: install driver and 1 more (declared)",
            id="a plan that applying does not change",
        ),
    ],
)
def test_what_becomes_of_a_node(node: FakeNode, status: Status, passes: int, message: str) -> None:
    fleet = FakeFleet({"n1": node})
    result = apply(context(fleet), fleet)["n1"]
    assert (result.status, result.passes) == (status, passes)
    assert (result.failure.message if result.failure else "") == message
    assert len(fleet.applied()) == passes


def test_a_failed_node_tells_task_and_tail() -> None:
    fleet = FakeFleet({"n1": FakeNode(broken="driver")})
    failure = apply(context(fleet), fleet)["n1"].failure
    assert failure is not None
    assert (failure.task, failure.tail) == ("install driver", ("E: broken",))


def test_mixed_fleet_goes_on_without_the_bad_ones() -> None:
    fleet = FakeFleet(
        {
            "n1": FakeNode(["driver", "runtime"]),
            "n2": FakeNode(reachable=False),
            "n3": FakeNode(broken="driver"),
            "n4": FakeNode(["curse"]),
            "n5": FakeNode(),
        }
    )
    results = apply(context(fleet), fleet, parallel=2)
    assert [result.status.value for result in results.values()] == [
        "unchanged",
        "unreachable",
        "failed",
        "refused",
        "converged",
    ]
    assert list(results) == list(fleet.nodes)


def test_a_fleet_with_nothing_to_do_costs_one_run() -> None:
    fleet = FakeFleet({f"n{number}": FakeNode(["driver", "runtime"]) for number in range(50)})
    apply(context(fleet), fleet, parallel=5)
    assert fleet.runs == [("facts", tuple(fleet.nodes))]


@pytest.mark.parametrize(
    ("node", "changes"),
    [
        pytest.param(FakeNode(), 2, id="in two passes"),
        pytest.param(FakeNode(["driver"]), 1, id="in one"),
        pytest.param(FakeNode(broken="driver"), 0, id="none"),
        pytest.param(FakeNode(broken="runtime"), 1, id="not all"),
    ],
)
def test_changes_are_counted_as_the_plan_shows_them(node: FakeNode, changes: int) -> None:
    fleet = FakeFleet({"n1": node})
    planned = len(plan_packages("n1", facts_of("n1", *node.packages)).items)
    result = apply(context(fleet), fleet)["n1"]
    assert result.changes == changes
    assert (result.changes == planned) is result.is_good


def test_a_plan_that_never_ends_is_given_up() -> None:
    fleet = FakeFleet({"n1": FakeNode()})
    wanted = iter(range(100))

    def plan_more(node: str, _facts: NodeFacts) -> NodePlan:
        return NodePlan(node=node, items=(item(f"package-{next(wanted)}"),))

    result = apply(context(fleet, plan_more), fleet)["n1"]
    assert (result.status, result.passes) == (Status.UNFINISHED, 3)


def test_check_mode_runs_the_roles_once_and_changes_nothing() -> None:
    fleet = FakeFleet({"n1": FakeNode()})
    result = apply(context(fleet, check=True), fleet)["n1"]
    assert (result.status, result.passes, result.changes) == (Status.CHECKED, 1, 1)
    assert fleet.nodes["n1"].packages == []
    assert len(fleet.runs) == 2


@pytest.mark.parametrize(
    ("holders", "status"),
    [
        pytest.param([], Status.CONVERGED, id="GPUs free"),
        pytest.param([{**HOLDER, "unit": "grapnel-node.service"}], Status.CONVERGED, id="held by the daemon alone"),
        pytest.param([HOLDER], Status.REFUSED, id="GPUs held"),
    ],
)
def test_work_on_gpus_is_never_ended(holders: list[dict[str, object]], status: Status) -> None:
    fleet = FakeFleet({"n1": FakeNode(holders=holders)})
    result = apply(context(fleet, plan_drain), fleet)["n1"]
    assert result.status is status
    if status is Status.REFUSED:
        assert result.failure is not None
        assert "train (7)" in result.failure.message
        assert fleet.applied() == []


def test_cancel_ends_the_running_node_and_begins_no_other() -> None:
    fleet = FakeFleet({name: FakeNode() for name in ("n1", "n2", "n3")})
    fleet.on_install = lambda _node, cancel: cancel.set()
    results = apply(context(fleet), fleet)
    assert [result.status for result in results.values()] == [Status.CANCELED] * 3
    assert fleet.applied() == ["n1"]
    assert results["n1"].failure is not None
    assert results["n1"].failure.task == "install driver"
    assert results["n3"].failure is not None
    assert results["n3"].failure.message == "not started"


def test_what_was_canceled_converges_when_it_is_applied_again() -> None:
    fleet = FakeFleet({name: FakeNode() for name in ("n1", "n2")})
    fleet.on_install = lambda _node, cancel: cancel.set()
    apply(context(fleet), fleet)
    fleet.on_install = lambda _node, _cancel: None
    assert {result.status for result in apply(context(fleet), fleet).values()} == {Status.CONVERGED}


def test_nodes_are_changed_at_the_same_time() -> None:
    fleet = FakeFleet({name: FakeNode(["driver"]) for name in ("n1", "n2", "n3")})
    together = threading.Barrier(3, timeout=20)

    def meet(_node: str, _cancel: threading.Event) -> None:
        together.wait()

    fleet.on_install = meet
    results = apply(context(fleet), fleet, parallel=3)
    assert {result.status for result in results.values()} == {Status.CONVERGED}


def test_progress_is_told_in_order_and_on_one_thread() -> None:
    fleet = FakeFleet({"n1": FakeNode(), "n2": FakeNode()})
    made, watcher, cancel = context(fleet), Watcher(), threading.Event()
    answers = assess(made, fleet.nodes, Watcher(), cancel)
    apply_all(made, answers, watcher, parallel=2, cancel=cancel)
    assert watcher.threads == {threading.current_thread().name}
    of_n1 = [one for one in watcher.seen if isinstance(one, PassStarted) and one.node == "n1"]
    assert of_n1 == [PassStarted("n1", 1, 1), PassStarted("n1", 2, 1)]
    assert {one.result.node for one in watcher.seen if isinstance(one, NodeFinished)} == {"n1", "n2"}


@pytest.mark.parametrize(
    ("status", "error"),
    [
        pytest.param(RunStatus.ERROR, RunError, id="ansible cannot run"),
        pytest.param(RunStatus.NO_NODES, RunError, id="no node matches"),
        pytest.param(RunStatus.CANCELED, CanceledError, id="canceled"),
    ],
)
def test_without_facts_nothing_goes_on(status: RunStatus, error: type[Exception]) -> None:
    fleet = FakeFleet({"n1": FakeNode()}, broken_run=status)
    with pytest.raises(error):
        apply(context(fleet), fleet)


def test_a_node_that_ansible_never_mentions_has_failed() -> None:
    fleet = FakeFleet({"n1": FakeNode(["driver", "runtime"])})
    answers = assess(context(fleet), ["n1", "gone"], Watcher(), threading.Event())
    results = apply_all(context(fleet), answers, Watcher(), parallel=1, cancel=threading.Event())
    assert [result.status for result in results] == [Status.UNCHANGED, Status.FAILED]
