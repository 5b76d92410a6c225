"""The simulated module interface on a booted node, seen through the real programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.nvml.capabilities import minors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node, Site

pytestmark = pytest.mark.nodes
ALL = {"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"}
UNLOAD_ALL = ["modprobe", "-r", "nvidia-drm", "nvidia-uvm", "nvidia"]
LOAD_ALL = ["modprobe", "-a", "nvidia", "nvidia-uvm", "nvidia-drm"]


@pytest.fixture(autouse=True)
def _everything_loaded(node: Node) -> Iterator[None]:
    node.run(LOAD_ALL)
    yield
    node.run(["rm", "-rf", "/run/gpusim/fail"])
    node.install_module("550.163.01")


def loaded(node: Node) -> dict[str, str]:
    """Return what lsmod lists, with the modules that hold each."""
    rows = (line.split() for line in node.run(["lsmod"]).stdout.splitlines()[1:])
    return {row[0]: row[3] if len(row) > 3 else "" for row in rows}


def test_modules_are_loaded_with_their_holders(node: Node) -> None:
    found = loaded(node)
    assert set(found) == ALL
    assert set(found["nvidia"].split(",")) == {"nvidia_uvm", "nvidia_modeset"}
    assert found["nvidia_modeset"] == "nvidia_drm"


def test_driver_and_devices_show_every_gpu(node: Node) -> None:
    listed = node.run(["sh", "-c", "cat /proc/driver/nvidia/gpus/*/information"]).stdout
    assert [line.split()[-1] for line in listed.splitlines() if "UUID" in line] == [g.uuid for g in node.gpus]
    numbers = node.run(["stat", "-c", "%n %t:%T", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"]).stdout
    assert numbers.split() == ["/dev/nvidia0", "4:10", "/dev/nvidia1", "4:11", "/dev/nvidiactl", "4:3e"]
    assert node.run(["uname", "-r"]).stdout.strip() == "6.12.107+deb13-amd64"


def test_capabilities_of_mig_are_numbered_as_the_driver_does(node: Node) -> None:
    lines = node.run(["cat", "/proc/driver/nvidia-caps/mig-minors"]).stdout.splitlines()
    assert {name: int(number) for name, number in map(str.split, lines)} == minors(len(node.gpus))
    assert "  4 nvidia-caps\n" in node.run(["cat", "/proc/devices"]).stdout.partition("Block devices:")[0]


def test_a_module_that_others_need_stays(node: Node) -> None:
    refused = node.run(["rmmod", "nvidia"], check=False)
    assert refused.returncode == 1
    assert "in use by: nvidia_" in refused.stderr
    assert set(loaded(node)) == ALL


def test_a_pinned_module_stays_although_no_process_uses_it(node: Node) -> None:
    node.run(["rmmod", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"])
    node.run(["sh", "-c", "mkdir -p /run/gpusim/pins && echo 1 >/run/gpusim/pins/nvidia"])

    refused = node.run(["rmmod", "nvidia"], check=False)
    counted = node.run(["cat", "/sys/module/nvidia/refcnt"]).stdout
    node.run(["rm", "/run/gpusim/pins/nvidia"])

    assert (refused.returncode, counted) == (1, "1\n")
    assert node.run(["rmmod", "nvidia"], check=False).returncode == 0


def test_an_open_device_keeps_the_module_until_it_is_closed(node: Node) -> None:
    node.run(["rmmod", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"])
    script = "exec 3</dev/nvidia0; cat /sys/module/nvidia/refcnt 3<&-; rmmod nvidia; exec 3<&-; rmmod nvidia"
    done = node.run(["sh", "-c", script])
    assert done.stdout == "1\n"
    assert "Module nvidia is in use" in done.stderr
    assert loaded(node) == {}
    assert node.run(["sh", "-c", "ls /dev/nvidia* /proc/driver"], check=False).stdout == "/proc/driver:\n"


def test_a_module_for_another_kernel_is_refused(node: Node) -> None:
    node.run(UNLOAD_ALL)
    release = "/lib/modules/6.12.107+deb13-amd64/updates"
    script = f"sed 's/vermagic=6.12/vermagic=6.99/' {release}/nvidia.ko > /tmp/nvidia.ko; insmod /tmp/nvidia.ko"
    refused = node.run(["sh", "-c", script], check=False)
    assert "Invalid module format" in refused.stderr
    assert "version magic '6.99" in node.run(["cat", "/run/gpusim/kmsg"]).stdout
    assert loaded(node) == {}


@pytest.mark.parametrize(("errno", "message"), [(129, "Key was rejected by service"), (19, "No such device")])
def test_a_failure_is_played_on_demand(node: Node, errno: int, message: str) -> None:
    node.run(UNLOAD_ALL)
    node.run(["sh", "-c", f"mkdir -p /run/gpusim/fail; echo {errno} > /run/gpusim/fail/nvidia"])
    refused = node.run(["modprobe", "nvidia"], check=False)
    assert message in refused.stderr
    assert loaded(node) == {}


def test_modules_of_two_versions_do_not_mix(node: Node) -> None:
    node.run(["rmmod", "nvidia_uvm"])
    node.install_module("535.309.01")
    refused = node.run(["modprobe", "nvidia-uvm"], check=False)
    assert "Invalid argument" in refused.stderr
    assert node.run(["cat", "/sys/module/nvidia/version"]).stdout == "550.163.01\n"
    assert node.run(["modinfo", "-F", "version", "nvidia"]).stdout == "535.309.01\n"


def test_a_reboot_unloads_everything_and_loads_what_is_configured(site: Site, node: Node) -> None:
    node.run(["mv", "/etc/modules-load.d/nvidia.conf", "/root"])
    before = node.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout
    site.reboot(node.name)
    assert node.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout != before
    assert loaded(node) == {}
    assert node.run(["sh", "-c", "ls /dev/nvidia*"], check=False).stdout == ""
    node.run(["mv", "/root/nvidia.conf", "/etc/modules-load.d/"])
    site.reboot(node.name)
    assert set(loaded(node)) == ALL
