from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.device_holders import read_device_holders
from ansible_collections.grapnel.node.plugins.module_utils.gpus import read_gpus, read_module
from ansible_collections.grapnel.node.plugins.module_utils.identity import parse_os_release

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine


def add_function(machine: Machine, address: str, vendor: str, pci_class: str, numa_node: str = "-1") -> None:
    folder = f"/sys/bus/pci/devices/{address}"
    for name, text in (("vendor", vendor), ("device", "0x20B0"), ("class", pci_class), ("numa_node", numa_node)):
        machine.write(f"{folder}/{name}", f"{text}\n")


def test_gpus_are_nvidias_functions_with_a_display_class(machine: Machine) -> None:
    add_function(machine, "0000:11:00.0", "0x10de", "0x030200", "1")
    add_function(machine, "0000:10:00.0", "0x10de", "0x030000")
    add_function(machine, "0000:10:00.1", "0x10de", "0x040300")  # the audio function of a graphics card
    add_function(machine, "0000:00:02.0", "0x8086", "0x030000")

    gpus = read_gpus(machine.host)

    assert [gpu["address"] for gpu in gpus] == ["0000:10:00.0", "0000:11:00.0"]
    assert gpus[0]["numa_node"] is None
    assert gpus[1] == {
        "address": "0000:11:00.0",
        "vendor": "10de",
        "device": "20b0",
        "class": "030200",
        "numa_node": 1,
    }


@pytest.mark.parametrize(
    ("banner", "flavour"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue\nGCC version: gcc", "proprietary"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  Release Build", "open"),
    ],
)
def test_the_module_tells_its_flavour(banner: str, flavour: str, machine: Machine) -> None:
    machine.write("/sys/module/nvidia/version", "550.163.01\n")
    machine.write("/sys/module/nvidia/refcnt", "2\n")
    machine.write("/sys/module/nvidia/holders/nvidia_uvm")
    machine.write("/proc/driver/nvidia/version", banner)

    module = read_module(machine.host)

    assert module == {
        "loaded": True,
        "version": "550.163.01",
        "flavour": flavour,
        "refcount": 2,
        "holders": ["nvidia_uvm"],
    }


def test_a_node_without_the_module_has_facts_too(machine: Machine) -> None:
    assert read_module(machine.host) == {
        "loaded": False,
        "version": None,
        "flavour": None,
        "refcount": 0,
        "holders": [],
    }


def add_process(machine: Machine, pid: int, *targets: str) -> None:
    machine.write(f"/proc/{pid}/comm", f"job{pid}\n")
    machine.write(f"/proc/{pid}/cgroup", f"0::/kubepods.slice/cri-{pid}.scope\n")
    folder = machine.root / f"proc/{pid}/fd"
    folder.mkdir()
    for number, target in enumerate(targets):
        (folder / str(number)).symlink_to(target)


def test_holders_are_processes_with_an_open_device_node(machine: Machine) -> None:
    add_process(machine, 20, "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia0", "socket:[1]")
    add_process(machine, 3, "/dev/null")
    machine.write("/proc/self-is-no-pid/comm")

    assert read_device_holders(machine.host) == [
        {"pid": 20, "command": "job20", "devices": ["/dev/nvidia0", "/dev/nvidiactl"], "unit": "cri-20.scope"}
    ]


def test_os_release_may_be_quoted_and_incomplete() -> None:
    text = '# a comment\nNAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="13"\n'

    assert parse_os_release(text) == {"id": "debian", "version_id": "13", "codename": ""}
