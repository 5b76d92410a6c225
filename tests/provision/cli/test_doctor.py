"""`grapnel doctor` on a fleet in memory."""

from __future__ import annotations

import json

import pytest

from provision.apply.model import Assessment
from provision.cli.foresee.doctor import examine, show_findings
from provision.declaration.fleet.facts.node import LockHolder
from provision.planning.driver.preflight import Severity
from provision.planning.node_plan import NodePlan, Problem
from tests.provision.apply.fakes import FakeFleet, FakeNode, context
from tests.provision.samples import edit_package_manager, make_facts, make_stack

STACK = make_stack()


@pytest.mark.parametrize(
    ("node", "code"),
    [
        pytest.param(FakeNode(), 0, id="changes, and nothing in their way"),
        pytest.param(FakeNode(["curse"]), 1, id="a plan with problems"),
        pytest.param(FakeNode(reachable=False), 1, id="a node that nobody could look at"),
    ],
)
def test_exit_code(node: FakeNode, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = FakeFleet({"n1": node})

    assert show_findings(context(fleet), {"n1": STACK}, as_json=True) == code
    assert fleet.applied() == []
    assert json.loads(capsys.readouterr().out)["nodes"] == ["n1"]


def test_problems_of_the_plan_are_findings_too(capsys: pytest.CaptureFixture[str]) -> None:
    show_findings(context(FakeFleet({"n1": FakeNode(["curse"])})), {"n1": STACK}, as_json=False)

    assert "error: cursed  1 node" in capsys.readouterr().out


def test_what_planning_finds_as_well_is_told_once() -> None:
    facts = edit_package_manager(make_facts(), locked_by=LockHolder(pid=7, command="apt-get"))
    locked = Problem(code="package-manager-locked", message="apt on n1 is in use by apt-get (pid 7)", hint="wait")
    odd = Problem(code="odd", message="odd", hint="look")

    found = examine(Assessment(facts, NodePlan(node="n1", problems=(locked,), warnings=(odd,))), STACK)

    assert [(one.code, one.severity) for one in found] == [
        ("package-manager-locked", Severity.ERROR),
        ("odd", Severity.WARNING),
    ]
