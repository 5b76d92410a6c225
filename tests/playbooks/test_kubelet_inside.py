"""Kubelets that are part of a distribution: where each takes settings, read from recorded configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.kubelet.place import (
    read_cgroup_v1,
    read_kubelet,
    settings_files,
)

from tests.playbooks.fakes import Machine

if TYPE_CHECKING:
    from pathlib import Path

ASKED = "systemctl show --property LoadState,ActiveState,MainPID"
GONE = "LoadState=not-found\nActiveState=inactive\nMainPID=0\n"
RUNS = "LoadState=loaded\nActiveState=active\nMainPID=77\n"
# Files that installations have, shortened: config.yaml as docs.k3s.io and docs.rke2.io show it.
K3S = """\
write-kubeconfig-mode: "0644"
kubelet-arg:
  - "image-gc-high-threshold=70"
  - cpu-manager-policy=static   # for the models
kube-apiserver-arg: ["audit-log-path=/var/log/audit"]
# kubelet-arg: topology-manager-policy=none
"""
RKE2 = """\
server: https://10.0.0.1:9345
data-dir: /srv/rke2
kubelet-arg: "--reserved-cpus=0-1"
"""
# As `systemctl show` prints the units that `k0s install worker` and `k0s install controller` write.
K0S = (
    "ExecStart={ path=/usr/local/bin/k0s ; argv[]=/usr/local/bin/k0s worker --token-file=/etc/k0s/token "
    "--kubelet-extra-args=--config-dir=/etc/k0s/kubelet.conf.d --cpu-manager-policy=static ; ignore_errors=no ; "
    "start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }\n"
)
K0S_CONTROLLER = (
    "ExecStart={ path=/usr/local/bin/k0s ; argv[]=/usr/local/bin/k0s controller --data-dir=/srv/k0s "
    "--enable-worker=true --kubelet-extra-args --config-dir=/etc/k0s/kubelet.conf.d ; ignore_errors=no ; pid=77 }\n"
)
# microk8s' own lines, shortened (microk8s-resources/default-args/kubelet).
MICROK8S = """\
--kubeconfig=${SNAP_DATA}/credentials/kubelet.config
--root-dir=${SNAP_COMMON}/var/lib/kubelet
--eviction-hard="memory.available<100Mi,nodefs.available<1Gi,imagefs.available<1Gi"
--container-runtime-endpoint=${SNAP_COMMON}/run/containerd.sock
--read-only-port=0
"""
K3S_FOLDER = "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"


def node(tmp_path: Path, unit: str, **files: str) -> Machine:
    """Return a machine on which one service is, and no kubelet's own."""
    machine = Machine(tmp_path)
    machine.teach(ASKED, GONE)
    machine.teach("systemctl show --property ExecStart", files.pop("EXEC", "ExecStart=\n"))
    machine.teach(f"{ASKED} {unit}", RUNS)
    machine.write("/proc/77/cmdline", "/usr/local/bin/k3s\0agent\0")
    for path, text in files.items():
        machine.write(path, text)
    return machine


