"""A swap brings the new driver, or the old one back, whatever fails on the way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import PackageVersion

from tests.playbooks.driver.conftest import MIG, NAMES, NEW, OLD, SETTINGS, Staged, make_change, put_driver, stage
from tests.playbooks.driver.machines import DKMS, KERNEL, LAUNCH, OTHER_KERNEL, SERVICE, FakeMachine, Package

if TYPE_CHECKING:
    from collections.abc import Callable


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
    assert [call for call in upgrade.machine.changes()[before:] if "start" not in call and "enable" not in call] == [
        "/usr/lib/grapnel/hook/grapnel-hook refresh"
    ]


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


@pytest.fixture
def provided(fake: FakeMachine) -> Staged:
    """A node whose module something else provides, which has put the new one on the disk; its driver is staged."""
    put_driver(fake, OLD)
    del fake.packages["nvidia-kernel-dkms"]
    fake.on_disk[KERNEL] = (NEW, "proprietary")
    new, old = (
        make_change(
            version,
            flavour="none",
            packages=tuple(PackageVersion(name, f"{version}-2") for name in ("libcuda1", "nvidia-persistenced")),
            kernels=(),
            dkms=None,
        )
        for version in (NEW, OLD)
    )
    return stage(fake, new, old)


def test_a_driver_whose_former_module_is_no_longer_on_disk_does_not_go_back(provided: Staged) -> None:
    provided.machine.broken_smi = {NEW}

    record = provided.run("swap")

    assert record.state == "quarantined"
    assert re.search(f"verify: .*there is no way back: kernel module {OLD} .* and {NEW} is on disk", record.reason)
    assert {name: one.version for name, one in provided.machine.packages.items()} == {
        "libcuda1": f"{NEW}-2",
        "nvidia-persistenced": f"{NEW}-2",
    }
    assert set(provided.machine.loaded.values()) == {NEW}

    provided.machine.broken_smi = set()
    assert provided.run("swap").state == "done"


def test_a_module_that_cannot_be_read_in_time_does_not_count_as_missing(provided: Staged) -> None:
    provided.machine.slow_modinfo = True
    before = list(provided.machine.changes())

    record = provided.run("swap")

    assert record.state == "failed"
    assert re.search("`modinfo .*` took longer than .*try again", record.reason)
    assert provided.machine.changes() == before

    provided.machine.slow_modinfo = False
    assert provided.run("swap").state == "done"


def test_a_way_back_by_hand_waits_for_the_former_module(provided: Staged) -> None:
    provided.run("swap")
    before = list(provided.machine.changes())

    refused = provided.run("back")

    assert refused.state == "failed"
    assert f"kernel module {OLD} would have to be loaded again" in refused.reason
    assert provided.machine.changes() == before

    provided.machine.on_disk[KERNEL] = (OLD, "proprietary")
    assert provided.run("back").state == "done"
    assert set(provided.machine.loaded.values()) == {OLD}


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


def test_a_holder_is_named_before_anything_is_disturbed(upgrade: Staged) -> None:
    machine = upgrade.machine
    machine.write("proc/4711/comm", "train\n")
    machine.write("proc/4711/cgroup", "0::/system.slice/job.service\n")
    machine.write("proc/4711/maps")
    (machine.root / "proc/4711/fd").mkdir()
    (machine.root / "proc/4711/fd/3").symlink_to("/dev/nvidia0")

    record = upgrade.run("swap")

    assert record.state == "failed"
    assert record.reason == "the driver is in use: train (pid 4711, job.service) has /dev/nvidia0 open"
    assert machine.changes() == []
    upgrade.assert_has(OLD, held=False)


def test_a_module_that_cannot_be_read_in_time_is_told_as_that(upgrade: Staged) -> None:
    upgrade.machine.slow_modinfo = True

    record = upgrade.run("swap")

    assert record.state == "quarantined"
    assert re.match("packages: `modinfo .*` took longer than .* s: try again", record.reason)
    assert "lacks the module" not in record.reason

    upgrade.machine.slow_modinfo = False
    assert upgrade.run("swap").state == "done"
    upgrade.assert_has(NEW, held=True)


def test_nothing_is_compiled_out_of_service(fake: FakeMachine) -> None:
    put_driver(fake, OLD)
    change = make_change(NEW, kernels=(KERNEL, OTHER_KERNEL))
    staged = stage(fake, change, make_change(OLD, files=(), services=()))
    (fake.root / f"var/lib/grapnel/driver/staged/{staged.id}/modules/{OTHER_KERNEL}.tar.gz").unlink()
    reseal(staged)

    record = staged.run("swap")

    assert record.state == "failed"
    assert f"no prebuilt module for kernel {OTHER_KERNEL}" in record.reason
    assert fake.changes() == []


def reseal(staged: Staged) -> None:
    from ansible_collections.grapnel.node.plugins.module_utils.driver import seal, store  # noqa: PLC0415 - one use

    seal.seal(staged.machine.host(), store.staged_folder(staged.id))


@pytest.mark.parametrize("scripts_call_dkms", [False, True], ids=["Debian's scripts", "those of RPM packages"])
def test_every_kernel_gets_its_prebuilt_module(fake: FakeMachine, *, scripts_call_dkms: bool) -> None:
    put_driver(fake, OLD)
    fake.scripts_call_dkms = scripts_call_dkms
    fake.write("/etc/dkms/nvidia.conf", "SIGN=1\n")
    change = make_change(NEW, kernels=(KERNEL, OTHER_KERNEL))
    staged = stage(fake, change, make_change(OLD, files=(), services=()))

    assert staged.run("swap").state == "done"

    assert fake.on_disk == {KERNEL: (NEW, "proprietary"), OTHER_KERNEL: (NEW, "proprietary")}
    assert fake.compiled == []
    assert [path.name for path in (fake.root / "etc/dkms").iterdir()] == ["nvidia.conf"]


def test_the_former_module_is_withdrawn_without_indexing_all_modules_twice(upgrade: Staged) -> None:
    upgrade.machine.write(f"/var/lib/dkms/{DKMS}/{OLD}/source")
    upgrade.machine.write(f"/var/lib/dkms/{DKMS}/original_module/x")

    record = upgrade.run("swap")

    assert record.state == "done", record
    assert upgrade.machine.withdrawn == [OLD]
    upgrade.assert_has(NEW, held=True)


def test_where_compiling_is_allowed_a_missing_module_is_compiled(fake: FakeMachine) -> None:
    put_driver(fake, OLD)
    change = make_change(NEW, compile="anywhere")
    staged = stage(fake, change, make_change(OLD, files=(), services=()))
    (fake.root / f"var/lib/grapnel/driver/staged/{staged.id}/modules/{KERNEL}.tar.gz").unlink()
    reseal(staged)

    assert staged.run("swap").state == "done"
    assert NEW in fake.compiled


def test_the_flavour_alone_is_a_reason_to_exchange_the_module(fake: FakeMachine) -> None:
    put_driver(fake, NEW)
    fake.packages["nvidia-kernel-dkms"].version = f"{NEW}-1"
    fake.show()
    former = make_change(NEW, files=(), services=(), packages=(PackageVersion("nvidia-kernel-dkms", f"{NEW}-1"),))
    staged = stage(fake, make_change(NEW, flavour="open"), former)

    record = staged.run("swap")

    assert record.state == "done", record.reason
    assert fake.flavour_loaded == "open"
    assert "rmmod nvidia" in fake.calls
    assert fake.on_disk == {KERNEL: (NEW, "open")}


def update_a_library(machine: FakeMachine) -> None:
    machine.packages["libcuda1"].version = "545.1-1"


def remove_a_library(machine: FakeMachine) -> None:
    del machine.packages["libcuda1"]


def install_a_kernel(machine: FakeMachine) -> None:
    machine.write("boot/vmlinuz-6.13.0-amd64")
    machine.write("lib/modules/6.13.0-amd64/modules.dep")


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        pytest.param(
            update_a_library,
            "stale-way-back: packages were changed after the change was staged: "
            "libcuda1 (535.309.01-2 then, 545.1-1 now) (stage the change again)",
            id="a package was updated",
        ),
        pytest.param(
            remove_a_library,
            "stale-way-back: packages were changed after the change was staged: "
            "libcuda1 (535.309.01-2 then, not installed now) (stage the change again)",
            id="a package was removed",
        ),
        pytest.param(
            install_a_kernel,
            "kernel-not-staged: the kernel 6.13.0-amd64 was installed after the change was staged, "
            "which has no module for it (plan again: the new plan names that kernel, and is staged with a module for "
            "it)",
            id="a kernel was installed",
        ),
    ],
)
def test_a_set_that_no_longer_fits_the_node_is_refused_before_anything_is_disturbed(
    upgrade: Staged, happens: Callable[[FakeMachine], None], words: str
) -> None:
    happens(upgrade.machine)
    upgrade.machine.show()

    record = upgrade.run("swap")

    assert (record.state, record.reason) == ("failed", words)
    assert upgrade.machine.changes() == []


@pytest.mark.parametrize("happens", [update_a_library, remove_a_library, install_a_kernel])
def test_what_was_swapped_in_is_put_right_from_its_own_set(
    upgrade: Staged, happens: Callable[[FakeMachine], None]
) -> None:
    upgrade.run("swap")
    happens(upgrade.machine)
    upgrade.machine.show()

    record = upgrade.run("swap")

    assert record.state == "done", record.reason
    upgrade.assert_has(NEW, held=True)


def test_a_transaction_that_would_take_more_away_is_refused(upgrade: Staged) -> None:
    upgrade.machine.packages["cuda-samples"] = Package("12")
    upgrade.machine.extra_removals = {"cuda-samples"}
    upgrade.machine.show()

    record = upgrade.run("swap")

    assert record.state == "failed"
    assert record.reason == "packages would be removed that the change does not name: cuda-samples"


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
