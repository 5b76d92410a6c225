"""Status as JSON follows its contract."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest

from provision.cli.look.status import show_status
from tests.provision.cli.test_status import DONE, DRAINING, FAILED, SCHEMA, FakeReader, read, seen, show, without_width
from tests.provision.rollout.fakes import view
from tests.provision.rollout.status.test_derive import KILLED

if TYPE_CHECKING:
    from provision.rollout.status.model import Seen

__all__ = ["without_width"]  # a fixture


@pytest.mark.parametrize(
    "look", [DRAINING, seen(), seen(view("n1", FAILED), tenant=KILLED)], ids=["work", "none", "failed"]
)
def test_json_follows_its_schema(look: Seen, capsys: pytest.CaptureFixture[str]) -> None:
    show(look, as_json=True)
    document = json.loads(capsys.readouterr().out)

    jsonschema.validate(document, SCHEMA)
    assert [node["name"] for node in document["nodes"]] == list(look.nodes)
    assert {node["state"] for node in document["nodes"]} == set(document["states"])


def test_of_several_nodes_that_are_named_their_rows_alone_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        show_status(
            FakeReader([seen(view("n1", DONE), view("n2", FAILED), view("n3", DONE))]), ["n3", "n1"], as_json=False
        )
        == 0
    )
    told = read(capsys)
    assert "2 nodes: 2 done" in told
    assert "n2" not in told


def test_json_of_one_node_has_that_node(capsys: pytest.CaptureFixture[str]) -> None:
    show(DRAINING, node="n2", as_json=True)
    document = json.loads(capsys.readouterr().out)

    (node,) = document["nodes"]
    assert (node["name"], node["state"], node["phase"], node["leftSeconds"]) == ("n2", "drain", "drain", 99.0)
