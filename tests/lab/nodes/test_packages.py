"""Real driver packages from the package folder, with the simulated NVML in the place of the packaged one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.bundle.contents import DRIVER_PACKAGES
from lab.nodes import Node, NodeSpec, Site
from lab.nvml import state

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.nodes
APT = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y", "--allow-downgrades"]
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
CURRENT = "/usr/lib/x86_64-linux-gnu/nvidia/current"
PIN = "Package: src:nvidia-graphics-drivers\nPin: version {}*\nPin-Priority: 1001\n"


def install_driver(node: Node, version: str) -> None:
    node.run(["tee", "/etc/apt/preferences.d/driver"], input_text=PIN.format(version))
    node.run([*APT, "update"])
    node.run([*APT, "install", *DRIVER_PACKAGES])


def nvidia_smi(node: Node) -> subprocess.CompletedProcess[str]:
    return node.run(["nvidia-smi", "-L"], check=False)


def test_the_packages_are_honoured_and_the_simulated_library_answers(node: Node) -> None:
    install_driver(node, "550.163.01")
    assert node.run(["readlink", "-f", LIBRARY]).stdout.strip() == f"{CURRENT}/libnvidia-ml.so.550.163.01"
    aside = ["libcuda.so.550.163.01", "libnvidia-ml.so.550.163.01"]
    assert node.run(["ls", "/usr/lib/gpusim/packaged"]).stdout.split() == aside
    assert node.run(["dpkg", "--verify", "libnvidia-ml1", "libcuda1"]).stdout == ""
    listed = nvidia_smi(node).stdout
    assert [line.rpartition("UUID: ")[2].rstrip(")") for line in listed.splitlines()] == [gpu.uuid for gpu in node.gpus]


def test_a_change_of_the_machine_shows_at_once(node: Node) -> None:
    state.update(node.nvml_library, lambda machine: machine.with_gpu(0, temperature=77))
    query = ["nvidia-smi", "--query-gpu=temperature.gpu", "--format=csv,noheader"]
    assert node.run(query).stdout.splitlines()[0] == "77"


def test_another_driver_version_mismatches_until_the_module_is_swapped(node: Node) -> None:
    install_driver(node, "535.309.01")
    assert nvidia_smi(node).returncode == 18
    node.install_module("535.309.01")
    node.run(["modprobe", "-r", "nvidia-drm", "nvidia-uvm", "nvidia"])
    assert nvidia_smi(node).returncode == 9
    node.run(["modprobe", "nvidia"])
    assert len(nvidia_smi(node).stdout.splitlines()) == 2


def test_containers_run_inside_a_node(node: Node) -> None:
    node.run([*APT, "install", "containerd", "runc"])
    assert node.run(["systemctl", "is-active", "containerd"]).stdout == "active\n"
    script = "mkdir -p /tmp/r/bin /tmp/r/dev /tmp/r/proc /tmp/r/sys /tmp/r/run; cp /tmp/busybox /tmp/r/bin/sh"
    with (node.root / "tmp/busybox").open("wb") as file:
        file.write(busybox())
    node.run(["sh", "-c", f"chmod 755 /tmp/busybox; {script}"])
    inside = "true < /dev/nvidia0 && echo opened; [ -e /dev/nvidia1 ] || echo absent"
    container = ["ctr", "run", "--rm", "--device", "/dev/nvidia0", "--rootfs", "/tmp/r", "c1"]
    assert node.run([*container, "/bin/sh", "-c", inside]).stdout.split() == ["opened", "absent"]


def busybox() -> bytes:
    """Return the machine's own static busybox; its shell is enough of an image."""
    with open("/bin/busybox", "rb") as file:
        return file.read()


@pytest.mark.parametrize(
    ("suite", "kernel"),
    [("bookworm", "6.1.0-56-amd64"), ("trixie", "6.12.107+deb13-amd64")],
    ids=["its own", "on Debian 13"],
)
def test_debian_12_s_driver_runs(site: Site, suite: str, kernel: str) -> None:
    node = site.up(NodeSpec(f"old-{suite}", suite=suite, gpus=1, driver_module="535.261.03"))
    install_driver(node, "535.261.03")
    assert node.run(["uname", "-r"]).stdout.strip() == kernel
    assert node.gpus[0].uuid in nvidia_smi(node).stdout
