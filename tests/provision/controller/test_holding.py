"""What is changed on nodes in place, and what is said of them meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from provision.apply.runner import RunFinished, RunRequest, RunStatus
from provision.controller.rounds.apply import HoldingRunner
from provision.rollout.errors import ClusterError
from provision.rollout.interface.instructions import Instructions
from tests.provision.apply.fakes import FakeFleet, FakeNode


def run(
    fleet: FakeFleet,
    playbook: str,
    withdrawn: list[str],
    refused: str = "",
    instructions: Instructions | None = None,
) -> RunFinished:
    def withdraw(node: str) -> None:
        if refused:
            raise ClusterError(refused)
        withdrawn.append(f"{node} after {len(fleet.runs)}")

    runner = HoldingRunner(fleet, instructions or Instructions(), withdraw)
    plan: dict[str, object] = {"items": []}
    variables = {"grapnel_plan": plan}
    request = RunRequest(playbook=Path(f"{playbook}.yml"), inventory=("n1,",), nodes=("n1",), extra_vars=variables)
    *_events, end = runner.run(request, threading.Event())
    assert isinstance(end, RunFinished)
    return end


def test_a_claim_is_withdrawn_before_a_plan_is_applied_and_by_nothing_else() -> None:
    fleet, withdrawn = FakeFleet({"n1": FakeNode()}), list[str]()
    run(fleet, "facts", withdrawn)
    assert withdrawn == []
    run(fleet, "apply", withdrawn)
    assert withdrawn == ["n1 after 1"]
    assert [name for name, _nodes in fleet.runs] == ["facts", "apply"]


def test_nothing_is_applied_where_a_claim_cannot_be_withdrawn() -> None:
    fleet = FakeFleet({"n1": FakeNode()})
    end = run(fleet, "apply", [], refused="may not patch nodes")
    assert (end.status, fleet.runs) == (RunStatus.ERROR, [])
    assert "may not patch nodes" in end.message


@pytest.mark.parametrize("playbook", ["apply", "stage", "facts", "release"])
def test_a_round_that_hands_over_begins_with_no_further_node_but_ends_what_is_begun(playbook: str) -> None:
    fleet, instructions = FakeFleet({"n1": FakeNode()}), Instructions(reason="the declaration has changed")
    instructions.hand_over.set()
    end = run(fleet, playbook, withdrawn := [], instructions=instructions)
    is_held = playbook in ("apply", "stage")
    assert (end.status is RunStatus.CANCELED, bool(fleet.runs)) == (is_held, not is_held)
    assert end.message == ("the declaration has changed" if is_held else "")
    assert not withdrawn


def test_a_node_that_is_called_off_is_not_changed_in_place() -> None:
    fleet, instructions = FakeFleet({"n1": FakeNode()}), Instructions(called_off={"n1": "it left the stack"})
    end = run(fleet, "apply", [], instructions=instructions)
    assert (end.status, end.message, fleet.runs) == (RunStatus.CANCELED, "it left the stack", [])