CASES: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "k3s 1.32 and later": (
        "k3s-agent.service",
        {f"{K3S_FOLDER}/00-k3s-defaults.conf": "kind: KubeletConfiguration\n", "/etc/rancher/k3s/config.yaml": K3S},
        {
            "distribution": "k3s",
            "unit": "k3s-agent.service",
            "config_dir": K3S_FOLDER,
            "flags": ["audit-log-path", "cpu-manager-policy", "image-gc-high-threshold"],
        },
    ),
    "k3s before 1.32": (
        "k3s.service",
        {"/etc/rancher/k3s/config.yaml": "token: x\n"},
        {"distribution": "k3s", "unit": "k3s.service", "config_dir": "", "flags": []},
    ),
    "RKE2 with data elsewhere, and flags in a file beside": (
        "rke2-server.service",
        {
            "/srv/rke2/agent/etc/kubelet.conf.d/00-rke2-defaults.conf": "kind: KubeletConfiguration\n",
            "/etc/rancher/rke2/config.yaml": RKE2,
            "/etc/rancher/rke2/config.yaml.d/90-site.yaml": 'kubelet-arg: ["kube-reserved=cpu=1"]\n',
        },
        {
            "distribution": "rke2",
            "unit": "rke2-server.service",
            "config_dir": "/srv/rke2/agent/etc/kubelet.conf.d",
            "flags": ["kube-reserved", "reserved-cpus"],
        },
    ),
    "k0s": (
        "k0sworker.service",
        {"/etc/k0s/containerd.toml": "# k0s_managed=true\n", "/var/lib/k0s/kubelet-config.yaml": "kind: x\n"},
        {"distribution": "k0s", "unit": "k0sworker.service", "config_dir": "", "root_dir": "/var/lib/k0s/kubelet"},
    ),
    "k0s that is told a folder": (
        "k0sworker.service",
        {"/var/lib/k0s/kubelet-config.yaml": "kind: KubeletConfiguration\n", "EXEC": K0S},
        {
            "distribution": "k0s",
            "config": "/var/lib/k0s/kubelet-config.yaml",
            "config_dir": "/etc/k0s/kubelet.conf.d",
            "root_dir": "/var/lib/k0s/kubelet",
            "flags": ["config-dir", "cpu-manager-policy", "token-file"],
        },
    ),
    "k0s with data elsewhere, on a controller": (
        "k0scontroller.service",
        {"EXEC": K0S_CONTROLLER, "/srv/k0s/kubelet-config.yaml": "kind: KubeletConfiguration\n"},
        {
            "unit": "k0scontroller.service",
            "config": "/srv/k0s/kubelet-config.yaml",
            "config_dir": "/etc/k0s/kubelet.conf.d",
            "root_dir": "/srv/k0s/kubelet",
        },
    ),
    "microk8s": (
        "snap.microk8s.daemon-kubelite.service",
        {"/var/snap/microk8s/current/args/kubelet": MICROK8S},
        {
            "distribution": "microk8s",
            "unit": "snap.microk8s.daemon-kubelite.service",
            "config": "",
            "config_dir": "",
            "root_dir": "/var/snap/microk8s/common/var/lib/kubelet",
            "flags": ["container-runtime-endpoint", "eviction-hard", "kubeconfig", "read-only-port", "root-dir"],
        },
    ),
    "microk8s that is told a folder": (
        "snap.microk8s.daemon-kubelite.service",
        {
            "/var/snap/microk8s/current/args/kubelet": MICROK8S
            + "--config-dir=${SNAP_COMMON}/kubelet.conf.d\n# --cpu-manager-policy=static\n"
        },
        {
            "config_dir": "/var/snap/microk8s/common/kubelet.conf.d",
            "root_dir": "/var/snap/microk8s/common/var/lib/kubelet",
        },
    ),
}


@pytest.mark.parametrize(("unit", "files", "expected"), CASES.values(), ids=CASES)
def test_a_kubelet_inside_another_program_is_found(
    unit: str, files: dict[str, str], expected: dict[str, Any], tmp_path: Path
) -> None:
    found = read_kubelet(node(tmp_path, unit, **files).host, "kubelet.service")

    assert found is not None
    assert {name: found[name] for name in expected} == expected
    assert found["active"] == "active"
    assert found["root_dir"] == expected.get("root_dir", "/var/lib/kubelet")
    assert found["config"] == expected.get("config", "")


def test_it_is_found_by_the_service_that_was_written_down(tmp_path: Path) -> None:
    machine = node(tmp_path, "k3s-agent.service", **{f"{K3S_FOLDER}/00-k3s-defaults.conf": "kind: x\n"})
    machine.write("/etc/grapnel/kubelet.json", '{"unit": "k3s-agent.service"}')
    machine.write(f"{K3S_FOLDER}/99-grapnel.conf", "{}")

    found = read_kubelet(machine.host, "")

    assert found is not None
    assert (found["distribution"], found["config_dir"]) == ("k3s", K3S_FOLDER)
    assert settings_files(machine.host, found) == [
        f"{K3S_FOLDER}/00-k3s-defaults.conf",
        f"{K3S_FOLDER}/99-grapnel.conf",
    ]


def test_a_service_of_the_kubelets_own_comes_first(tmp_path: Path) -> None:
    machine = node(tmp_path, "k3s.service")
    machine.teach(f"{ASKED} kubelet.service", RUNS)

    found = read_kubelet(machine.host, "kubelet.service")

    assert found is not None
    assert (found["distribution"], found["unit"]) == ("", "kubelet.service")


def test_a_node_with_neither_has_no_kubelet(tmp_path: Path) -> None:
    found = read_kubelet(node(tmp_path, "other.service").host, "kubelet.service")

    assert found is not None
    assert (found["distribution"], found["unit"], found["active"]) == ("", "kubelet.service", "inactive")


