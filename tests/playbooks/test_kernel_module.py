"""Replacing the kernel module: all or nothing, holders are named, a kill at any point is recovered from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.before import restore
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import HOME
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap import steps
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import NeedsRebootError, Node, StepError
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.target import Target
from ansible_collections.grapnel.node.plugins.module_utils.kernel.exchange import KernelModuleError, read_loaded
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import DAEMON_UNIT, RELOAD_MARK
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.transaction import Apt
from ansible_collections.grapnel.node.plugins.module_utils.use.modules import find_obstacles

from tests.playbooks.driver.conftest import make_change
from tests.playbooks.fakes import Kernel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished

    from tests.playbooks.fakes import Machine

OLD, NEW = "535.309.01", "550.163.01"
ALL = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm")
RESTORE = f"{HOME}/restore.json"


def stopped_clock() -> Clock:
    """Time goes by as one sleeps."""
    moments = [0.0]
    return Clock(lambda: moments[0], lambda seconds: moments.__setitem__(0, moments[0] + seconds))


def exchange(machine: Machine, version: str = NEW, host: Host | None = None, clock: Clock | None = None) -> None:
    """Take those steps of a driver change that concern the module, in their order."""
    (machine.root / HOME[1:]).mkdir(parents=True, exist_ok=True)
    node = Node(host or machine.host, Apt(), clock or stopped_clock(), make_file)
    change = make_change(version, flavour="none", packages=(), files=(), kernels=(), dkms=None, services=())
    target = Target(change, "", (), {})
    steps.require_free(node, target)
    for step in (steps.mark, steps.stop_services, steps.unload, steps.load, steps.make_device_nodes):
        step(node, target)
    steps.start_services(node, target)
    restore.forget(node.host)


def make_file(path: Path, *_: object) -> None:
    path.touch()


def changes(machine: Machine) -> list[str]:
    """Return the commands that changed something."""
    looks = ("modprobe --show", "modinfo", "systemctl show", "/usr/lib/grapnel/driver")
    return [call for call in machine.calls if not call.startswith(looks)]


def is_marked(machine: Machine) -> bool:
    marks = {(machine.root / path.lstrip("/")).exists() for path in (RELOAD_MARK, RESTORE)}
    assert len(marks) == 1  # what gathers facts is told as long as there is something to restore
    return marks.pop()


def test_what_was_loaded_is_unloaded_and_loaded_again_in_the_other_version(machine: Machine) -> None:
    kernel = Kernel(machine, OLD, NEW)

    exchange(machine)

    assert kernel.loaded == dict.fromkeys(ALL, NEW)
    assert changes(machine) == [
        "rmmod nvidia_drm",
        "rmmod nvidia_modeset",
        "rmmod nvidia_uvm",
        "rmmod nvidia",
        "modprobe nvidia",
        "modprobe nvidia_uvm",
        "modprobe nvidia_modeset",
        "modprobe nvidia_drm",
    ]
    assert not is_marked(machine)
    assert read_loaded(machine.host).version == NEW


def test_a_node_without_a_loaded_module_gets_what_cuda_needs(machine: Machine) -> None:
    kernel = Kernel(machine, None, NEW)

    exchange(machine)

    assert kernel.loaded == {"nvidia": NEW, "nvidia_uvm": NEW}


def test_the_driver_s_services_are_stopped_and_run_again(machine: Machine) -> None:
    kernel = Kernel(machine, OLD, NEW, service=True)

    exchange(machine)

    assert kernel.service_runs
    done = changes(machine)
    assert done[0] == f"systemctl stop {Kernel.SERVICE}"
    assert done[-1] == f"systemctl start {Kernel.SERVICE}"


def test_a_driver_that_is_exchanged_often_in_a_short_time_has_its_services(machine: Machine) -> None:
    """A swap failed because the swaps and returns before it had started the service five times."""
    kernel = Kernel(machine, OLD, OLD, service=True)

    for version in (NEW, OLD) * 4:
        kernel.on_disk = version
        exchange(machine, version)

    assert kernel.service_runs


def test_whoever_holds_a_gpu_is_named_before_anything_is_changed(machine: Machine) -> None:
    kernel = Kernel(machine, OLD, NEW, service=True)
    kernel.add_process(4711, "train", "job.scope")

    with pytest.raises(StepError) as raised:
        exchange(machine)

    assert str(raised.value) == "the driver is in use: train (pid 4711, job.scope) has /dev/nvidia0 open"
    assert changes(machine) == []
    assert not is_marked(machine)


def test_a_stranger_among_the_modules_is_named_before_anything_is_changed(machine: Machine) -> None:
    Kernel(machine, OLD, NEW)
    machine.write("/sys/module/nvidia/holders/vendor_rdma")

    with pytest.raises(StepError, match="kernel module vendor_rdma, which is not the driver's, uses nvidia"):
        exchange(machine)

    assert changes(machine) == []


def test_gdrcopys_module_goes_before_the_driver_and_comes_back(machine: Machine) -> None:
    """NVIDIA/gpu-driver-container 869: gdrdrv stayed loaded, and so did the driver beneath it."""
    kernel = Kernel(machine, OLD, NEW, more=("gdrdrv",))

    exchange(machine)

    assert kernel.loaded == dict.fromkeys((*ALL, "gdrdrv"), NEW)


def test_a_use_without_a_process_is_told_before_anything_is_changed(machine: Machine) -> None:
    kernel = Kernel(machine, OLD, NEW)
    kernel.use("nvidia_drm")

    with pytest.raises(StepError, match="nvidia_drm is in use once by something without a device node open"):
        exchange(machine)

    assert changes(machine) == []


def test_a_kernel_that_cannot_unload_modules_is_told_before_anything_is_changed(machine: Machine) -> None:
    """Such a kernel, seen with an H100, counts no users: nobody seemed to be in the way, and rmmod failed."""
    Kernel(machine, OLD, NEW)
    for name in ALL:
        (machine.root / f"sys/module/{name}/refcnt").unlink()

    with pytest.raises(StepError, match=r"cannot unload nvidia_drm, .*, nvidia .*only a reboot helps"):
        exchange(machine)

    assert changes(machine) == []


def test_a_use_that_the_services_had_hidden_is_found_before_anything_is_unloaded(machine: Machine) -> None:
    kernel = Kernel(machine, OLD, NEW, service=True)
    kernel.use("nvidia_drm")

    with pytest.raises(NeedsRebootError, match="nothing was unloaded: nvidia_drm is in use once"):
        exchange(machine)

    assert kernel.loaded == dict.fromkeys(ALL, OLD)
    exchange(machine, OLD)  # the way back
    assert kernel.service_runs
    assert not is_marked(machine)


def test_a_process_that_is_just_ending_is_waited_for(machine: Machine) -> None:
    kernel = Kernel(machine, OLD, NEW, service=True)
    kernel.use("nvidia")

    exchange(machine, clock=Clock(lambda: 0.0, lambda _seconds: kernel.use()))

    assert kernel.loaded == dict.fromkeys(ALL, NEW)


def hold_during(machine: Machine, kernel: Kernel, command: str) -> None:
    """Open a GPU in the middle, which cannot be foreseen."""
    known = machine._answers[command]

    def grab() -> Finished:
        done = known()
        kernel.add_process(99, "late", "late.service")
        return done

    machine.teach(command, grab)


def test_what_was_unloaded_in_vain_is_loaded_again_if_it_can_be(machine: Machine) -> None:
    kernel = Kernel(machine, OLD, NEW, service=True)
    hold_during(machine, kernel, "rmmod nvidia_modeset")
    known = machine._answers["rmmod nvidia"]

    def fail() -> Finished:
        kernel.on_disk = OLD  # as if the module's own files were still there
        return known()

    machine.teach("rmmod nvidia", fail)

    with pytest.raises(KernelModuleError) as raised:
        exchange(machine)

    assert "nvidia cannot be unloaded: rmmod: ERROR: Module nvidia is in use; late (pid 99, late.service)" in str(
        raised.value
    )
    assert "loaded again: nvidia_uvm, nvidia_modeset, nvidia_drm" in str(raised.value)
    assert kernel.loaded == dict.fromkeys(ALL, OLD)
    kernel.end_process(99)
    exchange(machine, OLD)  # the way back
    assert kernel.service_runs
    assert not is_marked(machine)


def test_what_cannot_be_loaded_again_is_told_and_made_up_for_by_the_next_run(machine: Machine) -> None:
    kernel = Kernel(machine, OLD, NEW)
    hold_during(machine, kernel, "rmmod nvidia_modeset")

    with pytest.raises(KernelModuleError, match=r"nvidia_drm was unloaded and cannot be loaded again: .*Invalid"):
        exchange(machine)
    assert is_marked(machine)
    kernel.end_process(99)
    exchange(machine)

    assert kernel.loaded == dict.fromkeys(ALL, NEW)
    assert not is_marked(machine)


def test_a_module_that_cannot_be_loaded_is_told_in_the_kernel_s_words(machine: Machine) -> None:
    kernel = Kernel(machine, OLD, NEW, service=True)
    kernel.broken = {"nvidia"}
    machine.teach("modinfo /nvidia.ko", "signer: Somebody\n")

    with pytest.raises(KernelModuleError) as raised:
        exchange(machine)

    assert str(raised.value) == (
        "kernel module 550.163.01 cannot be loaded, so none is loaded now: "
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service (the kernel does not have the "
        "certificate of whoever signed it: compare `modinfo -F signer nvidia` with `mokutil --list-enrolled`)"
    )
    assert is_marked(machine)
    kernel.broken, kernel.on_disk = set(), OLD
    exchange(machine, OLD)  # the way back
    assert kernel.loaded == dict.fromkeys(ALL, OLD)
    assert kernel.service_runs


def test_a_module_that_nobody_signed_is_told_from_one_whose_signer_is_not_known(machine: Machine) -> None:
    kernel = Kernel(machine, OLD, NEW, service=True)
    kernel.broken = {"nvidia"}
    machine.teach("modinfo /nvidia.ko", "version: 550.163.01\n")

    with pytest.raises(KernelModuleError, match=r"Key was rejected by service \(it is not signed"):
        exchange(machine)


def test_a_signer_that_modinfo_cannot_read_is_not_nobody(machine: Machine) -> None:
    """Without OpenSSL, modinfo shows that there is a signature, and an empty name."""
    kernel = Kernel(machine, OLD, NEW, service=True)
    kernel.broken = {"nvidia"}
    machine.teach("modinfo /nvidia.ko", "sig_id:         PKCS#7\nsigner:         \nsig_hashalgo:   unknown\n")

    with pytest.raises(KernelModuleError, match=r"the certificate of whoever signed it"):
        exchange(machine)


@pytest.mark.parametrize("asked", ["modinfo /nvidia.ko", "modprobe --show-depends nvidia"])
def test_the_kernel_s_words_are_told_where_nobody_says_who_signed_the_module(machine: Machine, asked: str) -> None:
    kernel = Kernel(machine, OLD, NEW, service=True)
    kernel.broken = {"nvidia"}
    machine.teach("modinfo /nvidia.ko", "signer: Somebody\n")
    machine.teach(asked, return_code=124)

    with pytest.raises(KernelModuleError, match=r"Key was rejected by service"):
        exchange(machine)


def test_a_module_that_was_loaded_before_and_cannot_be_again_is_a_failure(machine: Machine) -> None:
    kernel = Kernel(machine, OLD, NEW)
    kernel.broken = {"nvidia_drm"}

    with pytest.raises(KernelModuleError, match=r"550\.163\.01 is loaded, but not nvidia_drm: modprobe: ERROR"):
        exchange(machine)

    assert is_marked(machine)
    kernel.broken = set()
    exchange(machine)
    assert kernel.loaded == dict.fromkeys(ALL, NEW)
    assert not is_marked(machine)


def test_a_service_that_does_not_start_again_is_a_failure_that_the_next_run_repeats(machine: Machine) -> None:
    kernel = Kernel(machine, OLD, NEW, service=True)
    known = machine._answers[f"systemctl start {Kernel.SERVICE}"]
    machine.teach(f"systemctl start {Kernel.SERVICE}", return_code=1, stderr="Job failed.\n")

    with pytest.raises(StepError, match=rf"^systemctl start {Kernel.SERVICE}: Job failed"):
        exchange(machine)
    assert is_marked(machine)
    machine.teach(f"systemctl start {Kernel.SERVICE}", known)
    exchange(machine)

    assert kernel.service_runs
    assert kernel.loaded == dict.fromkeys(ALL, NEW)
    assert not is_marked(machine)


@pytest.mark.parametrize(
    ("on_disk", "reason"),
    [
        (OLD, r"kernel module 535\.309\.01 was loaded instead of 550\.163\.01"),
        (None, r"kernel module 550\.163\.01 cannot be loaded, so none is loaded now"),
    ],
)
@pytest.mark.parametrize("loaded", [OLD, None])
def test_a_version_that_is_not_on_disk_is_a_failure(
    loaded: str | None, on_disk: str | None, reason: str, machine: Machine
) -> None:
    kernel = Kernel(machine, loaded, on_disk)

    with pytest.raises(KernelModuleError, match=f"^{reason}"):
        exchange(machine)

    assert is_marked(machine)
    kernel.on_disk = NEW
    exchange(machine)
    assert set(kernel.loaded.items()) >= {("nvidia", NEW), ("nvidia_uvm", NEW)}
    assert not is_marked(machine)


def test_a_loaded_version_need_not_be_on_disk(machine: Machine) -> None:
    kernel = Kernel(machine, NEW, None)

    exchange(machine)

    assert kernel.loaded == dict.fromkeys(ALL, NEW)
    assert changes(machine) == []


def test_the_daemon_counts_until_it_has_released_the_gpus(machine: Machine) -> None:
    kernel = Kernel(machine, OLD, NEW)
    kernel.add_process(812, "grapnel-node", DAEMON_UNIT)

    with pytest.raises(
        StepError, match=r"in use: grapnel-node \(pid 812, grapnel-node\.service\) has /dev/nvidia0 open$"
    ):
        exchange(machine)

    assert find_obstacles(machine.host, {DAEMON_UNIT}) == []
    exchange(machine, OLD)  # that needs no unloading
    kernel.end_process(812)
    exchange(machine)
    assert kernel.loaded == dict.fromkeys(ALL, NEW)


def test_a_mark_that_cannot_be_read_goes_when_everything_is_there(machine: Machine) -> None:
    kernel = Kernel(machine, NEW, NEW)
    machine.write(RELOAD_MARK, "{")
    machine.write(RESTORE, "{")

    exchange(machine)

    assert kernel.loaded == dict.fromkeys(ALL, NEW)
    assert not is_marked(machine)


class KilledError(BaseException):
    """The process ends here."""


def killed_at(machine: Machine, number: int) -> Host:
    """Return the machine for a process that is killed after this many commands."""
    left = [number]
    known = machine.host.run

    def run(arguments: Sequence[str], timeout_s: float) -> Finished:
        if not left[0]:
            raise KilledError
        left[0] -= 1
        return known(arguments, timeout_s)

    return Host(machine.root, run)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(40))
def test_a_kill_at_any_command_is_made_up_for_by_the_next_run(number: int, machine: Machine) -> None:
    kernel = Kernel(machine, OLD, NEW, service=True, more=("gdrdrv",))
    try:
        exchange(machine, host=killed_at(machine, number))
    except KilledError:
        exchange(machine)

    assert kernel.loaded == dict.fromkeys((*ALL, "gdrdrv"), NEW)
    assert kernel.service_runs
    assert not is_marked(machine)


def test_the_mark_holds_what_is_to_be_restored(machine: Machine) -> None:
    Kernel(machine, OLD, NEW, service=True)

    def die() -> Finished:
        raise KilledError

    machine.teach("rmmod nvidia_drm", die)
    with pytest.raises(KilledError):
        exchange(machine)

    noted = {"modules": ["nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia"], "services": [Kernel.SERVICE]}
    assert json.loads(machine.read(RELOAD_MARK)) == noted
    assert json.loads(machine.read(RESTORE)) == {**noted, "mig": {}}


@pytest.mark.parametrize("status", [0, 1], ids=["labelled", "what cannot be labelled keeps no driver from coming"])
def test_device_nodes_get_the_label_that_selinux_has_for_them(machine: Machine, status: int) -> None:
    kernel = Kernel(machine, OLD, NEW)
    machine.write("/sys/fs/selinux/enforce", "1")
    machine.write("/usr/sbin/restorecon", mode=0o755)
    machine.write("/dev/nvidia0")
    machine.teach("restorecon -R -F", return_code=status)

    exchange(machine)

    assert kernel.loaded == dict.fromkeys(ALL, NEW)
    assert any(call.startswith("restorecon -R -F /dev/nvidia0") for call in machine.calls)
