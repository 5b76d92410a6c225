"""`grapnel reboot`: what a person types and reads."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from provision.base.errors import GrapnelError, UsageError
from provision.cli import main
from provision.cli.change.reboot import parse_moment, reboot_nodes, show_plan
from provision.rollout.interface.pause import Pause
from provision.rollout.model import Phase
from tests.provision.apply.fakes import context, scope_of
from tests.provision.rollout.fakes import OLD, record
from tests.provision.rollout.reboots import Machines

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def reboot(machines: Machines, *, consent: bool = True, **asked: object) -> int:
    scope = scope_of(machines.cluster, driver={"version": OLD})
    return reboot_nodes(context(machines), scope, machines.request(**asked), consent=consent)  # type: ignore[arg-type] # a runner too


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_the_result_says_that_nodes_were_rebooted(capsys: pytest.CaptureFixture[str]) -> None:
    machines = Machines.of("n1", "n2")

    assert reboot(machines) == 0

    output = said(capsys)
    assert "1. n1 535.261.03 evicts shop/n1-a" in output
    assert "2 nodes: 2 rebooted" in output


def test_nodes_that_need_it_are_told_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    machines = Machines.of("n1", "n2")
    machines.machines["n2"].is_needed = True

    assert reboot(machines, only_needed=True) == 0

    assert "n2 needs a reboot: /run/reboot-required is there" in said(capsys)
    assert [machine.boots for machine in machines.machines.values()] == [1, 2]


@pytest.mark.parametrize(("answer", "boots"), [("y\n", 2), ("n\n", 1), ("", 1)])
def test_nobody_is_rebooted_without_consent(
    answer: str, boots: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    machines = Machines.of("n1")

    code = reboot(machines, consent=False)

    captured = capsys.readouterr()
    assert machines.machines["n1"].boots == boots
    assert code == (0 if boots > 1 else 1)
    assert "reboot 1 node, taking it out of service for a while? [y/N]" in captured.err


def test_a_plan_changes_nothing_and_is_told_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    machines = Machines.of("n1", "n2")
    machines.machines["n1"].is_needed = True
    scope = scope_of(machines.cluster, driver={"version": OLD})

    assert show_plan(context(machines), scope, machines.request(only_needed=True), as_json=True) == 0  # type: ignore[arg-type] # a runner too

    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "grapnel.dev/reboot-plan/v1alpha1"
    assert document["needs"] == {"n1": ["/run/reboot-required is there"]}
    assert [node["node"] for node in document["rollout"]["nodes"]] == ["n1"]
    assert document["left"] == [{"node": "n2", "result": "unchanged", "reason": None}]
    assert machines.cluster.writes == []


def test_a_pause_holds_it_up() -> None:
    machines = Machines.of("n1")
    machines.cluster.pause = Pause(by="ada@laptop")

    with pytest.raises(GrapnelError, match="upgrades are paused by ada@laptop"):
        reboot(machines)
    assert machines.machines["n1"].boots == 1


def test_a_driver_change_that_is_under_way_comes_first() -> None:
    machines = Machines.of("n1", "n2")
    machines.cluster.nodes["n2"].record = record(Phase.VERIFY)

    with pytest.raises(GrapnelError, match="n2 is out of service for its driver, in verify"):
        reboot(machines)
    assert machines.machines["n1"].boots == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(["reboot"], "hint: grapnel reboot NODE..., or grapnel reboot --needed", id="of nothing"),
        pytest.param(["reboot", "n1"], "hint: add --yes", id="without a terminal"),
        pytest.param(["reboot", "n1", "--yes", ""], "unrecognized arguments", id="of a variable that is not set"),
        pytest.param(
            ["reboot", "n1", "--yes", "--since", "noon"],
            "--since noon: not a moment with its zone",
            id="since a moment that is none",
        ),
    ],
)
def test_what_is_not_said_is_asked_for(
    words: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    assert main(words) == 2
    assert told in capsys.readouterr().err


def test_a_moment_has_a_zone() -> None:
    assert parse_moment("2026-11-23T14:00:00Z") == datetime(2026, 11, 23, 14, tzinfo=UTC)
    with pytest.raises(UsageError):
        parse_moment("2026-11-23T14:00:00")


def test_a_node_that_was_killed_half_way_is_finished_although_there_is_a_pause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    machines = Machines.of("n1", "n2")
    node = machines.cluster.nodes["n1"]
    plan = machines.plan("n1")
    node.record = replace(record(Phase.DRAIN, target=OLD, origin=OLD), kind=plan.prepared.states[0].kind)
    node.record = replace(node.record, boot=plan.prepared.states[0].boot)
    node.is_cordoned = True
    machines.cluster.pause = Pause(by="ada@laptop")

    assert reboot(machines) == 1, "n2 waits"

    assert [machine.boots for machine in machines.machines.values()] == [2, 1]
    assert "paused by ada@laptop" in said(capsys)
