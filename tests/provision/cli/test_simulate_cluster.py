"""`grapnel simulate` of an inventory: the nodes that the state file has; `test_simulate_itself` has a cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from provision.cli import main
from provision.cluster import LocalCluster, state_file_path
from provision.declaration.fleet.sources import inventory_key
from provision.rollout.model import Phase
from provision.rollout.simulate.observed import measured
from tests.provision.rollout.fakes import record

if TYPE_CHECKING:
    from pathlib import Path

TOOK = dict.fromkeys((Phase.CORDON, Phase.DRAIN, Phase.RELEASE, Phase.VERIFY, Phase.RESUME), 10.0) | {Phase.SWAP: 77.0}
STACK = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
metadata: {name: fleet}
spec:
  driver: {source: distribution, version: 550.163.01}
  rollout: {drainTimeoutMinutes: 5}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_STATE_HOME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "grapnel.yaml").write_text(STACK)
    return tmp_path


def inventory(home: Path, *names: str) -> Path:
    path = home / "inventory.yaml"
    path.write_text(json.dumps({"all": {"hosts": {name: {} for name in names}}}))
    return path


def simulated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = main(["simulate", "-i", "inventory.yaml", "--json", "--seeds", "1", *words])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    found: dict[str, Any] = json.loads(shown.out)
    return found


def test_machines_without_a_cluster_are_simulated_with_what_they_measured(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = inventory_key([str(inventory(home, "n1", "n2", "n3"))], home)
    cluster = LocalCluster(state_file_path(key, {"HOME": str(home)}))
    with cluster.lease("ada"):
        cluster.observe(["n1", "n2", "n3"])
        cluster.write("n1", record(Phase.DONE, target="550.163.01", took=TOOK))
        cluster.write("n2", record(Phase.FAILED, failed_in=Phase.VERIFY), cordoned=True)

    nodes = {node["name"]: node for node in simulated(capsys)["nodes"]}

    assert {name: node["ending"] for name, node in nodes.items()} == {"n1": None, "n2": "done", "n3": "done"}
    assert nodes["n3"]["backSeconds"] - nodes["n3"]["outSeconds"] >= TOOK[Phase.SWAP]


def test_a_node_that_tells_a_thousand_years_does_not_set_the_time() -> None:
    records = [record(Phase.DONE, took={Phase.SWAP: seconds}) for seconds in (60.0, 70.0, 80.0, 3e10)]
    assert measured(records)[Phase.SWAP].measured == (60.0, 70.0, 80.0)
