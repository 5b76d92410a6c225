"""Fixtures of the attacks: a driver that has a file of every kind, a ground to play rounds on."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.runtime_hook.attack.rounds import Ground
from tests.runtime_hook.containers import BUSYBOX
from tests.runtime_hook.drivertree import VERSION, DriverTree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = (
    f"lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
    "etc/OpenCL/vendors/nvidia.icd",
    "usr/share/nvidia/nvoptix.bin",
    "usr/share/vulkan/icd.d/nvidia_icd.json",
    "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "proc/driver/nvidia/params",
    "etc/cufile.json",
    "run/udev/data/c4:16",
)
# Device nodes of what a container asks for besides GPUs; an IMEX channel has its number as minor.
FURTHER = {
    "nvidia-fs0": 57,
    "gdrdrv": 56,
    "infiniband/uverbs0": 55,
    "infiniband/rdma_cm": 54,
    "nvidia-nvswitchctl": 53,
    "nvidia-nvswitch0": 52,
    "nvidia-caps-imex-channels/channel0": 0,
    "nvidia-caps-imex-channels/channel7": 7,
}


def furnish(driver: DriverTree) -> DriverTree:
    """Add what a driver has besides libraries, and a program that a careless hook would run."""
    for name in FILES:
        path = driver.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("the driver's own\n")
    (driver.root / "sbin").mkdir(exist_ok=True)
    shutil.copy(BUSYBOX, driver.root / "sbin/ldconfig")
    driver.node("nvidia-modeset", 58)
    for name, minor in FURTHER.items():
        driver.node(name, minor)
    return driver


@pytest.fixture
def ground(tmp_path: Path, driver: DriverTree, configure: Callable[..., list[str]]) -> Ground:
    """Make a ground whose hook gives everything it can, so that every kind of operation is attacked."""
    every = ["compute", "utility", "video", "graphics", "display", "ngx"]
    arguments = configure(entitlement="env", supportedDriverCapabilities=every)
    return Ground(tmp_path / "world", furnish(driver), arguments)
