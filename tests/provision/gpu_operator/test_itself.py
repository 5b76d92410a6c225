"""`grapnel init --from-gpu-operator`: of files and of a real API server; what it writes is applied, and followed."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from provision.base.errors import ExitCode
from provision.cli import main
from provision.planning.gpu_operator.convert import LABEL
from tests.provision.cluster.stage import wait_until
from tests.provision.controller.fleet import World
from tests.provision.gpu_operator.samples import config_map, driver, policy
from tests.provision.gpu_operator.test_convert import LAYOUTS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.provision.cluster.stage import Stage


def crd(plural: str, kind: str, version: str) -> dict[str, Any]:
    """Return a definition of a kind of the operator, as open as can be."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    versions = [{"name": version, "served": True, "storage": True, "schema": schema}]
    spec = {"group": "nvidia.com", "scope": "Cluster", "names": names, "versions": versions}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.nvidia.com"},
        "spec": spec,
    }


def write(path: Path, *objects: dict[str, Any]) -> str:
    path.write_text("\n---\n".join(json.dumps(each) for each in objects))
    return str(path)


def test_a_file_is_written_and_every_key_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, file = write(tmp_path / "policy.yaml", policy(gds={"enabled": True})), tmp_path / "stack.yaml"
    assert main(["init", "-f", str(file), "--from-gpu-operator", source]) == ExitCode.DONE
    said = " ".join(capsys.readouterr().out.split())
    assert 'spec.driver.version ("550.163.01") → driver.version' in said
    assert "spec.gds.enabled (true) grapnel does not install nvidia-fs" in said
    assert main(["check", "-f", str(file)]) == ExitCode.DONE
    assert main(["init", "-f", str(file), "--from-gpu-operator", source]) == ExitCode.FAILED
    assert "already exists" in capsys.readouterr().err
    assert main(["init", "-f", str(file), "--force", "--json", "--from-gpu-operator", source]) == ExitCode.DONE
    document = json.loads(capsys.readouterr().out)
    verdicts = {(key["source"], key["path"]): key["verdict"] for key in document["keys"]}
    assert verdicts["ClusterPolicy cluster-policy", "spec.driver.image"] == "grapnel's own"
    assert verdicts["ClusterPolicy cluster-policy", "spec.driver.rdma.enabled"] == "asks for nothing"


def test_several_drivers_are_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = (policy(driver__useNvidiaDriverCRD=True), driver("a100", nodeSelector={"gpu": "a100"}), driver("h100"))
    text = "\n---\n".join(json.dumps(each) for each in objects).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["init", "-f", str(tmp_path / "stack.yaml"), "--from-gpu-operator", "-"]) == ExitCode.DONE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stack-a100.yaml", "stack-h100.yaml"]
    capsys.readouterr()


def test_a_file_that_is_not_complete_is_written_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, file = write(tmp_path / "policy.yaml", policy(driver__version="")), tmp_path / "stack.yaml"
    assert main(["init", "-f", str(file), "--from-gpu-operator", source]) == ExitCode.FAILED
    assert "spec.driver.version" in capsys.readouterr().err
    assert file.exists()


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--from-gpu-operator", "x", "a"], id="beside an inventory"),
        pytest.param(["--kubeconfig", "x"], id="a cluster without the operator"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(words: list[str], tmp_path: Path) -> None:
    assert main(["init", "-f", str(tmp_path / "stack.yaml"), *words]) == ExitCode.USAGE


@pytest.mark.functional
@pytest.mark.timeout(240)
def test_a_node_goes_over_from_the_operator(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    kubeconfig = ["--kubeconfig", str(stage.control_plane.kubeconfig)]
    file = tmp_path / "stack.yaml"
    assert main(["init", "-f", str(file), "--from-gpu-operator", "cluster", *kubeconfig]) == ExitCode.FAILED
    assert "has no ClusterPolicy" in capsys.readouterr().err
    for definition in (
        crd("clusterpolicies", "ClusterPolicy", "v1"),
        crd("nvidiadrivers", "NVIDIADriver", "v1alpha1"),
    ):
        stage.kubectl("apply", "-f", "-", data=definition)
        stage.wait_established("crd", definition["metadata"]["name"])
    stage.kubectl("create", "namespace", "gpus")
    told = policy(migManager__config={"name": "layouts", "default": "all-disabled"})
    stage.kubectl("create", "-f", "-", data={**told, "status": {"namespace": "gpus"}})
    stage.kubectl("create", "-n", "gpus", "-f", "-", data=config_map("layouts", config__yaml=LAYOUTS))
    assert main(["init", "-f", str(file), "--from-gpu-operator", "cluster", *kubeconfig]) == ExitCode.DONE
    assert "mig.config" in capsys.readouterr().out, "the ConfigMap was found where the operator is"

    world = World(stage, "operated")
    node = world.join()
    stage.kubectl("apply", "--validate=strict", "-f", str(file))
    try:
        with world.controller():
            world.wait_for("Empty", "cluster-policy")
            assert main(["plan", *kubeconfig]) == ExitCode.DONE
            assert not world.machines.runs, "the node is the operator's"
            stage.kubectl("label", "node", node, f"{LABEL}=cluster-policy")
            world.wait_for("AsDeclared", "cluster-policy")
            wait_until(lambda: world.is_marked(node), "the node has gone over")
    finally:
        stage.kubectl("delete", "gpustacks", "--all")
