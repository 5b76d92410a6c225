"""A module for another kernel than the one that runs needs the reboot into that kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.playbooks.driver.conftest import (
    NEW,
    NOT_ALLOWED,
    OLD,
    boots_next,
    former,
    make_change,
    pin,
    put_driver,
    stage,
)
from tests.playbooks.driver.machines import KERNEL, OTHER_KERNEL

if TYPE_CHECKING:
    from tests.playbooks.driver.conftest import Staged
    from tests.playbooks.driver.machines import FakeMachine


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
