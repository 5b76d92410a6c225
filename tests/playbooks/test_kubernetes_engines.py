"""The containerd of k3s, RKE2, k0s and microk8s: found by what runs, asked through its own client and socket."""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.engines.found import containerd_flaw, containerd_silence
from ansible_collections.grapnel.node.plugins.module_utils.engines.of_kubernetes import (
    client_of,
    files_of,
    read_distributions,
    read_kubelet_engine,
)
from ansible_collections.grapnel.node.plugins.module_utils.files.configuration import (
    ConfigurationError,
    Service,
    apply_changes,
)
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileText, find_changes
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import is_restart_due

from tests.playbooks.fakes import Machine, Systemd

if TYPE_CHECKING:
    from collections.abc import Iterator


K3S, RKE2 = "/var/lib/rancher/k3s/agent/etc/containerd", "/var/lib/rancher/rke2/agent/etc/containerd"


def start(machine: Machine, pid: int, *words: str, namespace: str = "pid:[1]") -> None:
    """Have a process of a command line; process 1 says which namespace is the machine's own."""
    for each, own in ((1, "pid:[1]"), (pid, namespace)):
        place = machine.root / f"proc/{each}/ns/pid"
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.is_symlink():
            place.symlink_to(own)
    machine.write(f"/proc/{pid}/cmdline", "\0".join([*words, ""]))


def install(machine: Machine, path: str, version: str, command: str = "--version") -> None:
    machine.write(path, mode=0o755)
    machine.teach(f"{path} {command}", version)


FOUND = {
    "k3s": (
        "/usr/local/bin/k3s",
        ("--version", "k3s version v1.31.6+k3s1 (6ab750f9)\ngo version go1.22.12\n"),
        ["containerd", "-c", f"{K3S}/config.toml"],
        ("1.31.6", f"{K3S}/config.toml"),
    ),
    "k3s with its data elsewhere": (
        "/usr/local/bin/k3s",
        ("--version", "k3s version v1.28.1+k3s1 (0b1b4c4e)\n"),
        ["containerd", "-c", "/data/k3s/agent/etc/containerd/config.toml", "-a", "/run/k3s/containerd/containerd.sock"],
        ("1.28.1", "/data/k3s/agent/etc/containerd/config.toml"),
    ),
    "rke2": (
        "/opt/rke2/bin/rke2",
        ("--version", "rke2 version v1.33.1+rke2r1 (1234)\n"),
        ["containerd", "-c", f"{RKE2}/config.toml"],
        ("1.33.1", f"{RKE2}/config.toml"),
    ),
    "k0s": (
        "/usr/local/bin/k0s",
        ("version", "v1.36.0+k0s.0\n"),
        ["/var/lib/k0s/bin/containerd", "--root=/var/lib/k0s/containerd", "--config=/etc/k0s/containerd.toml"],
        ("1.36.0", "/etc/k0s/containerd.toml"),
    ),
    "microk8s": (
        "/snap/bin/microk8s",
        ("version", "MicroK8s v1.32.3 revision 7964\n"),
        ["/snap/microk8s/7964/bin/containerd", "--config", "/var/snap/microk8s/7964/args/containerd.toml"],
        ("1.32.3", "/var/snap/microk8s/current/args/containerd.toml"),
    ),
}


@pytest.mark.parametrize(("name", "row"), FOUND.items(), ids=FOUND)
def test_a_distribution_is_found_with_its_version_and_what_its_containerd_reads(
    name: str, row: tuple[str, tuple[str, str], list[str], tuple[str, str]], machine: Machine
) -> None:
    program, (command, answer), process, (version, config) = row
    install(machine, program, answer, command)
    start(machine, 812, *process)
    engine = name.split(" ", maxsplit=1)[0]

    facts = read_distributions(machine.host)

    assert facts.pop(engine) == {"binary": program, "version": version, "config_error": None, "config": config}
    assert set(facts.values()) == {None}
    assert read_kubelet_engine(machine.host) == engine


def test_without_a_process_the_distributions_own_settings_tell_where_its_data_are(machine: Machine) -> None:
    install(machine, "/usr/local/bin/k3s", "k3s version v1.31.6+k3s1\n")
    machine.write("/etc/rancher/k3s/config.yaml", 'token: x\ndata-dir: "/data/k3s"  # a disk of its own\n')

    assert read_distributions(machine.host)["k3s"]["config"] == "/data/k3s/agent/etc/containerd/config.toml"


KUBELETS: dict[str, tuple[list[str], str | None, str | None]] = {
    "an endpoint on the command line": (
        ["/usr/bin/kubelet", "--container-runtime-endpoint=unix:///var/run/crio/crio.sock"],
        None,
        "crio",
    ),
    "an endpoint in its configuration": (
        ["/usr/bin/kubelet", "--config", "/var/lib/kubelet/config.yaml"],
        'containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock"\n',
        "containerd",
    ),
    "a configuration that is JSON": (
        ["/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml"],
        '{\n  "kind": "KubeletConfiguration",\n  "containerRuntimeEndpoint": "unix:///var/run/crio/crio.sock"\n}\n',
        "crio",
    ),
    "JSON on one line": (
        ["/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml"],
        '{"kind":"KubeletConfiguration","containerRuntimeEndpoint":"unix:///run/crio/crio.sock","failSwapOn":false}',
        "crio",
    ),
    "a comment does not count": (
        ["/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml"],
        "# formerly, containerRuntimeEndpoint: unix:///run/crio/crio.sock\n",
        "containerd",
    ),
    "the kubelet's own default": (["kubelet", "--config=/var/lib/kubelet/config.yaml"], "kind: x\n", "containerd"),
    "an engine that is not known": (
        ["kubelet", "--container-runtime-endpoint", "unix:///run/cri-dockerd.sock"],
        None,
        None,
    ),
    "no kubelet": (["/usr/bin/containerd"], None, None),
}


