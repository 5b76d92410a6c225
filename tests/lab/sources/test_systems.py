"""Nodes that say they are another distribution: its package manager installs its driver, and the driver runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lab.nodes import Node, NodeSpec, Site
from lab.sources import BASE_SUITE, SYSTEMS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.nodes

DNF = ["dnf", "-y", "install", "nvidia-driver-cuda-{}", "kmod-nvidia-open-dkms-{}"]
KMP = "nvidia-open-driver-G06-signed-cuda-kmp-default={}_k6.4.0_150600.23.53"
COMMANDS = {
    "rocky9": [["dnf", "-y", "module", "enable", "nvidia-driver:580-open"], DNF],
    "rocky10": [DNF],
    "al2023": [["dnf", "-y", "module", "enable", "nvidia-driver:580-open"], DNF],
    "rhel8": [["dnf", "-y", "module", "enable", "nvidia-driver:580-open"], DNF],
    "sles15": [["zypper", "--non-interactive", "install", KMP, "nvidia-compute-utils-G06={}"]],
    "ubuntu2404": [
        ["apt-get", "-qq", "update"],
        ["apt-get", "-qq", "-y", "install", "nvidia-headless-no-dkms-580-server-open", "nvidia-utils-580-server"],
        ["apt-get", "-qq", "-y", "install", "linux-modules-nvidia-580-server-open-6.8.0-60-generic"],
    ],
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        made = Site(f"s{os.getpid()}")
        try:
            yield made
        finally:
            made.destroy()


@pytest.fixture(scope="module", params=SYSTEMS)
def node(site: Site, request: pytest.FixtureRequest) -> Node:
    return site.up(NodeSpec(request.param, suite=BASE_SUITE, gpus=1, system=request.param))


def test_the_node_says_what_it_is(node: Node) -> None:
    system = SYSTEMS[node.spec.system]
    told = dict(line.split("=", 1) for line in node.run(["cat", "/etc/os-release"]).stdout.splitlines())
    assert told["ID"].strip('"') == dict(system.os_release)["ID"]
    assert node.run(["uname", "-r"]).stdout.strip() == system.kernel_release
    assert node.run(["systemctl", "is-system-running"]).stdout == "running\n"
    has_apt = node.run(["sh", "-c", "command -v apt-get dpkg"], check=False).returncode == 0
    assert has_apt == (system.manager == "apt")


def test_its_driver_is_installed_and_runs(node: Node) -> None:
    version = SYSTEMS[node.spec.system].versions[-1]
    for command in COMMANDS[node.spec.system]:
        node.run(["env", "DEBIAN_FRONTEND=noninteractive", *(word.format(version) for word in command)])

    node.run(["modprobe", "-a", "nvidia", "nvidia-uvm"])

    assert node.gpus[0].uuid in node.run(["nvidia-smi", "-L"]).stdout
    assert f"Open Kernel Module for x86_64  {version}" in node.run(["cat", "/proc/driver/nvidia/version"]).stdout
