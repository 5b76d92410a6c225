"""`grapnel drift` on a fleet in memory."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import jsonschema
import pytest

from provision.cli.look.drift import apply_command, show_drift
from provision.cli.parsers.arguments import ARGUMENTS
from tests.provision.apply.fakes import WANTED, FakeFleet, FakeNode, context

SCHEMA = Path(__file__).parents[3] / "docs" / "contracts" / "drift" / "schema.json"
GOOD = FakeNode([*WANTED])


@pytest.mark.parametrize(
    ("nodes", "code"),
    [
        pytest.param([GOOD], 0, id="nothing differs"),
        pytest.param([GOOD, FakeNode(["driver"])], 3, id="a package is missing"),
        pytest.param([GOOD, FakeNode(["curse"])], 1, id="a plan with problems"),
        pytest.param([FakeNode(["driver"]), FakeNode(reachable=False)], 1, id="a node that nobody could look at"),
    ],
)
def test_exit_code(nodes: list[FakeNode], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = FakeFleet({f"n{number}": node for number, node in enumerate(nodes)})

    assert show_drift(context(fleet), list(fleet.nodes), ("grapnel", "apply"), as_json=True) == code
    assert fleet.applied() == []
    assert fleet.requests[0].extra_vars["grapnel_traces"] is True
    jsonschema.validate(json.loads(capsys.readouterr().out), json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param([], "grapnel apply", id="the default declaration"),
        pytest.param(["-f", "a.yaml"], "grapnel apply -f a.yaml", id="another declaration"),
        pytest.param(["-i", "a", "-i", "b"], "grapnel apply -i a -i b", id="inventories"),
        pytest.param(["--payload", "p", "--bundle", "b"], "grapnel apply --payload p --bundle b", id="archives"),
        pytest.param(["n1", "--json"], "grapnel apply", id="nodes are named by the report"),
    ],
)
def test_what_mends_sees_the_same_fleet(arguments: list[str], expected: str) -> None:
    parser = argparse.ArgumentParser()
    ARGUMENTS["drift"](parser)

    arguments_read = parser.parse_args(arguments)

    assert arguments_read.force  # an edited file is compared instead of refused
    assert " ".join(apply_command(arguments_read)) == expected
