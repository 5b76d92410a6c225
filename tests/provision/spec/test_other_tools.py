"""Files of other tools where a declaration was expected: each is recognized, and a declaration never is."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from provision.base.errors import ExitCode
from provision.cli import main
from provision.declaration.spec.errors import DeclarationError
from provision.declaration.spec.load import read_file
from provision.declaration.spec.other_tools import recognize

CONTRACTS = Path(__file__).parents[3] / "docs/contracts/gpustack"
NEW = "gpu-nodes.yaml"
FROM_OPERATOR = "grapnel init --from-gpu-operator"

# Restated from what the tools publish: gpu-operator's deployments/gpu-operator/values.yaml, mig-parted's
# examples/config.yaml, kubespray's inventory/sample, DeepOps' config.example/inventory, gres.conf(5).
POLICY = """
apiVersion: v1
kind: List
items:
  - apiVersion: nvidia.com/v1
    kind: ClusterPolicy
    metadata: {name: cluster-policy}
    spec: {driver: {enabled: true}}
"""
DRIVER = """
apiVersion: nvidia.com/v1alpha1
kind: NVIDIADriver
metadata: {name: a100}
spec:
  nodeSelector: {nvidia.com/gpu.product: A100}
  version: "580.95.05"
"""
VALUES = """
nfd:
  enabled: true
operator:
  defaultRuntime: containerd
driver:
  version: 580.95.05
"""
MIG = """
version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
"""
KUBESPRAY = """
# ## Configure 'ip' variable to bind kubernetes services on
[all]
node1 ansible_host=192.0.2.12

[kube-node]
node1
"""
DEEPOPS = """
######
# ALL NODES
######
[all]
#gpu01      ansible_host=192.0.2.1
"""
KUBESPRAY_YAML = """
all:
  hosts:
    node1: {ansible_host: 192.0.2.12}
  children:
    kube_control_plane: {hosts: {node1: }}
    kube_node: {hosts: {node1: }}
"""
KUBESPRAY_VARIABLES = """
---
kube_config_dir: /etc/kubernetes
kube_network_plugin: calico
kube_service_addresses: 10.233.0.0/18
container_manager: containerd
"""
DEEPOPS_SLURM = """
[slurm-master]
#login01

[slurm-node]
#gpu01
"""
DEEPOPS_VARIABLES = """
ansible_become: true
container_manager: containerd
deepops_gpu_operator_enabled: false
"""
SLURM_VARIABLES = """
slurm_version: 20.11.3
slurm_manage_gpus: true
"""
AS_JSON = """{
    "apiVersion": "nvidia.com/v1",
    "kind": "ClusterPolicy",
    "spec": {"driver": {"enabled": true}}
}
"""
KYVERNO = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
spec:
  rules: [{name: limit, validate: {message: no nvidia.com/gpu}}]
"""
HOSTS = "gpu01 ansible_host=192.0.2.1 ansible_user=root\n"
YAML_INVENTORY = """
gpu_nodes:
  # the first rack
  hosts:
    gpu01: {}
"""
GRES = """
# GPUs
NodeName=tux[0-15] Name=gpu Type=a100 File=/dev/nvidia[0-3]
"""


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        pytest.param(
            POLICY, "the ClusterPolicy of NVIDIA's GPU operator", f"{FROM_OPERATOR} FILE", id="a ClusterPolicy"
        ),
        pytest.param(
            DRIVER, "the NVIDIADriver of NVIDIA's GPU operator", f"{FROM_OPERATOR} FILE", id="an NVIDIADriver"
        ),
        pytest.param(
            VALUES, "the values of the GPU operator's chart", f"{FROM_OPERATOR} cluster", id="values of its chart"
        ),
        pytest.param(MIG, "a configuration of NVIDIA's mig-parted", "`spec.mig.configFile`", id="mig-parted"),
        pytest.param(
            AS_JSON, "the ClusterPolicy of NVIDIA's GPU operator", f"{FROM_OPERATOR} FILE", id="a ClusterPolicy in JSON"
        ),
        pytest.param(KUBESPRAY, "an inventory of kubespray", "--inventory FILE", id="kubespray"),
        pytest.param(KUBESPRAY_YAML, "an inventory of kubespray", "grapnel init -i FILE", id="kubespray in YAML"),
        pytest.param(
            KUBESPRAY_VARIABLES, "variables of kubespray", f"grapnel init -f {NEW}", id="kubespray's group_vars"
        ),
        pytest.param(DEEPOPS_SLURM, "an inventory of DeepOps", "--inventory FILE", id="DeepOps with Slurm"),
        pytest.param(DEEPOPS_VARIABLES, "variables of DeepOps", f"grapnel init -f {NEW}", id="DeepOps' group_vars"),
        pytest.param(SLURM_VARIABLES, "variables of DeepOps", f"grapnel init -f {NEW}", id="its group_vars for Slurm"),
        pytest.param(DEEPOPS, "an inventory of Ansible", "--inventory FILE", id="DeepOps"),
        pytest.param(HOSTS, "an inventory of Ansible", "--inventory FILE", id="hosts without a group"),
        pytest.param(YAML_INVENTORY, "an inventory of Ansible", "grapnel init -i FILE", id="an inventory in YAML"),
        pytest.param(GRES, "a gres.conf of Slurm", "spec.scheduler.kind: slurm", id="gres.conf"),
        pytest.param(
            "AutoDetect=nvml\n", "a gres.conf of Slurm", "spec.scheduler.kind: slurm", id="gres.conf that detects"
        ),
    ],
)
def test_what_another_tool_reads_is_named_with_the_way_on(text: str, what: str, remedy: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(DeclarationError) as error:
        read_file(path)
    assert error.value.message == f"{path} is {what}, not a declaration"
    assert remedy in error.value.hint.replace(str(path), "FILE")


def test_a_policy_of_another_product_is_none_of_the_operators() -> None:
    assert recognize(KYVERNO, "policy.yaml") is None


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("policy.yaml", f"`{FROM_OPERATOR} policy.yaml`"),
        ("grapnel.yaml", f"`{FROM_OPERATOR} grapnel.yaml -f {NEW}`"),
        ("my policy.yaml", f"`{FROM_OPERATOR} 'my policy.yaml'`"),
    ],
    ids=["a name of its own", "the name of a declaration, which would be in the way", "a name with a space"],
)
def test_the_command_can_be_typed_as_it_is_printed(
    name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was saved as grapnel.yaml was said to exist already."""
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(POLICY.replace("enabled: true", "enabled: true, version: 580.95.05"))
    with pytest.raises(DeclarationError) as error:
        read_file(Path(name))
    assert command in error.value.hint
    typed = shlex.split(command.strip("`"))
    assert main(typed[1:]) == ExitCode.DONE
    assert read_file(Path(typed[-1] if typed[-1] == NEW else "grapnel.yaml"))


@pytest.mark.parametrize("path", [*CONTRACTS.glob("*/*.yaml")], ids=lambda path: path.stem)
def test_a_declaration_is_none_whatever_is_wrong_with_it(path: Path) -> None:
    assert recognize(path.read_text(errors="replace"), str(path)) is None
