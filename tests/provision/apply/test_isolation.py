"""Whatever one node answers, nothing of another node changes: not its plan, not its runs, not its result."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.apply.converge import assess
from provision.apply.fleet import apply_all
from provision.apply.runner import Event, RunRequest, TaskDone, TaskOutcome
from tests.provision.apply.fakes import FakeFleet, FakeNode, Watcher, context, plan_packages, raw_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from provision.apply.model import Assessment, Failure, NodeResult
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.node_plan import NodePlan

A, B = "a", "b"

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Draw what a node's module returns: facts with something wrong in them, other values, bytes of any kind."""
    facts = raw_facts(draw(st.sampled_from([A, B])), draw(st.lists(st.text(max_size=8), max_size=3)), [])
    spoiled = facts | draw(st.dictionaries(st.sampled_from(sorted(facts)), values, max_size=3))
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(st.binary(max_size=200))
    return json.dumps(draw(values) if kind == 1 else spoiled).encode()


@dataclass
class TwoNodes(FakeFleet):
    """The fleet with one node that returns a generated answer."""

    drawn: bytes = b""
    outcome: TaskOutcome = TaskOutcome.OK

    def _look(self, name: str, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        if name == A:
            yield TaskDone(A, "gather facts", self.outcome, values={"facts": self.drawn})
        else:
            yield from super()._look(name, request, cancel)


def breaking(bug: type[Exception] | None) -> Callable[[str, NodeFacts], NodePlan]:
    """Return the fleet's planner, which may break on what a says."""

    def plan(node: str, facts: NodeFacts) -> NodePlan:
        if node == A and bug is not None:
            raise bug
        return plan_packages(node, facts)

    return plan


def of_b(
    fleet: FakeFleet, bug: type[Exception] | None = None
) -> tuple[Assessment | Failure, NodeResult, list[RunRequest], list[str]]:
    """Return everything that happens about b when both are applied."""
    made, cancel = context(fleet, breaking(bug)), threading.Event()
    found = assess(made, fleet.nodes, Watcher(), cancel)
    results = {one.node: one for one in apply_all(made, found, Watcher(), parallel=2, cancel=cancel)}
    assert set(results) == {A, B}
    assert not cancel.is_set()
    return found[B], results[B], [one for one in fleet.requests if one.nodes == (B,)], fleet.nodes[B].packages


def nodes() -> dict[str, FakeNode]:
    return {A: FakeNode(), B: FakeNode()}


ALONE = of_b(FakeFleet(nodes()))


@pytest.mark.slow
@given(drawn=answers(), outcome=st.sampled_from(TaskOutcome), bug=st.sampled_from([None, TypeError, MemoryError]))
def test_nothing_that_a_node_answers_changes_another_node(
    drawn: bytes, outcome: TaskOutcome, bug: type[Exception] | None
) -> None:
    assert of_b(TwoNodes(nodes(), drawn=drawn, outcome=outcome), bug) == ALONE
