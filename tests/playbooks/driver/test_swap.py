"""A swap brings the new driver, or the old one back, whatever fails on the way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.playbooks.driver.conftest import MIG, NAMES, NEW, OLD, SETTINGS, Staged, make_change, put_driver, stage
from tests.playbooks.driver.machines import KERNEL, LAUNCH, SERVICE, FakeMachine, Package

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_an_upgrade_takes_every_step_in_order(upgrade: Staged) -> None:
    record = upgrade.run("swap")

    assert (record.state, record.reason, record.changed) == ("done", "", True)
    assert record.out_of_service_s is not None
    assert record.out_of_service_s > 0
    upgrade.assert_has(NEW, held=True)
    assert [step for step, _ in upgrade.steps()] == [
        "repair", "check", "mark", "stop-services", "unload", "packages", "files", "hold", "load", "device-nodes",
        "mig", "start-services", "inventory", "verify", "adopt", "initramfs", "finish",
    ]  # fmt: skip
    assert (upgrade.machine.root / SETTINGS[1:]).read_text() == f"# {NEW}\n"


def test_a_package_that_somebody_else_holds_stays_held(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    put_driver(machine, OLD)
    machine.packages["libcuda1"].held = True
    staged = stage(machine, make_change(NEW, hold=False), make_change(OLD, files=(), services=()))

    record = staged.run("swap")
    assert (record.state, record.reason) == ("done", "")
    assert {name for name, one in machine.packages.items() if one.held} == {"libcuda1"}

    assert staged.run("back").state == "done"
    assert {name for name, one in machine.packages.items() if one.held} == {"libcuda1"}


def test_the_initramfs_is_rebuilt_once_and_after_the_driver_is_verified(upgrade: Staged) -> None:
    upgrade.run("swap")

    calls = upgrade.machine.calls
    (place,) = [number for number, call in enumerate(calls) if call.startswith("update-initramfs")]
    assert place > calls.index("/usr/bin/nvidia-smi -L")


def test_a_first_installation_leaves_a_driver_that_works(first: Staged) -> None:
    record = first.run("swap")

    assert record.state == "done"
    first.assert_has(NEW, held=True)


def test_a_second_swap_of_the_same_change_changes_nothing(upgrade: Staged) -> None:
    upgrade.run("swap")
    before = len(upgrade.machine.changes())

    record = upgrade.run("swap")

    assert (record.state, record.changed, record.out_of_service_s) == ("done", False, 0.0)
    of_running_services = ("systemctl enable", "systemctl reset-failed", "systemctl start")
    changes = [call for call in upgrade.machine.changes()[before:] if not call.startswith(of_running_services)]
    assert changes == ["/usr/lib/grapnel/hook/grapnel-hook refresh"]


def refuse_module(machine: FakeMachine) -> None:
    machine.unloadable = {NEW}


def fail_postinst(machine: FakeMachine) -> None:
    machine.failing_packages = {("nvidia-persistenced", f"{NEW}-2")}


def break_smi(machine: FakeMachine) -> None:
    machine.broken_smi = {NEW}


def fill_disk(machine: FakeMachine) -> None:
    machine.is_disk_full = True


FAULTS: dict[str, tuple[Callable[[FakeMachine], None], str]] = {
    "the kernel refuses the module": (refuse_module, "load: .*Key was rejected by service"),
    "a package's script fails": (fail_postinst, "packages: .*error processing package nvidia-persistenced"),
    "the GPUs do not answer": (break_smi, "verify: nvidia-smi fails with 9"),
    "the disk is full": (fill_disk, "packages: the disk is full: .*No space left on device.*; make room"),
}


@pytest.mark.parametrize(("break_", "reason"), FAULTS.values(), ids=FAULTS)
def test_a_failed_upgrade_goes_back_by_itself(
    break_: Callable[[FakeMachine], None], reason: str, upgrade: Staged
) -> None:
    break_(upgrade.machine)
    upgrade.machine.write(SETTINGS, "# of the administrator\n")
    upgrade = stage(upgrade.machine, make_change(NEW), make_change(OLD, files=(), services=()))

    record = upgrade.run("swap")

    assert record.state == "returned"
    assert re.search(reason, record.reason), record.reason
    upgrade.assert_has(OLD, held=False)
    assert (upgrade.machine.root / SETTINGS[1:]).read_text() == "# of the administrator\n"


@pytest.mark.parametrize(("break_", "reason"), list(FAULTS.values())[:3], ids=list(FAULTS)[:3])
def test_a_failed_first_installation_leaves_a_clean_node(
    break_: Callable[[FakeMachine], None], reason: str, first: Staged
) -> None:
    del reason
    break_(first.machine)

    record = first.run("swap")

    assert record.state == "returned", record.reason
    first.assert_has("", held=False)
    assert not first.machine.has(SETTINGS)


def test_a_way_back_that_fails_too_is_a_quarantine_with_both_reasons(upgrade: Staged) -> None:
    upgrade.machine.unloadable = {NEW, OLD}

    record = upgrade.run("swap")

    assert record.state == "quarantined"
    assert record.reason.startswith("load: kernel module 550.163.01 cannot be loaded")
    assert "going back failed at back-load: kernel module 535.309.01 cannot be loaded" in record.reason


def test_a_quarantined_node_recovers_when_the_cause_is_gone(upgrade: Staged) -> None:
    upgrade.machine.unloadable = {NEW, OLD}
    upgrade.run("swap")
    upgrade.machine.unloadable = set()

    assert upgrade.run("swap").state == "done"
    upgrade.assert_has(NEW, held=True)


def test_going_back_by_hand_from_a_quarantine(upgrade: Staged) -> None:
    upgrade.machine.unloadable = {NEW, OLD}
    upgrade.run("swap")
    upgrade.machine.unloadable = {NEW}

    assert upgrade.run("back").state == "done"
    upgrade.assert_has(OLD, held=False)


def test_an_initramfs_that_cannot_be_rebuilt_is_a_warning(upgrade: Staged) -> None:
    upgrade.machine.initramfs_error = "mkinitramfs failure: no space on /boot\n"

    record = upgrade.run("swap")

    assert record.state == "done"
    assert f"the initramfs of kernel {KERNEL} could not be rebuilt" in record.reason
    upgrade.assert_has(NEW, held=True)


def test_back_returns_to_the_driver_before(upgrade: Staged) -> None:
    upgrade.run("swap")

    record = upgrade.run("back")

    assert (record.state, record.verb) == ("done", "back")
    upgrade.assert_has(OLD, held=False)
    assert not upgrade.machine.has(SETTINGS)


def test_remove_gives_everything_back(first: Staged) -> None:
    first.run("swap")

    record = first.run("remove")

    assert record.state == "done", record.reason
    first.assert_has("", held=False)
    assert not first.machine.has(SETTINGS)
    assert not first.machine.has("/var/lib/grapnel/driver/current")
    assert list((first.machine.root / "var/lib/grapnel/driver/staged").iterdir()) == []


def test_remove_leaves_what_others_need(first: Staged) -> None:
    first.run("swap")
    first.machine.packages["pytorch"] = Package("2")
    first.machine.extra_removals = {"pytorch"}
    first.machine.show()

    record = first.run("remove")

    assert record.state == "failed"
    assert "pytorch" in record.reason


def test_gpus_are_cut_by_mig_as_before(upgrade: Staged) -> None:
    upgrade.run("swap")

    assert upgrade.machine.mig == MIG
    calls = upgrade.machine.calls
    assert calls.index(f"{LAUNCH} mig") < calls.index("rmmod nvidia")
    assert calls.index(f"{LAUNCH} mig restore") < calls.index(f"systemctl start {SERVICE}")


def test_gpus_that_the_new_driver_cannot_cut_have_the_old_one_again_and_are_cut(upgrade: Staged) -> None:
    upgrade.machine.mig_errors = {NEW}

    record = upgrade.run("swap")

    assert record.state == "returned"
    assert record.reason == (
        "mig: the mig instances cannot be made again: error: GPU-0: this driver has no mig profile 9 for it"
    )
    upgrade.assert_has(OLD, held=False)


def test_a_layout_that_nvml_does_not_tell_is_noted_and_nothing_is_cut(upgrade: Staged) -> None:
    upgrade.machine.mig_unreadable = True

    record = upgrade.run("swap")

    assert record.state == "done"
    assert upgrade.machine.mig == {}
    (mark,) = (one for one in upgrade.details() if one.startswith("loaded: "))
    assert mark.endswith(
        "what mig has cut is not known: the mig layout cannot be read: Driver/library version mismatch"
    )


def test_what_was_loaded_and_ran_before_is_there_again(upgrade: Staged) -> None:
    upgrade.run("swap")

    assert set(upgrade.machine.loaded) == {"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"}
    assert upgrade.machine.running == {SERVICE}
    assert set(upgrade.machine.packages) == set(NAMES)