@pytest.mark.parametrize(("words", "config", "engine"), KUBELETS.values(), ids=KUBELETS)
def test_the_kubelet_tells_which_engine_it_uses(
    words: list[str], config: str | None, engine: str | None, machine: Machine
) -> None:
    start(machine, 99, *words)
    if config is not None:
        machine.write("/var/lib/kubelet/config.yaml", config)

    assert read_kubelet_engine(machine.host) == engine


def test_the_last_drop_in_of_the_kubelet_that_names_an_endpoint_counts(machine: Machine) -> None:
    start(machine, 99, "kubelet", "--config-dir=/etc/kubelet.d", "--config=/etc/kubelet.yaml")
    machine.write("/etc/kubelet.yaml", "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n")
    machine.write("/etc/kubelet.d/10-a.conf", "containerRuntimeEndpoint: unix:///run/k3s/containerd/containerd.sock\n")
    machine.write("/etc/kubelet.d/20-b.conf", '{"containerRuntimeEndpoint": "unix:///run/crio/crio.sock"}\n')
    machine.write("/etc/kubelet.d/30-c.conf", "maxPods: 50\n")
    machine.write("/etc/kubelet.d/40-d.yaml", "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n")

    assert read_kubelet_engine(machine.host) == "crio"


def test_a_kubelet_in_a_container_is_nobodys(machine: Machine) -> None:
    start(machine, 99, "kubelet", namespace="pid:[2]")

    assert read_kubelet_engine(machine.host) is None


def test_the_files_that_lead_into_a_distributions_configuration_are_told(machine: Machine) -> None:
    install(machine, "/usr/local/bin/k3s", "")
    machine.write(f"{K3S}/config-v3.toml.d/10-site.toml")
    machine.write(f"{K3S}/config-v3.toml.d/README")

    assert sorted(files_of(machine.host)) == [
        f"{K3S}/config-v3.toml.d/10-site.toml",
        f"{K3S}/config-v3.toml.tmpl",
        f"{K3S}/config.toml",
        f"{K3S}/config.toml.tmpl",
    ]


def test_containerds_client_is_the_distributions_own(machine: Machine) -> None:
    install(machine, "/usr/local/bin/k3s", "")
    machine.teach(
        "/usr/local/bin/k3s ctr --timeout 5s plugins ls",
        "TYPE ID PLATFORMS STATUS\nio.containerd.cri.v1 runtime linux/amd64 error\n",
    )

    assert client_of(machine.host, "k3s") == ["/usr/local/bin/k3s", "ctr"]
    assert client_of(machine.host, "rke2") == []
    flaw = containerd_flaw(machine.host, "k3s")
    assert flaw == "the cri plugin of containerd could not be loaded, see journalctl -u k3s.service"


@pytest.fixture
def short() -> Iterator[Machine]:
    """Return a machine whose root is short enough for the path of a socket."""
    with tempfile.TemporaryDirectory(prefix="g") as folder:
        yield Machine(Path(folder))


def listen(machine: Machine, path: str) -> socket.socket:
    place = machine.root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(place))
    server.listen()
    return server


def test_a_containerd_that_listens_is_up(short: Machine) -> None:
    install(short, "/usr/local/bin/k0s", "")
    short.teach("/usr/local/bin/k0s ctr", "TYPE ID PLATFORMS STATUS\n")

    assert (
        containerd_silence(short.host, "k0s") == "/run/k0s/containerd.sock does not answer: No such file or directory"
    )
    with closing(listen(short, "/run/k0s/containerd.sock")):
        assert containerd_silence(short.host, "k0s") is None


def test_a_k3s_that_does_not_come_back_gets_its_files_back_and_says_what_its_containerd_said(short: Machine) -> None:
    """A duplicate table in a template: k3s restarts and its containerd ends at once."""
    install(short, "/usr/local/bin/k3s", "")
    path, unit = f"{K3S}/config-v3.toml.tmpl", "k3s.service"
    systemd = Systemd(short, unit, active="active", enabled="enabled")
    systemd.is_broken = (short.root / path.lstrip("/")).exists
    short.teach("/usr/local/bin/k3s ctr", "TYPE ID PLATFORMS STATUS\n")
    short.write(
        "/var/lib/rancher/k3s/agent/containerd/containerd.log",
        "containerd: failed to unmarshal TOML: toml: table nvidia already exists\n",
    )
    change = find_changes(short.host, [FileText(path, "[plugins]\n", 0o644)])
    service = Service(unit=unit, engine="k3s", enabled=True, restart=True, timeout_s=2)

    with (
        closing(listen(short, "/run/k3s/containerd/containerd.sock")),
        pytest.raises(ConfigurationError) as raised,
    ):
        apply_changes(short.host, service, change, lambda _: None)

    assert str(raised.value) == (
        "k3s.service is failed; its log ends with: containerd: failed to unmarshal TOML: toml: table nvidia already "
        "exists; the files were put back, and k3s.service works with them"
    )
    assert not short.host.path(path).exists()
    assert not is_restart_due(short.host, unit)


def test_processes_of_other_users_are_not_believed(machine: Machine) -> None:
    start(machine, 99, "kubelet")
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(machine.root / "proc/99/cmdline", 1000, 1000)

    assert read_kubelet_engine(machine.host) is None
