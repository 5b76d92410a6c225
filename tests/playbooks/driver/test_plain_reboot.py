"""A reboot that is no part of a driver change: what keeps a node from it, and what it forgets and gets again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.reboot_note import note, restore
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import NOTE
from ansible_collections.grapnel.node.plugins.module_utils.machine.reboot import (
    is_driver_changing,
    read_boot,
    wait_until_started,
    why_not_reboot,
)
from ansible_collections.grapnel.node.plugins.modules.reboot import look

from tests.playbooks.driver.conftest import MIG, NEW, hold_a_gpu, put_driver
from tests.playbooks.fakes import Machine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.playbooks.driver.machines import FakeMachine

PROGRAM = "usr/lib/grapnel/driver/grapnel-driver"
DAEMON = "usr/lib/grapnel/node/grapnel-node"


@pytest.fixture
def machine(fake: FakeMachine) -> FakeMachine:
    put_driver(fake, NEW)
    fake.write(PROGRAM)
    return fake


def offering(machine: FakeMachine) -> None:
    machine.write(DAEMON)


REFUSALS: dict[str, tuple[Callable[[FakeMachine], None], str]] = {
    "its GPUs are in service": (offering, "the GPUs are in service; take them out of it first: grapnel-node release"),
    "a process holds a GPU": (hold_a_gpu, "the driver is in use: train (pid 4711, job.service) has /dev/nvidia0 open"),
}


@pytest.mark.parametrize(("happens", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_node_whose_work_would_end_is_not_rebooted(
    happens: Callable[[FakeMachine], None], words: str, machine: FakeMachine
) -> None:
    happens(machine)

    assert why_not_reboot(machine.host()) == words


def test_a_released_node_may_be_rebooted(machine: FakeMachine) -> None:
    offering(machine)
    machine.write("var/lib/grapnel/node/released.json", "{}")

    assert look(machine.host(), "boot-1", writes=True) == {"rebooted": False}


def test_in_another_boot_there_is_nothing_to_refuse(machine: FakeMachine) -> None:
    offering(machine)

    assert look(machine.host(), "boot-0", writes=True)["rebooted"] is True


def test_what_a_boot_forgets_is_made_again(machine: FakeMachine) -> None:
    look(machine.host(), "boot-1", writes=True)
    machine.reboot()
    assert "nvidia_drm" not in machine.loaded
    assert machine.mig != MIG

    look(machine.host(), "boot-1", writes=True)

    assert {*machine.loaded} == {"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"}
    assert machine.mig == MIG
    assert not machine.has(NOTE)


def test_whoever_is_killed_before_it_is_made_again_makes_it_the_next_time(machine: FakeMachine) -> None:
    look(machine.host(), "boot-1", writes=True)
    machine.reboot()
    machine.mig_errors = {NEW}
    assert "not cut by mig as they were: error: GPU-0" in restore(machine.host(), "boot-1")
    machine.mig_errors = set()

    assert restore(machine.host(), "boot-1") == ""
    assert machine.mig == MIG


def test_a_note_of_another_boot_is_no_word_about_this_one(machine: FakeMachine) -> None:
    note(machine.host(), "boot-1")
    machine.reboot()

    assert restore(machine.host(), "boot-7") == ""
    assert machine.mig != MIG


def test_a_module_that_does_not_come_back_is_told(machine: FakeMachine) -> None:
    note(machine.host(), "boot-1")
    machine.unloadable = {NEW}
    machine.reboot()

    assert "modules that were loaded before the reboot are not now: nvidia: modprobe: ERROR" in restore(
        machine.host(), "boot-1"
    )


def test_check_mode_writes_nothing(machine: FakeMachine) -> None:
    look(machine.host(), "boot-1", writes=False)

    assert not machine.has(NOTE)


def test_a_node_without_the_program_is_rebooted_as_it_is(fake: FakeMachine) -> None:
    put_driver(fake, NEW)

    look(fake.host(), "boot-1", writes=True)

    assert not fake.has(NOTE)


@pytest.mark.parametrize(
    ("said", "changes"), [("active\n", True), ("activating\n", True), ("inactive\n", False), ("failed\n", False)]
)
def test_a_driver_change_that_runs_is_known(said: str, tmp_path: Path, *, changes: bool) -> None:
    machine = Machine(tmp_path)
    machine.teach("systemctl is-active grapnel-driver.service", said)

    assert is_driver_changing(machine.host) == changes


def test_the_start_is_waited_for_and_a_failed_unit_is_no_matter(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.teach("systemctl is-system-running --wait", "degraded\n", return_code=1)
    machine.write("/proc/sys/kernel/random/boot_id", "4f2a1c0e-6f0b\n")

    assert wait_until_started(machine.host) == "degraded"
    assert read_boot(machine.host) == "4f2a1c0e-6f0b"
