"""`grapnel simulate` of an inventory against a real API server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from provision.cli import main
from tests.provision.cli.test_simulate_cluster import STACK

if TYPE_CHECKING:
    from pathlib import Path

    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional


def test_the_nodes_of_a_cluster_are_simulated_with_their_pods_and_nothing_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    first, second = stage.make_node(), stage.make_node()
    stage.make_pod(first)
    stage.kubectl("label", "node", second, "nvidia.com/gpu-driver-upgrade.skip=true")
    (tmp_path / "grapnel.yaml").write_text(STACK)
    hosts: dict[str, dict[str, str]] = {name: {} for name in (first, second, "elsewhere")}
    (tmp_path / "inventory.yaml").write_text(json.dumps({"all": {"hosts": hosts}}))
    before = stage.get("node", first)

    kubeconfig = str(stage.control_plane.kubeconfig)
    fleet = ["-i", "inventory.yaml", "--kubeconfig", kubeconfig]
    code = main(["simulate", *fleet, "--json", "--seeds", "1"])

    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert (code, document["stop"]) == (0, "")
    assert "not simulated: elsewhere is not a node of" in shown.err
    nodes = {node["name"]: node for node in document["nodes"]}
    assert {name: node["ending"] for name, node in nodes.items()} == {first: "done", second: None}
    assert nodes[second]["reason"] == f"is skipped: `grapnel skip --undo {second}` ends that"
    now = stage.get("node", first)
    assert (now["spec"], now["metadata"].get("annotations")) == (before["spec"], before["metadata"].get("annotations"))
