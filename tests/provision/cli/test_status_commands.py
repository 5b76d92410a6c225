"""`grapnel status` offers commands that can be typed as they are: they find the same nodes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import jsonschema
import pytest

from provision.cli import main
from provision.cli.look.status import show_status
from provision.cluster import LocalCluster, state_file_path
from provision.declaration.fleet.sources import inventory_key
from provision.report.runs.remedies import Invocation
from provision.rollout.interface.pause import Pause
from provision.rollout.interface.standing import Members
from tests.provision.cli.test_status import DONE, FAILED, SCHEMA, FakeReader, read, seen
from tests.provision.rollout.fakes import view
from tests.provision.rollout.status.test_derive import standing

if TYPE_CHECKING:
    from pathlib import Path

ELSEWHERE = Invocation(("-f", "fleet.yaml", "-i", "my hosts.yaml"), "rack-7")


@pytest.mark.parametrize("node", [None, "n1"])
def test_what_is_offered_can_be_typed_as_it_is(node: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    """It offered `grapnel apply`, which read another inventory, and was for all nodes."""
    look = seen(view("n1", FAILED), tenant=None, pause=Pause(by="ada"))

    show_status(FakeReader([look]), [] if node is None else [node], as_json=False, invocation=ELSEWHERE)
    said = " ".join(read(capsys).split())
    assert "then `grapnel apply -f fleet.yaml -i 'my hosts.yaml' n1`" in said
    assert "or `grapnel rollback n1 -f fleet.yaml -i 'my hosts.yaml'`" in said
    assert "paused by ada; `grapnel resume -f fleet.yaml -i 'my hosts.yaml'` ends it" in said


def test_a_node_of_a_domain_is_not_applied_alone(capsys: pytest.CaptureFixture[str]) -> None:
    racks = replace(standing(out=()), domains=(Members("rack-7", ("n1", "n2")),))
    look = seen(view("n1", FAILED), view("n2", DONE), standing=racks)

    show_status(FakeReader([look]), ["n1"], as_json=False, invocation=ELSEWHERE)
    assert "rack-7`, or `grapnel rollback n1 -f" in " ".join(read(capsys).split())


def test_scripts_are_given_the_same_commands(capsys: pytest.CaptureFixture[str]) -> None:
    look = seen(view("n1", FAILED), view("n2", DONE))

    show_status(FakeReader([look]), as_json=True, invocation=ELSEWHERE)
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert [node["commands"] for node in document["nodes"]] == [
        [
            "grapnel apply -f fleet.yaml -i 'my hosts.yaml' n1",
            "grapnel rollback n1 -f fleet.yaml -i 'my hosts.yaml'",
        ],
        [],
    ]


def test_the_options_of_the_command_are_in_what_it_offers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("KUBECONFIG", "XDG_STATE_HOME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("grapnel.yaml").write_text(
        "apiVersion: grapnel.dev/v1alpha1\nkind: GpuStack\nspec:\n  driver: {version: '550.163.01'}\n"
    )
    tmp_path.joinpath("hosts.yaml").write_text("all: {hosts: {n1: {}, n2: {}}}\n")
    key = inventory_key([str(tmp_path / "hosts.yaml")], tmp_path)
    cluster = LocalCluster(state_file_path(key, {"HOME": str(tmp_path)}))
    cluster.observe(["n1"])
    cluster.write("n1", FAILED)

    assert main(["status", "-i", "hosts.yaml", "--no-cluster", "n1"]) == 1
    assert "`grapnel apply -i hosts.yaml --no-cluster n1`" in " ".join(read(capsys).split())