def test_k0s_is_understood_while_it_is_stopped_in_the_middle_of_a_change(tmp_path: Path) -> None:
    machine = node(tmp_path, "k0sworker.service", EXEC=K0S)
    machine.teach(f"{ASKED} k0sworker.service", RUNS.replace("active\n", "inactive\n").replace("77", "0"))
    machine.write("/etc/grapnel/kubelet.json", '{"unit": "k0sworker.service"}')
    machine.write("/var/lib/k0s/kubelet-config.yaml", "kind: KubeletConfiguration\n")
    machine.write("/etc/k0s/kubelet.conf.d/99-grapnel.conf", "{}")

    found = read_kubelet(machine.host, "")

    assert found is not None
    assert (found["active"], found["config_dir"]) == ("inactive", "/etc/k0s/kubelet.conf.d")
    assert settings_files(machine.host, found) == [
        "/var/lib/k0s/kubelet-config.yaml",
        "/etc/k0s/kubelet.conf.d/99-grapnel.conf",
    ]


V1 = "/sys/fs/cgroup/memory/tasks"
CONFIG = "/var/lib/kubelet/config.yaml"


def on_v1(tmp_path: Path, *flags: str, runs: bool = True, **files: str) -> Machine:
    """Return a machine with cgroup v1 and a kubelet of its own."""
    machine = Machine(tmp_path)
    machine.write(V1)
    machine.write("/usr/bin/kubelet", mode=0o755)
    machine.teach("/usr/bin/kubelet --version", "Kubernetes v1.35.2\n")
    machine.teach(f"{ASKED} kubelet.service", RUNS if runs else "LoadState=loaded\nActiveState=failed\nMainPID=0\n")
    machine.write("/proc/77/cmdline", "\0".join(["/usr/bin/kubelet", *flags]) + "\0")
    for path, text in files.items():
        machine.write(path, text)
    return machine


@pytest.mark.parametrize(
    ("flags", "files", "allowed"),
    [
        pytest.param([f"--config={CONFIG}"], {CONFIG: "maxPods: 110\n"}, False, id="it is not told"),
        pytest.param([f"--config={CONFIG}"], {CONFIG: "failCgroupV1: false\n"}, True, id="its file"),
        pytest.param([f"--config={CONFIG}"], {CONFIG: '{"failCgroupV1": false}'}, True, id="its file as JSON"),
        pytest.param([f"--config={CONFIG}"], {CONFIG: "# failCgroupV1: false\n"}, False, id="a remark"),
        pytest.param(
            [f"--config={CONFIG}", "--config-dir=/etc/k"],
            {CONFIG: "failCgroupV1: false\n", "/etc/k/20.conf": "failCgroupV1: true\n"},
            False,
            id="a file that is read later",
        ),
        pytest.param(
            ["--fail-cgroupv1=false"], {CONFIG: "failCgroupV1: true\n"}, True, id="a flag counts more than a file"
        ),
    ],
)
def test_a_kubelet_on_cgroup_v1_is_told_with_what_it_makes_of_it(
    tmp_path: Path, flags: list[str], files: dict[str, str], *, allowed: bool
) -> None:
    machine = on_v1(tmp_path, *flags, **files)
    assert read_cgroup_v1(machine.host, "") == {"kubelet": "1.35.2", "allowed": allowed}


def test_the_file_of_kubeadm_counts_for_a_kubelet_that_does_not_run(tmp_path: Path) -> None:
    machine = on_v1(tmp_path, runs=False, **{CONFIG: "failCgroupV1: false\n"})
    assert read_cgroup_v1(machine.host, "") == {"kubelet": "1.35.2", "allowed": True}


def test_where_there_is_no_cgroup_v1_or_no_kubelet_nothing_is_asked(tmp_path: Path) -> None:
    unified = on_v1(tmp_path / "unified")
    unified.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    assert read_cgroup_v1(unified.host, "") is None
    assert unified.calls == []

    bare = Machine(tmp_path / "bare")
    bare.write(V1)
    bare.teach(ASKED, GONE)
    assert read_cgroup_v1(bare.host, "") is None

    inside = node(tmp_path / "inside", "k3s.service")
    inside.write(V1)
    inside.write("/usr/local/bin/kubelet", mode=0o755)
    assert read_cgroup_v1(inside.host, "") is None
