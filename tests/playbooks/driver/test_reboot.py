"""A module that nothing but a reboot frees, and a module for another kernel than the one that runs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver import reboot as reboots
from ansible_collections.grapnel.node.plugins.module_utils.driver.run_record import read_run
from ansible_collections.grapnel.node.plugins.module_utils.driver.status import read_status
from ansible_collections.grapnel.node.plugins.module_utils.driver.store import StoreError

from tests.playbooks.driver.conftest import NEW, OLD, SETTINGS, Staged, make_change, put_driver, stage
from tests.playbooks.driver.machines import KERNEL, OTHER_KERNEL, SERVICE, FakeMachine

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange

PINNED = "nvidia is in use once by something without a device node open or mapped"
NOT_ALLOWED = "only a reboot helps, and the declaration does not allow one: declare driver.reboot: true"


def former() -> DriverChange:
    return make_change(OLD, files=(), services=())


def pin(machine: FakeMachine, *, again: bool = False) -> None:
    """Have the kernel count a use that no process stands for."""
    machine.pinned, machine.pins_again = {"nvidia"}, again
    machine.show()


@pytest.fixture
def allowed(fake: FakeMachine) -> Staged:
    """A node with the older driver, which may be rebooted for the newer one that is staged."""
    put_driver(fake, OLD)
    return stage(fake, make_change(NEW, reboot=True), former())


def test_a_module_that_nobody_uses_by_name_is_exchanged_with_a_reboot(allowed: Staged) -> None:
    pin(allowed.machine)

    asked = allowed.run("swap")

    assert (asked.state, asked.step, asked.reason) == ("needs-reboot", "", "")
    assert asked.reboot == f"kernel module {OLD} is in use, nothing was unloaded: {PINNED}"
    assert set(allowed.machine.loaded.values()) == {OLD}
    assert [step for step, _ in allowed.steps()][-4:] == ["packages", "files", "hold", "initramfs"]

    allowed.machine.reboot()
    record = allowed.run("swap")

    assert (record.state, record.reason, record.run, record.reboots) == ("done", "", asked.run, 1)
    assert record.out_of_service_s is not None
    assert record.out_of_service_s > 0
    assert ("reboot", "done") in allowed.steps()
    assert [call for call in allowed.machine.calls if call.startswith("update-initramfs")] == [
        f"update-initramfs -u -k {KERNEL}"
    ]
    allowed.assert_has(NEW, held=True)


def test_what_the_next_boot_loads_first_is_the_new_driver(allowed: Staged) -> None:
    allowed.machine.initramfs = (OLD, "proprietary")
    pin(allowed.machine)

    allowed.run("swap")
    allowed.machine.reboot()

    assert set(allowed.machine.loaded.values()) == {NEW}


def test_an_initramfs_that_cannot_be_rebuilt_before_a_reboot_is_a_reason_to_go_back(allowed: Staged) -> None:
    allowed.machine.initramfs_error = "mkinitramfs failure: no space on /boot\n"
    pin(allowed.machine)

    record = allowed.run("swap")

    assert record.state == "returned"
    assert record.reason.startswith(f"initramfs: the initramfs of kernel {KERNEL} could not be rebuilt")
    allowed.assert_has(OLD, held=False)


def test_without_leave_to_reboot_nothing_is_changed_and_the_remedy_is_named(upgrade: Staged) -> None:
    pin(upgrade.machine)
    upgrade.machine.running.clear()

    record = upgrade.run("swap")

    assert (record.state, record.reason) == ("failed", f"the driver is in use: {PINNED}; {NOT_ALLOWED}")
    assert upgrade.machine.changes() == []


def test_without_leave_to_reboot_a_use_found_late_leads_back(upgrade: Staged) -> None:
    pin(upgrade.machine)
    hide_the_pin_behind_the_service(upgrade.machine)

    record = upgrade.run("swap")

    assert record.state == "returned"
    assert record.reason == f"unload: kernel module {OLD} is in use, nothing was unloaded: {PINNED}; {NOT_ALLOWED}"
    upgrade.assert_has(OLD, held=False)
    assert not any(call.startswith("env") or "apt-get" in call for call in upgrade.machine.changes())


def hide_the_pin_behind_the_service(machine: FakeMachine) -> None:
    """Have the persistence daemon hold a GPU: while it runs, what else the kernel counts cannot be told apart."""
    machine.write("proc/77/comm", "nvidia-persiste\n")
    machine.write("proc/77/cgroup", f"0::/system.slice/{SERVICE}\n")
    machine.write("proc/77/maps")
    (machine.root / "proc/77/fd").mkdir()
    (machine.root / "proc/77/fd/3").symlink_to("/dev/nvidia0")
    machine.ends_with_service = machine.root / "proc/77"


def hold_a_gpu(machine: FakeMachine) -> None:
    machine.write("proc/4711/comm", "train\n")
    machine.write("proc/4711/cgroup", "0::/system.slice/job.service\n")
    machine.write("proc/4711/maps")
    (machine.root / "proc/4711/fd").mkdir()
    (machine.root / "proc/4711/fd/3").symlink_to("/dev/nvidia0")


def test_no_node_is_rebooted_while_a_process_holds_a_gpu(allowed: Staged) -> None:
    hold_a_gpu(allowed.machine)
    pin(allowed.machine)

    record = allowed.run("swap")

    assert (record.state, record.reason) == (
        "failed",
        "the driver is in use: train (pid 4711, job.service) has /dev/nvidia0 open",
    )


def test_a_use_that_ends_meanwhile_needs_no_reboot(allowed: Staged) -> None:
    pin(allowed.machine)
    allowed.run("swap")
    allowed.machine.pinned = set()
    allowed.machine.show()

    record = allowed.run("swap")

    assert (record.state, record.reboots) == ("done", 0)
    assert ("reboot", "skipped") in allowed.steps()
    allowed.assert_has(NEW, held=True)


def test_asked_again_without_a_reboot_it_waits_as_before(allowed: Staged) -> None:
    pin(allowed.machine)
    first = allowed.run("swap")

    second = allowed.run("swap")

    assert (second.state, second.reboot, second.reboots) == ("needs-reboot", first.reboot, 0)


def test_a_reboot_that_does_not_help_is_not_repeated(allowed: Staged) -> None:
    """The initramfs of another tool has the former driver, and what pins it comes with every boot."""
    pin(allowed.machine, again=True)
    allowed.run("swap")
    allowed.machine.initramfs = (OLD, "proprietary")
    allowed.machine.reboot()

    record = allowed.run("swap")

    assert record.state == "returned", record.reason
    assert re.search(f"^unload: kernel module {OLD} .*; the node was rebooted for that already$", record.reason)
    allowed.assert_has(OLD, held=False)


def test_a_driver_that_fails_after_the_reboot_goes_back(allowed: Staged) -> None:
    allowed.machine.broken_smi = {NEW}
    pin(allowed.machine)
    allowed.run("swap")
    allowed.machine.reboot()

    record = allowed.run("swap")

    assert record.state == "returned"
    assert record.reason.startswith("verify: nvidia-smi fails with 9")
    allowed.assert_has(OLD, held=False)
    assert not allowed.machine.has(SETTINGS)
    assert allowed.machine.initramfs == (OLD, "proprietary")


def test_a_way_back_may_need_a_reboot_of_its_own(allowed: Staged) -> None:
    allowed.machine.broken_smi = {NEW}
    pin(allowed.machine, again=True)
    allowed.run("swap")
    allowed.machine.reboot()

    asked = allowed.run("swap")

    assert (asked.state, asked.direction, asked.reboots) == ("needs-reboot", "back", 0)
    assert asked.reason.startswith("verify: nvidia-smi fails with 9")
    assert PINNED in asked.reboot

    allowed.machine.reboot()
    record = allowed.run("swap")

    assert (record.state, record.step, record.reboots) == ("returned", "verify", 1)
    assert record.reason.startswith("verify: nvidia-smi fails with 9")
    allowed.assert_has(OLD, held=False)


def test_a_node_that_waits_for_a_reboot_may_go_back_instead(allowed: Staged) -> None:
    pin(allowed.machine)
    allowed.run("swap")

    record = allowed.run("back")

    assert record.state == "returned"
    allowed.assert_has(OLD, held=False)


@pytest.mark.parametrize("verb", ["back", "remove"])
def test_going_back_and_removing_may_need_a_reboot_too(allowed: Staged, verb: str) -> None:
    allowed.run("swap")
    pin(allowed.machine)

    assert allowed.run(verb).state == "needs-reboot"
    allowed.machine.reboot()
    record = allowed.run(verb)

    assert (record.state, record.verb, record.reboots) == ("done", verb, 1)
    assert set(allowed.machine.loaded.values()) == ({OLD} if verb == "back" else set())


@pytest.fixture
def other_kernel(fake: FakeMachine) -> Staged:
    """A node whose next boot starts another kernel, which alone the staged driver has a module for."""
    put_driver(fake, OLD)
    fake.on_disk[OTHER_KERNEL] = (OLD, "proprietary")
    fake.kernel = KERNEL
    boots_next(fake, OTHER_KERNEL)
    return stage(
        fake,
        make_change(NEW, reboot=True, kernels=(OTHER_KERNEL,)),
        make_change(OLD, files=(), services=(), kernels=(KERNEL, OTHER_KERNEL)),
    )


def boots_next(machine: FakeMachine, kernel: str) -> None:
    for each in (KERNEL, OTHER_KERNEL):
        machine.write(f"boot/vmlinuz-{each}")
    machine.write("boot/grub/grub.cfg", f"linux /boot/vmlinuz-{kernel} root=/dev/sda1\n")


def test_a_module_for_the_kernel_that_boots_next_is_loaded_after_a_reboot(other_kernel: Staged) -> None:
    machine = other_kernel.machine

    asked = other_kernel.run("swap")

    assert asked.reboot == f"kernel {KERNEL} runs, and the module is for {OTHER_KERNEL}"
    machine.kernel = OTHER_KERNEL
    machine.reboot()
    record = other_kernel.run("swap")

    assert (record.state, record.reason) == ("done", "")
    assert set(machine.loaded.values()) == {NEW}


def test_a_node_that_boots_another_kernel_than_was_staged_for_goes_back(other_kernel: Staged) -> None:
    machine = other_kernel.machine
    other_kernel.run("swap")
    machine.reboot()

    record = other_kernel.run("swap")

    assert record.state == "returned", record.reason
    assert record.reason == (
        f"unload: kernel {KERNEL} runs, and the module is for {OTHER_KERNEL}; the node was rebooted for that already"
    )
    other_kernel.assert_has(OLD, held=False)


def test_no_reboot_into_a_kernel_without_a_module(allowed: Staged) -> None:
    boots_next(allowed.machine, OTHER_KERNEL)
    allowed = stage(allowed.machine, make_change(NEW, reboot=True), former())
    allowed.machine.running.clear()
    pin(allowed.machine)

    record = allowed.run("swap")

    assert record.state == "failed"
    assert record.reason.endswith(
        f"a reboot would not help: it starts kernel {OTHER_KERNEL}, for which there is no module"
    )
    assert allowed.machine.changes() == []


def test_a_change_of_the_kernel_without_leave_to_reboot_changes_nothing(fake: FakeMachine) -> None:
    put_driver(fake, OLD)
    boots_next(fake, OTHER_KERNEL)
    staged = stage(fake, make_change(NEW, kernels=(OTHER_KERNEL,)), former())

    record = staged.run("swap")

    assert (record.state, record.reason) == (
        "failed",
        f"kernel {KERNEL} runs, and the module is for {OTHER_KERNEL}; {NOT_ALLOWED}",
    )
    assert fake.changes() == []


def test_a_way_back_to_a_driver_without_a_module_for_the_running_kernel_changes_nothing(upgrade: Staged) -> None:
    upgrade.run("swap")
    upgrade.machine.kernel = OTHER_KERNEL
    upgrade.machine.on_disk[OTHER_KERNEL] = (NEW, "proprietary")
    before = upgrade.machine.changes()

    record = upgrade.run("back")

    assert (record.state, record.reason) == (
        "failed",
        f"kernel {OTHER_KERNEL} runs, and the module is for {KERNEL}; {NOT_ALLOWED}",
    )
    assert upgrade.machine.changes() == before


def test_the_node_is_rebooted_for_a_change_that_waits_for_it(allowed: Staged) -> None:
    pin(allowed.machine)
    record = allowed.run("swap")

    reason = reboots.reboot(allowed.machine.host())

    assert reason == record.reboot
    assert allowed.machine.calls[-1] == "systemctl --no-block reboot"


def in_service(machine: FakeMachine) -> None:
    machine.write("usr/lib/grapnel/node/grapnel-node")


def rebooted(machine: FakeMachine) -> None:
    machine.reboot()


REFUSALS: dict[str, tuple[Callable[[FakeMachine], None], str]] = {
    "the GPUs are in service": (in_service, "not rebooted: the GPUs are in service; .*grapnel-node release"),
    "a process holds a GPU": (hold_a_gpu, r"not rebooted: the driver is in use: train \(pid 4711, job.service\)"),
    "it was rebooted already": (rebooted, "the node was rebooted already: run `swap [0-9a-f]{12}`"),
}


@pytest.mark.parametrize(("happens", "words"), REFUSALS.values(), ids=REFUSALS)
def test_the_node_is_not_rebooted(allowed: Staged, happens: Callable[[FakeMachine], None], words: str) -> None:
    pin(allowed.machine)
    allowed.run("swap")
    happens(allowed.machine)

    with pytest.raises(StoreError, match=words):
        reboots.reboot(allowed.machine.host())
    assert "systemctl --no-block reboot" not in allowed.machine.calls


def test_released_gpus_may_be_rebooted(allowed: Staged) -> None:
    pin(allowed.machine)
    allowed.run("swap")
    in_service(allowed.machine)
    allowed.machine.write("var/lib/grapnel/node/released.json", "{}")

    assert reboots.reboot(allowed.machine.host())


def test_no_node_is_rebooted_without_a_change_that_waits(upgrade: Staged) -> None:
    upgrade.run("swap")

    with pytest.raises(StoreError, match="no driver change waits for a reboot of this node"):
        reboots.reboot(upgrade.machine.host())


def test_the_status_tells_whether_the_reboot_is_still_to_come(allowed: Staged) -> None:
    host = allowed.machine.host()
    pin(allowed.machine)
    allowed.run("swap")

    waiting = read_status(host)
    allowed.machine.reboot()
    after = read_status(host)
    allowed.run("swap")

    assert (waiting["reboot_due"], waiting["run"]["step"]) == (True, "reboot")
    assert (after["reboot_due"], after["run"]["state"]) == (False, "needs-reboot")
    assert read_status(host)["reboot_due"] is False


def test_a_record_of_an_older_program_is_read(allowed: Staged) -> None:
    allowed.run("swap")
    host = allowed.machine.host()
    place = allowed.machine.root / "var/lib/grapnel/driver/run.json"
    record = json.loads(place.read_text())
    for key in ("reboot", "asked_in", "reboots"):
        del record[key]
    place.write_text(json.dumps(record))

    read = read_run(host)

    assert read is not None
    assert (read.state, read.reboots) == ("done", 0)
