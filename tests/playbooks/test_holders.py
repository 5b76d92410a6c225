"""Processes that hold a GPU: who they are, and what is told of them."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
from ansible_collections.grapnel.node.plugins.module_utils.use.device_holders import read_device_holders
from ansible_collections.grapnel.node.plugins.module_utils.use.modules import describe_holder

if TYPE_CHECKING:
    from typing import BinaryIO

    from tests.playbooks.fakes import Machine

UID, ID = "1f0c2d3e-4b5a-4c6d-8e7f-9a0b1c2d3e4f", "7d9f3c0a" * 8
CGROUPS = {
    "cgroupfs": f"/kubepods/burstable/pod{UID}/{ID}",
    "systemd": f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope",
    "two drivers": f"/system.slice/kubepods-besteffort-pod{UID.replace('-', '_')}.slice:cri-containerd:{ID}",
}


def add_process(machine: Machine, pid: int, *targets: str, cgroup: str = "/system.slice/job.service") -> None:
    machine.write(f"/proc/{pid}/comm", f"job{pid}\n")
    machine.write(f"/proc/{pid}/cgroup", f"0::{cgroup}\n")
    machine.write(f"/proc/{pid}/maps")
    folder = machine.root / f"proc/{pid}/fd"
    folder.mkdir()
    for number, target in enumerate(targets):
        (folder / str(number)).symlink_to(target)


def test_holders_are_processes_with_an_open_device_node(machine: Machine) -> None:
    add_process(machine, 20, "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia0", "socket:[1]")
    add_process(machine, 3, "/dev/null")
    machine.write("/proc/self-is-no-pid/comm")

    assert read_device_holders(machine.host) == [
        {
            "pid": 20,
            "command": "job20",
            "devices": ["/dev/nvidia0", "/dev/nvidiactl"],
            "unit": "job.service",
            "is_driver_service": False,
            "pod_uid": None,
            "container_id": None,
        }
    ]


@pytest.mark.parametrize("cgroup", CGROUPS.values(), ids=CGROUPS)
def test_a_holder_in_a_pod_is_told_with_pod_and_container(cgroup: str, machine: Machine) -> None:
    add_process(machine, 20, "/dev/nvidia0", cgroup=cgroup)

    (holder,) = read_device_holders(machine.host)

    assert (holder["pod_uid"], holder["container_id"]) == (UID, ID)


def test_the_node_daemon_has_its_name_also_as_a_pod(machine: Machine) -> None:
    lock = machine.write("/run/grapnel/node.lock", "pod a/b")
    seen = lock.stat()
    number = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    machine.write(
        "/proc/locks", f"1: POSIX  ADVISORY  WRITE 3 {number} 0 EOF\n2: FLOCK  ADVISORY  WRITE 20 {number} 0 EOF\n"
    )
    cgroup = CGROUPS["cgroupfs"]
    add_process(machine, 20, "/dev/nvidiactl", cgroup=cgroup)
    add_process(machine, 21, "/dev/nvidia0", cgroup=cgroup)

    assert [holder["unit"] for holder in read_device_holders(machine.host)] == ["grapnel-node.service", None]


def test_a_service_of_the_driver_is_told_from_work(machine: Machine) -> None:
    add_process(machine, 20, "/dev/nvidiactl", cgroup="/system.slice/nvidia-persistenced.service")

    (holder,) = read_device_holders(machine.host)

    assert holder["is_driver_service"] is True


@pytest.mark.parametrize("between", ["", "/x\x85", "/machine.slice"])
def test_a_unit_that_a_user_made_below_another_is_no_service_of_the_driver(between: str, machine: Machine) -> None:
    forged = f"/user.slice/user@1000.service{between}/nvidia-persistenced.service"
    add_process(machine, 20, "/dev/nvidia0", cgroup=forged)

    (holder,) = read_device_holders(machine.host)

    assert (holder["unit"], holder["is_driver_service"]) == ("user@1000.service", False)


def test_a_pod_that_a_user_made_up_is_none(machine: Machine) -> None:
    add_process(machine, 20, "/dev/nvidia0", cgroup=f"/user.slice/user@1000.service{CGROUPS['systemd']}")

    (holder,) = read_device_holders(machine.host)

    assert holder["pod_uid"] is None


def test_names_that_a_user_chose_are_fit_for_a_message(machine: Machine) -> None:
    names = [f"/dev/nvidia\x1b]0;{number}\x07" for number in range(100)]
    add_process(machine, 20, *names, cgroup="/system.slice/a\x9b;" + "b" * 400 + ".service")
    machine.write("/proc/20/comm", "\x1b[2Jevil\u202e\n")

    (holder,) = read_device_holders(machine.host)

    assert holder["command"] == r"\x1b[2Jevil\u202e"
    assert holder["unit"].startswith(r"a\x9b;bbb")
    assert (len(holder["unit"]), len(holder["devices"])) == (256, 64)
    line = describe_holder(holder)
    assert line.isprintable()
    assert len(line) == 500


class Hanging(Host):
    """A machine with a process whose memory is locked by a call that hangs."""

    may_go_on = threading.Event()

    def open(self, absolute: str) -> BinaryIO:
        if absolute.endswith("/maps"):
            self.may_go_on.wait()
        return super().open(absolute)


def test_mappings_that_cannot_be_read_in_time_leave_the_descriptors(machine: Machine) -> None:
    add_process(machine, 20, "/dev/nvidia0")
    host = Hanging(machine.root, machine.host.run)

    (holder,) = read_device_holders(host, patience_s=0.01)
    host.may_go_on.set()

    assert holder["devices"] == ["/dev/nvidia0"]


@pytest.mark.slow
def test_a_thousand_holders_are_told_and_no_more(machine: Machine) -> None:
    for pid in range(1, 1003):
        add_process(machine, pid, "/dev/nvidia0")

    assert len(read_device_holders(machine.host)) == 1000
