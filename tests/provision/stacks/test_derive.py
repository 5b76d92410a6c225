"""What the status of a stack says of its nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from provision.controller.stacks.derive import NodeIs, Observed, Stands, TenancyStands, status_of
from provision.controller.stacks.model import Unreadable
from provision.controller.stacks.status import MAX_TROUBLES, StackStatus
from tests.provision.stacks.samples import stack

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
FINE, CHANGING = Stands(NodeIs.AS_DECLARED), Stands(NodeIs.CHANGING)
LEFT = Stands(NodeIs.WAITING, "stopped: b failed in swap", is_left=True)
WAITING, FAILED = Stands(NodeIs.WAITING, "no window is open"), Stands(NodeIs.FAILED, "cannot install it")


def status(former: StackStatus | None = None, *, now: datetime = NOON, **nodes: Stands) -> StackStatus:
    return status_of(stack(), Observed(nodes=nodes), former or StackStatus(), now)


def conditions(found: StackStatus) -> dict[str, str]:
    return {each.type: each.status for each in found.conditions}


@pytest.mark.parametrize(
    ("nodes", "state", "message", "true"),
    [
        ({"a": FINE, "b": FINE}, "AsDeclared", "2 nodes as declared", {"Accepted", "AsDeclared"}),
        ({"a": FINE, "b": CHANGING}, "Changing", "1 of 2 nodes as declared, 1 node being", {"Accepted", "Progressing"}),
        ({"a": WAITING}, "Waiting", "0 of 1 node as declared, 1 node waiting: no win", {"Accepted", "Progressing"}),
        ({"a": FINE, "b": FAILED}, "Degraded", "1 of 2 nodes as declared, b failed: cannot", {"Accepted", "Degraded"}),
        (
            {"a": LEFT, "b": FAILED, "c": LEFT},
            "Degraded",
            "0 of 3 nodes as declared, b failed: cannot install it; 2 nodes waiting: stopped: b failed in swap",
            {"Accepted", "Degraded"},
        ),
        ({"a": LEFT}, "Waiting", "0 of 1 node as declared, 1 node waiting: stopped", {"Accepted", "Progressing"}),
        (
            {"a": LEFT, "b": FAILED, "c": WAITING},
            "Waiting",
            "0 of 3 nodes as declared, 2 nodes waiting: no window is open",
            {"Accepted", "Progressing", "Degraded"},
        ),
        ({"a": FAILED, "b": CHANGING}, "Changing", "0 of 2 nodes", {"Accepted", "Progressing", "Degraded"}),
        ({}, "Empty", "no Node has the labels", {"Accepted", "AsDeclared"}),
    ],
)
def test_the_worst_that_is_under_way_is_said(
    nodes: dict[str, Stands], state: str, message: str, true: set[str]
) -> None:
    found = status(**nodes)
    assert found.state == state
    assert found.message.startswith(message)
    assert {kind for kind, holds in conditions(found).items() if holds == "True"} == true
    assert found.progress == f"{sum(each is FINE for each in nodes.values())}/{len(nodes)}"
    assert found.driver == "550.163.01"


def test_a_condition_keeps_the_time_since_when_it_holds() -> None:
    first = status(a=CHANGING)
    again = status(first, now=NOON + timedelta(minutes=5), a=CHANGING)
    assert again == first
    done = status(again, now=NOON + timedelta(minutes=9), a=FINE)
    since = {each.type: each.last_transition_time for each in done.conditions}
    assert since == {
        "Accepted": "2026-05-04T12:00:00Z",
        "AsDeclared": "2026-05-04T12:09:00Z",
        "Progressing": "2026-05-04T12:09:00Z",
        "Degraded": "2026-05-04T12:00:00Z",
    }


def test_nodes_that_failed_are_named_first_and_not_all_of_a_thousand() -> None:
    many = {f"n{number:04}": WAITING for number in range(1000)}
    found = status(**many, z=FAILED)
    assert found.troubles[0].node == "z"
    assert len(found.troubles) == MAX_TROUBLES
    assert found.nodes.waiting == 1000


def test_a_node_that_another_stack_selects_is_named_with_it() -> None:
    found = status_of(stack(), Observed(disputed={"n1": ["other"]}), StackStatus(), NOON)
    assert (found.state, found.nodes.claimed_twice) == ("Degraded", 1)
    assert "other" in found.troubles[0].message


def test_a_stack_that_cannot_be_read_says_every_reason() -> None:
    broken = Unreadable(name="a", uid="u", generation=7, reasons=("spec.driver: x", "spec.mig: y"))
    found = status_of(broken, Observed(), StackStatus(), NOON)
    assert (found.state, found.message, found.observed_generation) == ("Refused", "spec.driver: x; spec.mig: y", 7)
    assert conditions(found)["Accepted"] == "False"


def test_a_deleted_stack_says_that_its_nodes_stay_as_they_are() -> None:
    found = status_of(stack(is_going=True), Observed(), StackStatus(), NOON)
    assert found.state == "Going"
    assert "stay as they are" in found.message


@pytest.mark.parametrize(
    ("tenancy", "state", "condition"),
    [
        (None, "AsDeclared", None),
        (TenancyStands(), "AsDeclared", "True"),
        (TenancyStands(is_known=False), "Changing", "False"),
        (TenancyStands(problems=("tenancy.kueue: no Kueue",)), "Degraded", "False"),
    ],
)
def test_tenants_are_a_condition_where_something_is_declared_of_them(
    tenancy: TenancyStands | None, state: str, condition: str | None
) -> None:
    found = status_of(stack(), Observed(nodes={"a": FINE}, tenancy=tenancy), StackStatus(), NOON)
    assert found.state == state
    assert conditions(found).get("TenancyAsDeclared") == condition
    if tenancy is not None and tenancy.problems:
        assert found.message == tenancy.problems[0]


@pytest.mark.parametrize(
    ("host", "condition"),
    [
        pytest.param(None, None, id="nobody knows where the controller runs"),
        pytest.param("", "True", id="elsewhere"),
        pytest.param("a", "False", id="beside the containers of a node"),
    ],
)
def test_a_stack_says_whether_the_controller_runs_on_one_of_its_nodes(host: str | None, condition: str | None) -> None:
    found = status_of(stack(), Observed(nodes={"a": FINE}, host=host), StackStatus(), NOON)
    assert conditions(found).get("ControllerApart") == condition
    assert found.state == "AsDeclared", "nothing is wrong with the nodes"
    message = next((each.message for each in found.conditions if each.type == "ControllerApart"), "")
    assert message.startswith("the controller runs on a, so that root of this node has every node" if host else "")


def test_a_long_reason_is_whole_where_it_is_about_and_short_where_it_is_repeated() -> None:
    reason = f"failed in swap; {'x' * 600}"
    nodes = {"n1": Stands(NodeIs.FAILED, reason), "n2": Stands(NodeIs.WAITING, f"stopped: n1 {reason}", is_left=True)}
    found = status_of(stack(), Observed(nodes=nodes), StackStatus(), NOON)
    assert found.troubles[0].message == reason
    assert len(found.troubles[1].message) < 210
    assert len(found.message) < 500
