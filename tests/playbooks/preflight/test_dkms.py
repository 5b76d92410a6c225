"""What DKMS has built, and what it needs to build."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.preflight.dkms import read_build_tools, read_dkms

from tests.playbooks.preflight.kernels import NEW, OLD

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine


def add_build(machine: Machine, version: str, kernel: str, *, installed: bool) -> None:
    machine.write(f"/var/lib/dkms/nvidia-current/{version}/{kernel}/x86_64/module/nvidia-current.ko.xz")
    if installed:
        link = machine.root / f"var/lib/dkms/nvidia-current/kernel-{kernel}-x86_64"
        link.symlink_to(f"{version}/{kernel}/x86_64")


def test_dkms_is_read_from_its_tree(machine: Machine) -> None:
    for version in ("535.261.03", "550.163.01", "570.1"):
        source = machine.root / f"var/lib/dkms/nvidia-current/{version}"
        source.mkdir(parents=True)
        (source / "source").symlink_to(f"/usr/src/nvidia-current-{version}")
        machine.write(f"/usr/src/nvidia-current-{version}/dkms.conf", 'PACKAGE_NAME="nvidia"\nAUTOINSTALL="yes"\n')
    machine.write("/usr/src/nvidia-current-570.1/dkms.conf", "# AUTOINSTALL=yes\n")
    add_build(machine, "550.163.01", NEW, installed=True)
    add_build(machine, "550.163.01", OLD, installed=False)
    machine.write(f"/var/lib/dkms/nvidia-current/535.261.03/{OLD}/x86_64/log/make.log")  # a build that failed
    machine.write("/var/lib/dkms/nvidia-current/550.163.01/build/nvidia.o")
    machine.write("/var/lib/dkms/zfs/2.1/source")

    seen = read_dkms(machine.host)

    assert {one["module"] for one in seen} == {"nvidia-current"}
    assert [(one["version"], one["kernel"], one["state"], one["autoinstall"]) for one in seen] == [
        ("535.261.03", "", "added", True),
        ("550.163.01", OLD, "built", True),
        ("550.163.01", NEW, "installed", True),
        ("570.1", "", "added", False),
    ]


@pytest.mark.parametrize(
    ("printed", "version"), [("dkms-3.0.10\n", "3.0.10"), ("dkms: 2.8.1\n", "2.8.1"), ("usage: …\n", "")]
)
def test_build_tools_are_looked_for_and_dkms_tells_its_version(printed: str, version: str, machine: Machine) -> None:
    bare = read_build_tools(machine.host)
    for path in ("/usr/sbin/dkms", "/usr/bin/make", "/usr/bin/x86_64-linux-gnu-gcc-12"):
        machine.write(path, mode=0o755)
    machine.write("/etc/dkms/no-autoinstall")
    machine.teach("dkms --version", printed)

    assert bare == {"dkms": None, "gcc": False, "make": False, "autoinstall": True}
    assert read_build_tools(machine.host) == {"dkms": version, "gcc": True, "make": True, "autoinstall": False}
