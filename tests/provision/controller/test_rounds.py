"""Which nodes of a round wait for their turn in a rollout, and which are told at once what becomes of them."""

from __future__ import annotations

import pytest

from provision.apply.model import Assessment
from provision.controller.rounds.apply import needs_rollout
from provision.planning.node_plan import Disruption, NodePlan, Problem
from provision.rollout.model import Phase
from tests.provision.apply.fakes import facts_of, item
from tests.provision.controller.samples import record, seen

DRAIN = item("libcuda1", disruption=Disruption.DRAIN)
QUIET = item("/etc/grapnel/node.json")
CURSED = Problem(code="cursed", message="the node is cursed", hint="lift the curse")


@pytest.mark.parametrize(
    ("plan", "is_rolling"),
    [
        pytest.param(NodePlan(node="n1", items=(QUIET,)), False, id="a change in place"),
        pytest.param(NodePlan(node="n1", items=(QUIET, DRAIN)), True, id="a change that drains"),
        pytest.param(NodePlan(node="n1", items=(DRAIN,), problems=(CURSED,)), False, id="one beside a problem"),
    ],
)
def test_a_node_waits_for_its_turn_only_where_its_plan_may_be_carried_out(plan: NodePlan, *, is_rolling: bool) -> None:
    assert needs_rollout(seen(), Assessment(facts_of("n1"), plan)) is is_rolling


def test_a_node_that_is_out_of_service_is_in_the_rollout_whatever_its_plan() -> None:
    refused = Assessment(facts_of("n1"), NodePlan(node="n1", problems=(CURSED,)))

    assert needs_rollout(seen(record=record(Phase.SWAP)), refused)
