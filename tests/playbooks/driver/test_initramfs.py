"""Initial RAM disks are rebuilt by what writes them on the machine, where the boot loader finds them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.initramfs import (
    InitramfsError,
    commands_to_rebuild,
    read_initramfs,
    rebuild,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished

from provision.declaration.fleet.facts.driver import Initramfs
from tests.playbooks.fakes import Machine

if TYPE_CHECKING:
    from pathlib import Path

HOOKS = "/etc/kernel/postinst.d"
DEBIAN, UBUNTU = "6.1.0-42-amd64", "7.0.0-14-generic"
EL, SLES = "5.14.0-611.5.1.el9_7.x86_64", "6.4.0-150600.23.70-default"

# What is in /boot, which commands there are, the hooks of the kernels' packages; then the tool, and what it is told.
SYSTEMS = {
    "Debian and Ubuntu up to 24.04": (
        [f"initrd.img-{DEBIAN}", f"initrd.img-{DEBIAN}.old-dkms", "initrd.img-9.9.9-gone"],
        ["update-initramfs"],
        ["initramfs-tools", "dkms"],
        "initramfs-tools",
        {DEBIAN: ["update-initramfs", "-u", "-k", DEBIAN]},
    ),
    "Debian with dracut": (
        [f"initrd.img-{DEBIAN}"],
        ["dracut"],
        ["dracut"],
        "dracut",
        {DEBIAN: ["dracut", "--force", f"/boot/.grapnel/initrd.img-{DEBIAN}", DEBIAN]},
    ),
    "Ubuntu 26.04, which has both": (
        [f"initrd.img-{UBUNTU}"],
        ["update-initramfs", "dracut"],
        ["dkms", "dracut"],
        "dracut",
        {UBUNTU: ["dracut", "--force", f"/boot/.grapnel/initrd.img-{UBUNTU}", UBUNTU]},
    ),
    "both, and dracut's package was removed without its settings": (
        [f"initrd.img-{UBUNTU}"],
        ["update-initramfs", "dracut"],
        ["dracut", "initramfs-tools"],
        "initramfs-tools",
        {UBUNTU: ["update-initramfs", "-u", "-k", UBUNTU]},
    ),
    "RHEL and its kin": (
        [f"initramfs-{EL}.img", f"initramfs-{EL}kdump.img", "initramfs-0-rescue-0f5e4c8dc9d54f0b8e6f7f9a3f1f4b11.img"],
        ["dracut"],
        [],
        "dracut",
        {EL: ["dracut", "--force", f"/boot/.grapnel/initramfs-{EL}.img", EL]},
    ),
    "SLES": (
        ["initrd", f"initrd-{SLES}", f"initrd-{SLES}-kdump"],
        ["dracut"],
        [],
        "dracut",
        {SLES: ["dracut", "--force", f"/boot/.grapnel/initrd-{SLES}", SLES]},
    ),
    "Debian with dracut, which somebody has run without a name": (
        [f"initramfs-{DEBIAN}.img", f"initrd.img-{DEBIAN}"],
        ["dracut"],
        ["dracut"],
        "dracut",
        {DEBIAN: ["dracut", "--force", f"/boot/.grapnel/initrd.img-{DEBIAN}", DEBIAN]},
    ),
    "SLES, the same": (
        [f"initramfs-{SLES}.img", f"initrd-{SLES}"],
        ["dracut"],
        [],
        "dracut",
        {SLES: ["dracut", "--force", f"/boot/.grapnel/initrd-{SLES}", SLES]},
    ),
    "another product's disk beside those of initramfs-tools": (
        [f"initrd.img-{DEBIAN}", f"initramfs-{UBUNTU}.img"],
        ["update-initramfs"],
        [],
        "initramfs-tools",
        {DEBIAN: ["update-initramfs", "-u", "-k", DEBIAN]},
    ),
    "neither": ([f"initrd.img-{DEBIAN}"], [], ["dracut", "initramfs-tools"], "none", {}),
}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    for kernel in (DEBIAN, UBUNTU, EL, SLES):
        machine.write(f"/lib/modules/{kernel}/modules.dep")
    return machine


@pytest.mark.parametrize(("disks", "commands", "hooks", "tool", "expected"), SYSTEMS.values(), ids=SYSTEMS)
def test_what_writes_them_is_what_the_kernels_packages_call(  # noqa: PLR0917 - a machine
    disks: list[str],
    commands: list[str],
    hooks: list[str],
    tool: str,
    expected: dict[str, list[str]],
    machine: Machine,
) -> None:
    """On SLES, and on Debian with dracut, none was rebuilt: the next boot loaded the former driver."""
    for name in disks:
        machine.write(f"/boot/{name}")
    for name in commands:
        machine.write(f"/usr/sbin/{name}", mode=0o755)
    for name in hooks:
        machine.write(f"{HOOKS}/{name}", mode=0o755)

    assert read_initramfs(machine.host) == {"tool": tool, "outdated": []}
    assert commands_to_rebuild(machine.host) == expected


@pytest.mark.parametrize("path", ["/etc/modprobe.d/grapnel-nvidia.conf", "/etc/dracut.conf.d/grapnel-nvidia.conf"])
def test_a_disk_that_was_not_written_again_after_the_settings_is_told(machine: Machine, path: str) -> None:
    """A change whose disk could not be written ended as done, and no plan said so afterwards."""
    machine.write("/usr/bin/dracut", mode=0o755)
    for kernel, written_at in ((SLES, 1000.0), (EL, 2000.0)):
        os.utime(machine.write(f"/boot/initrd-{kernel}"), (written_at, written_at))
    settings = machine.write(path)

    os.utime(settings, (1001.0, 1001.0))  # no more than a file system's time may be off
    assert read_initramfs(machine.host)["outdated"] == []
    os.utime(settings, (1500.0, 1500.0))
    assert read_initramfs(machine.host)["outdated"] == [SLES]
    os.utime(machine.root / f"boot/initrd-{SLES}")
    assert read_initramfs(machine.host)["outdated"] == []


def test_settings_of_a_clock_that_was_ahead_are_older_than_no_disk(machine: Machine) -> None:
    """Every plan warned until that time came, whatever was written again."""
    machine.write("/usr/bin/dracut", mode=0o755)
    machine.write(f"/boot/initrd-{SLES}")
    ahead = time.time() + 86400.0
    os.utime(machine.write("/etc/modprobe.d/grapnel-nvidia.conf"), (ahead, ahead))

    assert read_initramfs(machine.host)["outdated"] == []


def test_disks_of_odd_names_and_of_many_kernels_leave_the_facts_whole(machine: Machine) -> None:
    """The facts of such a node were invalid, so that nothing could be planned for it."""
    machine.write("/usr/bin/dracut", mode=0o755)
    machine.write("/etc/modprobe.d/grapnel-nvidia.conf")
    for kernel in (f"{DEBIAN} (copy)", f"{DEBIAN},old", *(f"6.1.0-{number}-amd64" for number in range(100, 200))):
        machine.write(f"/lib/modules/{kernel}/modules.dep")
        os.utime(machine.write(f"/boot/initrd.img-{kernel}"), (1000.0, 1000.0))

    outdated = msgspec.convert(read_initramfs(machine.host), Initramfs).outdated

    assert outdated
    assert all(kernel.startswith("6.1.0-1") for kernel in outdated)


def test_a_link_stays_and_leads_to_what_dracut_has_written(machine: Machine) -> None:
    """As dracut itself has it: a boot loader that reads where the link led went on with the former disk."""
    machine.write("/usr/bin/dracut", mode=0o755)
    place = machine.write(f"/boot/disks/{SLES}", "former")
    link = machine.root / f"boot/initrd-{SLES}"
    link.symlink_to(f"disks/{SLES}")

    def write() -> Finished:
        machine.write(f"/boot/.grapnel/initrd-{SLES}", "new")
        return Finished(0)

    machine.teach("nice -n 19 dracut --force", write)

    rebuild(machine.host)

    assert link.is_symlink()
    assert place.read_text() == "new"


def test_what_dracut_writes_replaces_the_disk_once_it_is_whole(machine: Machine) -> None:
    """Dracut copied over the disk: who was killed meanwhile left half of one."""
    machine.write("/usr/bin/dracut", mode=0o755)
    for kernel in (SLES, EL):
        machine.write(f"/boot/initrd-{kernel}", "former")
    machine.write("/boot/.grapnel/initrd-gone", "of a run that was killed")

    def write(kernel: str) -> Finished:
        assert machine.read(f"/boot/initrd-{kernel}") == "former"
        machine.write(f"/boot/.grapnel/initrd-{kernel}", f"of {kernel}")
        return Finished(0)

    for kernel in (SLES, EL):
        machine.teach(
            f"nice -n 19 dracut --force /boot/.grapnel/initrd-{kernel} {kernel}", lambda kernel=kernel: write(kernel)
        )

    assert rebuild(machine.host) == f"{EL}, {SLES}"

    assert {path.name: path.read_text() for path in (machine.root / "boot").iterdir()} == {
        f"initrd-{kernel}": f"of {kernel}" for kernel in (SLES, EL)
    }


def test_one_that_cannot_be_rebuilt_is_named_with_what_dracut_says_and_stays(machine: Machine) -> None:
    """Where there was no room for another one, dracut removed the one that there was: the node could not boot."""
    machine.write(f"/boot/initrd-{SLES}", "former")
    machine.write("/usr/bin/dracut", mode=0o755)

    def fail() -> Finished:
        (machine.root / f"boot/.grapnel/initrd-{SLES}").unlink(missing_ok=True)  # as dracut does with what it was told
        return Finished(1, stderr="dracut: no space left\n")

    machine.teach("nice -n 19 dracut --force", fail)

    with pytest.raises(InitramfsError, match=rf"kernel {SLES} could not be rebuilt.*dracut: no space left"):
        rebuild(machine.host)
    assert [path.name for path in (machine.root / "boot").iterdir()] == [f"initrd-{SLES}"]
    assert machine.read(f"/boot/initrd-{SLES}") == "former"


@pytest.mark.parametrize("command", ["dracut", "update-initramfs"])
def test_one_that_cannot_be_rebuilt_keeps_no_other_from_it(machine: Machine, command: str) -> None:
    """An old kernel's comes first: the one that boots next was left with the former driver."""
    machine.write(f"/usr/bin/{command}", mode=0o755)
    for kernel in (DEBIAN, UBUNTU):
        machine.write(f"/boot/initrd.img-{kernel}", "former")
    told: list[str] = []
    name = "dracut --force /boot/.grapnel/initrd.img-" if command == "dracut" else "update-initramfs -u -k "
    machine.teach(f"nice -n 19 {name}{DEBIAN}", return_code=1, stderr="no modules.dep\n")

    def write() -> Finished:
        told.append(UBUNTU)
        machine.write(f"/boot/.grapnel/initrd.img-{UBUNTU}", "new")
        return Finished(0)

    machine.teach(f"nice -n 19 {name}{UBUNTU}", write)

    with pytest.raises(InitramfsError) as raised:
        rebuild(machine.host)
    assert told == [UBUNTU]
    assert f"kernel {DEBIAN} could not be rebuilt" in str(raised.value)
    assert f"kernel {UBUNTU}" not in str(raised.value)


def test_what_stands_where_a_disk_is_to_be_written_is_named(machine: Machine) -> None:
    machine.write(f"/boot/initrd-{SLES}", "former")
    machine.write("/boot/.grapnel", "somebody's")
    machine.write("/usr/bin/dracut", mode=0o755)

    with pytest.raises(InitramfsError, match=f"kernel {SLES} could not be rebuilt.*exists.*/boot/.grapnel"):
        rebuild(machine.host)
    assert machine.read("/boot/.grapnel") == "somebody's"


def test_a_dracut_that_writes_nothing_is_no_success(machine: Machine) -> None:
    machine.write(f"/boot/initrd-{SLES}", "former")
    machine.write("/usr/bin/dracut", mode=0o755)
    machine.teach("nice -n 19 dracut --force")

    with pytest.raises(InitramfsError, match=f"kernel {SLES} could not be rebuilt.*No such file"):
        rebuild(machine.host)
    assert machine.read(f"/boot/initrd-{SLES}") == "former"
