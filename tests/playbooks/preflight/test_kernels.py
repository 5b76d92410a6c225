"""Kernels that may boot next, their headers, and the driver's modules that each has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.gpus import read_module
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, HostError
from ansible_collections.grapnel.node.plugins.module_utils.preflight.kernels import read_kernels

from tests.playbooks.preflight.kernels import NEW, OLD, add_kernel, kernels

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

# What modinfo of kmod 30 says of two files; nobody signed the second.
MODINFO = """\
filename:       {0}/lib/modules/6.12.117+deb13-amd64/updates/dkms/nvidia-current.ko.xz
alias:          char-major-195-*
version:        550.163.01
supported:      external
license:        NVIDIA
srcversion:     5B2B4B5A4B
name:           nvidia
vermagic:       6.12.117+deb13-amd64 SMP preempt mod_unload modversions
sig_id:         PKCS#7
signer:         DKMS module signing key
sig_key:        05:AF:14:56
filename:       {0}/lib/modules/6.12.117+deb13-amd64/kernel/nvidia-550srv-open/nvidia.ko
version:        550.144.03
license:        Dual MIT/GPL
"""


@pytest.mark.usefixtures("running")
def test_kernels_with_an_image_may_boot_next_and_the_newest_comes_first(machine: Machine) -> None:
    add_kernel(machine, OLD)
    add_kernel(machine, NEW, headers=False)
    add_kernel(machine, "6.12.9+deb13-amd64")
    add_kernel(machine, "6.1.0-18-amd64", image=False)  # removed, and something is left in its folder
    machine.write("/lib/modules/extramodules/x")

    seen = read_kernels(machine.host)

    assert [one["release"] for one in seen] == [NEW, OLD, "6.12.9+deb13-amd64"]
    assert [(one["running"], one["default"], one["headers"]) for one in seen[:2]] == [
        (False, True, False),
        (True, False, True),
    ]


@pytest.mark.usefixtures("running")
def test_a_kernel_that_runs_counts_without_an_image(machine: Machine) -> None:
    add_kernel(machine, OLD, headers=False, image=False)

    assert [(one["release"], one["default"]) for one in read_kernels(machine.host)] == [(OLD, True)]


@pytest.mark.usefixtures("running")
def test_headers_are_found_behind_a_relative_link_where_lib_is_a_link_itself(machine: Machine) -> None:
    machine.write(f"/usr/src/linux-headers-{NEW}/Makefile")
    modules = machine.root / f"usr/lib/modules/{NEW}"
    modules.mkdir(parents=True)
    modules.joinpath("build").symlink_to(f"../../../src/linux-headers-{NEW}")
    modules.joinpath("vmlinuz").touch()
    machine.root.joinpath("lib").symlink_to("usr/lib")

    seen = read_kernels(machine.host)

    assert [(one["release"], one["headers"]) for one in seen] == [(NEW, True)]


@pytest.mark.usefixtures("running")
def test_headers_that_were_removed_leave_a_link_that_leads_nowhere(machine: Machine) -> None:
    add_kernel(machine, OLD)
    (machine.root / f"usr/src/linux-headers-{OLD}/Makefile").unlink()

    assert not kernels(machine)[OLD]["headers"]


BOOT = {
    "GRUB's first entry": (
        {"/boot/grub/grub.cfg": f"menuentry 'Debian' {{\n\tlinux\t/boot/vmlinuz-{OLD} root=UUID=1 ro\n}}\n"
                                f"\t\tlinux\t/vmlinuz-{NEW} ro\n"},
        OLD,
    ),
    "the entry that was saved": (
        {"/etc/default/grub": "GRUB_DEFAULT=saved\n", "/boot/grub2/grubenv": f"# GRUB\nsaved_entry=0f5e-{OLD}\n###\n"},
        OLD,
    ),
    "an entry that was saved and that nobody asks for": (
        {"/etc/default/grub": 'GRUB_DEFAULT="0"\n', "/boot/grub/grubenv": f"saved_entry={OLD}\n"},
        NEW,
    ),
    "an entry by its name": (
        {"/etc/default/grub": f'GRUB_DEFAULT="1>gnulinux-{OLD}-advanced-7c"\n'},
        OLD,
    ),
    "a kernel that is gone": ({"/boot/grub/grub.cfg": "linux /boot/vmlinuz-5.10.0-1-amd64 ro\n"}, NEW),
    "no boot loader that is known": ({}, NEW),
}  # fmt: skip


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(("files", "default"), BOOT.values(), ids=BOOT)
def test_the_boot_loaders_choice_is_the_default(files: dict[str, str], default: str, machine: Machine) -> None:
    add_kernel(machine, OLD)
    add_kernel(machine, NEW)
    for path, text in files.items():
        machine.write(path, text)

    assert [one["release"] for one in read_kernels(machine.host) if one["default"]] == [default]


@pytest.mark.usefixtures("running")
def test_one_call_tells_all_modules_of_a_kernel(machine: Machine) -> None:
    add_kernel(machine, OLD)
    add_kernel(machine, NEW)
    folder = f"/lib/modules/{NEW}"
    for name in (
        "updates/dkms/nvidia-current.ko.xz",
        "updates/dkms/nvidia-uvm.ko",
        "updates/dkms/nvidia.ko.bak",
        "kernel/nvidia-550srv-open/nvidia.ko",
        "kernel/drivers/net/nvidia.ko",
    ):
        machine.write(f"{folder}/{name}")
    (machine.root / f"lib/modules/{NEW}/weak-updates").mkdir()
    (machine.root / f"lib/modules/{NEW}/weak-updates/nvidia.ko").symlink_to("/lib/modules/gone/extra/nvidia.ko")
    machine.teach("modinfo", MODINFO.format(machine.root))

    seen = kernels(machine)

    (call,) = machine.calls
    assert call.split() == [
        "modinfo",
        f"{machine.root}{folder}/updates/dkms/nvidia-current.ko.xz",
        f"{machine.root}{folder}/kernel/nvidia-550srv-open/nvidia.ko",
    ]
    assert seen[OLD]["modules"] == []
    assert seen[NEW]["modules"] == [
        {
            "path": f"{folder}/updates/dkms/nvidia-current.ko.xz",
            "version": "550.163.01",
            "flavour": "proprietary",
            "signer": "DKMS module signing key",
        },
        {
            "path": f"{folder}/kernel/nvidia-550srv-open/nvidia.ko",
            "version": "550.144.03",
            "flavour": "open",
            "signer": None,
        },
    ]


def test_a_module_that_was_looked_into_is_not_looked_into_again(machine: Machine) -> None:
    """A compressed module takes a second to unpack."""
    file = f"/lib/modules/{OLD}/updates/dkms/nvidia.ko.xz"
    machine.teach("modprobe --show-depends nvidia", f"insmod {file} \n")

    module = read_module(machine.host, [{"modules": [{"path": file, "version": "550.163.01"}]}])

    assert module["on_disk"] == "550.163.01"
    assert machine.calls == ["modprobe --show-depends nvidia"]


def test_modules_are_read_again_when_one_of_them_has_changed(machine: Machine, running: str) -> None:
    """Facts are gathered several times in a change, and each module is a second of work."""
    file = f"/lib/modules/{running}/extra/nvidia.ko"
    said = "filename:       {}\nversion:        {}\nlicense:        NVIDIA\n"
    add_kernel(machine, running)
    machine.write(file)
    machine.teach("modinfo", lambda: Finished(1, "", "modinfo: ERROR: could not get modinfo from 'nvidia'"))
    assert kernels(machine)[running]["modules"] == []
    for version in ("550.163.01", "610.57"):
        machine.write(file, version)
        machine.teach("modinfo", said.format(f"{machine.root}{file}", version))
        machine.calls.clear()

        seen = [kernels(machine)[running]["modules"] for _ in range(3)]

        assert [[one["version"] for one in modules] for modules in seen] == [[version]] * 3
        assert len(machine.calls) == 1


def test_a_file_that_is_no_module_is_none(machine: Machine, running: str) -> None:
    add_kernel(machine, running)
    machine.write(f"/lib/modules/{running}/extra/nvidia.ko")
    machine.teach("modinfo", lambda: Finished(1, "", "modinfo: ERROR: could not get modinfo from 'nvidia'"))

    assert kernels(machine)[running]["modules"] == []


def test_modules_that_are_not_read_in_time_are_not_missing(machine: Machine, running: str) -> None:
    add_kernel(machine, running)
    machine.write(f"/lib/modules/{running}/extra/nvidia.ko")
    machine.teach("modinfo", lambda: Finished(124, "", "modinfo took longer than 180 s"))

    with pytest.raises(HostError, match=r"`modinfo .*/extra/nvidia.ko` took longer than 180 s: try again"):
        kernels(machine)
