"""A driver that is new on a machine has the modules that the machine's next boot would load, and their device nodes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.playbooks.fakes import Kernel
from tests.playbooks.test_kernel_module import NEW, OLD, exchange

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

BOOT = {
    "systemd's list": {"/etc/modules-load.d/gpu.conf": "# of the site\nnvidia\nnvidia-drm\n"},
    "a list of a package": {"/usr/lib/modules-load.d/x.conf": "nvidia_modeset\nnvidia_drm\n"},
    "the modalias of a GPU": {
        "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
        "/sys/bus/pci/devices/0000:01:00.0/modalias": "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00\n",
    },
}


@pytest.mark.parametrize("files", BOOT.values(), ids=BOOT)
def test_a_driver_that_is_new_here_has_the_modules_that_the_next_boot_would_load(
    machine: Machine, files: dict[str, str]
) -> None:
    kernel = Kernel(machine, None, on_disk=NEW)
    machine.teach("modprobe --resolve-alias pci:v000010DEd00002330", "nvidia_drm\nnvidia\nnouveau\n")
    machine.write("/proc/devices", "Character devices:\n195 nvidia\n")
    machine.write("/proc/driver/nvidia/params", f"DeviceFileUID: {os.getuid()}\nDeviceFileGID: {os.getgid()}\n")
    (machine.root / "dev").mkdir(exist_ok=True)
    for path, text in files.items():
        machine.write(path, text)

    exchange(machine)

    assert set(kernel.loaded) >= {"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"}
    assert (machine.root / "dev/nvidia-modeset").exists(), "it was missing until the next boot"


def test_what_no_boot_loads_is_not_loaded_and_what_cannot_be_loaded_stops_nothing(machine: Machine) -> None:
    kernel = Kernel(machine, None, on_disk=NEW)
    kernel.broken = {"nvidia_drm"}
    machine.write("/etc/modules-load.d/gpu.conf", "nvidia-drm\ngdrdrv\n")

    exchange(machine)

    assert "nvidia" in kernel.loaded
    assert not {"nvidia_drm", "gdrdrv"} & set(kernel.loaded)


def test_a_module_that_somebody_had_unloaded_stays_so(machine: Machine) -> None:
    kernel = Kernel(machine, OLD, on_disk=NEW)
    machine.write("/etc/modules-load.d/gpu.conf", "nvidia-drm\n")
    machine.host.run(["rmmod", "nvidia_drm"], 1.0)

    exchange(machine)

    assert kernel.loaded["nvidia"] == NEW
    assert "nvidia_drm" not in kernel.loaded
