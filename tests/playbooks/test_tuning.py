"""Settings of the kernel are read, made, and told to the boot loader, which is asked whether it has understood."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host
from ansible_collections.grapnel.node.plugins.module_utils.machine.kernel_settings import (
    GRUB_CONFIG,
    PLACES,
    KernelError,
    differing,
    missing_arguments,
    read_kernel,
    set_values,
    tell_boot_loader,
)

from tests.playbooks.fakes import Machine

if TYPE_CHECKING:
    from pathlib import Path

BALANCING, PAGES = PLACES
COMMAND_LINE = "BOOT_IMAGE=/vmlinuz root=/dev/sda1 password=x iommu=pt hugepagesz=1G hugepages=4 quiet iommu=$(x)\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.write("/proc/cmdline", COMMAND_LINE)
    machine.write(PLACES[BALANCING], "1\n")
    machine.write(PLACES[PAGES], "0\n")
    machine.write("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "4\n")
    machine.write("/sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages", "0\n")
    return machine


def test_only_what_can_be_declared_is_told_of_the_command_line(machine: Machine) -> None:
    machine.write("/usr/sbin/update-grub", mode=0o755)
    machine.write(GRUB_CONFIG, "linux /vmlinuz")

    assert read_kernel(machine.host) == {
        "numa_nodes": [],
        "numa_nodes_without_cpus": [],
        "numa_balancing": 1,
        "hugepages": {"1Gi": 4, "2Mi": 0, "64Ki": 0},
        "arguments": ["iommu=pt", "hugepagesz=1G", "hugepages=4"],
        "tuned_arguments": [],
        "boot_loader": "grub",
    }


@pytest.mark.parametrize(
    ("programs", "loader"),
    [
        (["/usr/sbin/grubby"], "grubby"),
        (["/usr/sbin/update-grub"], ""),
        ([], ""),
    ],
    ids=["grubby", "update-grub on a machine that something else boots", "neither"],
)
def test_the_boot_loader_is_known_by_its_programs(machine: Machine, programs: list[str], loader: str) -> None:
    for program in programs:
        machine.write(program, mode=0o755)

    assert read_kernel(machine.host)["boot_loader"] == loader


@pytest.mark.parametrize(
    ("online", "has_cpu", "nodes", "without"),
    [
        pytest.param("0-8", "0", [0, 1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7, 8], id="Grace Hopper"),
        pytest.param("0-1,4", "0-1", [0, 1, 4], [4], id="a list with a gap"),
        pytest.param("0-1", "0-1", [0, 1], [], id="two sockets"),
        pytest.param("0-1", None, [0, 1], [], id="a kernel that does not say where the CPUs are"),
        pytest.param("0-x", "0", [], [], id="no list"),
    ],
)
def test_numa_nodes_without_cpus_are_told_from_the_others(
    machine: Machine, online: str, has_cpu: str | None, nodes: list[int], without: list[int]
) -> None:
    machine.write("/sys/devices/system/node/online", f"{online}\n")
    if has_cpu is not None:
        machine.write("/sys/devices/system/node/has_cpu", f"{has_cpu}\n")

    found = read_kernel(machine.host)

    assert (found["numa_nodes"], found["numa_nodes_without_cpus"]) == (nodes, without)


def test_an_empty_machine_has_no_settings(tmp_path: Path) -> None:
    assert read_kernel(Host(tmp_path)) == {
        "numa_nodes": [],
        "numa_nodes_without_cpus": [],
        "numa_balancing": None,
        "hugepages": {},
        "arguments": [],
        "tuned_arguments": [],
        "boot_loader": "",
    }


def test_only_what_differs_is_set(machine: Machine) -> None:
    wanted = {BALANCING: "0", PAGES: "0"}

    assert differing(machine.host, wanted) == {BALANCING: "0"}
    set_values(machine.host, {BALANCING: "0"})

    assert machine.read(PLACES[BALANCING]) == "0\n"
    assert differing(machine.host, wanted) == {}


def test_a_setting_that_is_none_of_ours_is_refused(machine: Machine) -> None:
    with pytest.raises(KernelError, match=r"kernel\.core_pattern is not a setting that grapnel makes"):
        differing(machine.host, {"kernel.core_pattern": "|/tmp/x"})


def test_fewer_pages_than_asked_for_are_a_failure_that_says_what_helps(machine: Machine) -> None:
    place = machine.root / PLACES[PAGES][1:]
    place.unlink()
    place.symlink_to("/dev/null")  # takes everything, and has nothing

    with pytest.raises(KernelError, match=r"set vm\.nr_hugepages to .*, not 512: .*grapnel reboot"):
        set_values(machine.host, {PAGES: "512"})


def test_update_grub_has_to_take_the_arguments_in(machine: Machine) -> None:
    machine.teach("update-grub")
    machine.write(GRUB_CONFIG, "linux /vmlinuz quiet iommu=pt hugepagesz=1G hugepages=4\n")

    tell_boot_loader(machine.host, "grub", ["iommu=pt", "hugepagesz=1G", "hugepages=4"], [])

    with pytest.raises(KernelError, match="update-grub has not taken 'iommu=off'"):
        tell_boot_loader(machine.host, "grub", ["iommu=off"], [])


def entry(arguments: str) -> str:
    """Return what grubby of RHEL 9 says of an entry (rhboot/grubby, issue 55)."""
    return f"""\
