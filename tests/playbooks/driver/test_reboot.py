"""A module that nothing but a reboot frees is exchanged with one, where that is allowed."""

from __future__ import annotations

import re

import pytest

from tests.playbooks.driver.conftest import (
    NEW,
    NOT_ALLOWED,
    OLD,
    SETTINGS,
    Staged,
    hold_a_gpu,
    pin,
)
from tests.playbooks.driver.machines import KERNEL, SERVICE, FakeMachine

PINNED = "nvidia is in use once by something without a device node open or mapped"


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
