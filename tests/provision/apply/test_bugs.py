"""An exception about one node is that node's failure: the others go on, and the table has a row for each."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

from provision.apply.converge import assess
from provision.apply.errors import CanceledError
from provision.apply.fleet import apply_all
from provision.apply.model import Failure, NodeResult, Status
from provision.base.errors import GrapnelError
from provision.cli.debug import show_bugs
from tests.provision.apply.fakes import FakeFleet, FakeNode, Watcher, context, plan_packages

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.node_plan import NodePlan

NAMES = ("n1", "n2", "n3")
BUGS = [TypeError, RecursionError, MemoryError, ZeroDivisionError]


def nodes() -> FakeFleet:
    return FakeFleet({name: FakeNode() for name in NAMES})


def raise_for_n2(error: Exception, *, packages: int = 0) -> Callable[[str, NodeFacts], NodePlan]:
    """Return a planner that breaks on n2 as soon as that node has this many packages."""

    def plan(node: str, facts: NodeFacts) -> NodePlan:
        if node == "n2" and len(facts.packages) >= packages:
            raise error
        return plan_packages(node, facts)

    return plan


def apply(fleet: FakeFleet, plan: Callable[[str, NodeFacts], NodePlan]) -> dict[str, NodeResult]:
    made, cancel = context(fleet, plan), threading.Event()
    answers = assess(made, fleet.nodes, Watcher(), cancel)
    results = apply_all(made, answers, Watcher(), parallel=3, cancel=cancel)
    assert not cancel.is_set()
    return {result.node: result for result in results}


def statuses(results: dict[str, NodeResult]) -> list[Status]:
    assert tuple(results) == NAMES
    return [result.status for result in results.values()]


@pytest.mark.parametrize("bug", BUGS)
def test_a_node_that_cannot_be_planned_for_fails_alone(bug: type[Exception]) -> None:
    results = apply(nodes(), raise_for_n2(bug("unhashable\n\x1b[2Jtype")))
    assert statuses(results) == [Status.CONVERGED, Status.FAILED, Status.CONVERGED]
    failure = results["n2"].failure
    assert failure is not None
    reason = r"unhashable\n\x1b[2Jtype"
    assert failure.message.startswith(f"a bug while planning n2: {bug.__name__}: {reason}")
    assert failure.message.endswith(": run it again with --debug and report what it prints")
    assert "Traceback" not in failure.message


@pytest.mark.parametrize("bug", BUGS)
def test_a_node_that_cannot_be_planned_for_any_more_fails_with_what_was_done(bug: type[Exception]) -> None:
    fleet = nodes()
    results = apply(fleet, raise_for_n2(bug(), packages=1))
    assert statuses(results) == [Status.CONVERGED, Status.FAILED, Status.CONVERGED]
    assert (results["n2"].passes, results["n2"].changes) == (1, 1)
    assert fleet.nodes["n2"].packages == ["driver"]


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_the_middle_of_a_run_fails_its_node_alone(bug: type[Exception]) -> None:
    fleet = nodes()

    def crash(node: str, _cancel: threading.Event) -> None:
        if node == "n2":
            raise bug

    fleet.on_install = crash
    results = apply(fleet, plan_packages)
    assert statuses(results) == [Status.CONVERGED, Status.FAILED, Status.CONVERGED]
    assert results["n2"].passes == 1


def test_debug_shows_the_traceback_of_a_bug_that_spoiled_one_node(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("provision")
    former = (log.handlers, log.level, log.propagate)
    show_bugs()
    try:
        apply(nodes(), raise_for_n2(TypeError("\x1b[2J")))
    finally:
        log.handlers, log.level, log.propagate = former
    shown = capsys.readouterr().err
    assert "a bug while planning n2\nTraceback (most recent call last):\n" in shown
    assert shown.endswith("TypeError: \\x1b[2J\n")


def test_what_is_expected_to_go_wrong_is_told_with_identity() -> None:
    failure = apply(nodes(), raise_for_n2(GrapnelError("it is too large")))["n2"].failure
    assert failure == Failure(Status.FAILED, "it is too large")


def test_an_interrupt_while_nodes_are_planned_ends_the_look() -> None:
    with pytest.raises(CanceledError):
        apply(nodes(), raise_for_n2(CanceledError("canceled")))


def test_an_interrupt_while_a_node_is_planned_again_is_no_failure() -> None:
    results = apply(nodes(), raise_for_n2(CanceledError("canceled"), packages=1))
    assert statuses(results) == [Status.CONVERGED, Status.CANCELED, Status.CONVERGED]


def test_a_bug_of_whoever_looks_on_ends_the_apply() -> None:
    fleet, cancel = nodes(), threading.Event()
    answers = assess(context(fleet), fleet.nodes, Watcher(), cancel)

    def crash(_progress: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        apply_all(context(fleet), answers, crash, parallel=3, cancel=cancel)
    assert cancel.is_set()