index=1
kernel="/boot/vmlinuz-5.14.0-611.5.1.el9_7.x86_64"
args="ro net.ifnames=0 console=ttyS0,115200n8{arguments} $tuned_params"
root="UUID=ec0ebe42-73a3-441f-9910-dce10ec8253e"
initrd="/boot/initramfs-5.14.0-611.5.1.el9_7.x86_64.img $tuned_initrd"
title="Rocky Linux (5.14.0-611.5.1.el9_7.x86_64) 9.7 (Blue Onyx)"
id="4ce7a933859f4a76a5111fba2d010ca3-5.14.0-611.5.1.el9_7.x86_64"
"""


def test_grubby_takes_former_arguments_away(machine: Machine) -> None:
    machine.teach("grubby --update-kernel")
    said = iter([entry(" iommu=pt"), entry("")])
    machine.teach("grubby --info=DEFAULT", lambda: Finished(0, next(said)))

    tell_boot_loader(machine.host, "grubby", ["iommu=pt"], ["intel_iommu=on", "iommu=pt"])
    tell_boot_loader(machine.host, "grubby", [], ["iommu=pt"])

    assert [call for call in machine.calls if "--info" not in call] == [
        "grubby --update-kernel=ALL --remove-args=intel_iommu=on",
        "grubby --update-kernel=ALL --args=iommu=pt",
        "grubby --update-kernel=ALL --remove-args=iommu=pt",
    ]


@pytest.mark.parametrize(
    ("said", "wanted", "former", "problem"),
    [
        # grubby of 2018 changed the end of intel_iommu= instead
        (entry(" intel_iommu=pt"), ["iommu=pt"], [], "has not taken 'iommu=pt' into the entry"),
        (entry(" iommu=pt"), [], ["iommu=pt"], "has left 'iommu=pt' in the entry"),
        # grubby says nothing where saved_entry of grubenv names a kernel that is gone
        ("", ["iommu=pt"], [], "names no entry that boots next: .*--set-default"),
        ("", [], ["iommu=pt"], "names no entry that boots next: .*--set-default"),
    ],
    ids=["another argument was changed", "one is still there", "no entry", "no entry to take one out of"],
)
def test_grubby_has_to_have_done_what_it_was_told(
    said: str, wanted: list[str], former: list[str], problem: str, machine: Machine
) -> None:
    machine.teach("grubby --update-kernel")
    machine.teach("grubby --info=DEFAULT", said)

    with pytest.raises(KernelError, match=problem):
        tell_boot_loader(machine.host, "grubby", wanted, former)


def test_what_tuned_says_as_well_may_stay_in_the_entry(machine: Machine) -> None:
    """What tuned adds is shown by grubby, which takes away one of two: each apply failed."""
    machine.write("/etc/tuned/bootcmdline", 'TUNED_BOOT_CMDLINE="intel_iommu=on"\n')
    machine.teach("grubby --update-kernel")
    machine.teach("grubby --info=DEFAULT", entry(" intel_iommu=on"))

    tell_boot_loader(machine.host, "grubby", [], ["intel_iommu=on"])

    assert "grubby --update-kernel=ALL --remove-args=intel_iommu=on" in machine.calls


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('TUNED_BOOT_CMDLINE="isolcpus=2-7 iommu=pt skew_tick=1"\nTUNED_BOOT_INITRD_ADD=""\n', ["iommu=pt"]),
        ("TUNED_BOOT_CMDLINE=\nTUNED_BOOT_INITRD_ADD=\n", []),
        ("""TUNED_BOOT_CMDLINE="dyndbg='file dmar.c +p' nohz=\\"on\\" iommu=off"\n""", ["iommu=off"]),
        ('TUNED_BOOT_CMDLINE="iommu=off hugepages=8\n', ["iommu=off", "hugepages=8"]),
        ('TUNED_BOOT_CMDLINE="iommu=off"\nTUNED_BOOT_CMDLINE="hugepages=8"\n', ["hugepages=8"]),
    ],
    ids=[
        "a profile for real time",
        "a profile without any",
        "quotes in quotes",
        "a quote without its end",
        "the last line counts, as in a shell",
    ],
)
def test_what_tuned_adds_is_told(text: str, arguments: list[str], machine: Machine) -> None:
    machine.write("/etc/tuned/bootcmdline", text)

    assert read_kernel(machine.host)["tuned_arguments"] == arguments


def test_a_boot_loader_that_fails_says_why(machine: Machine) -> None:
    machine.teach("grubby", return_code=1, stderr="grubby: no default kernel\n")

    with pytest.raises(KernelError, match="grubby failed: grubby: no default kernel"):
        tell_boot_loader(machine.host, "grubby", ["iommu=pt"], [])


def test_what_the_kernel_was_not_started_with_is_named(machine: Machine) -> None:
    assert missing_arguments(machine.host, ["iommu=pt", "intel_iommu=on"]) == ["intel_iommu=on"]
