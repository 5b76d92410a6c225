"""A host's driver tree with eight GPUs: every file that a data-centre driver has, all of them tiny.

Its NVML is the laboratory's, so that NVIDIA's own tools find the GPUs, too. Mounting a file costs the same whatever
its size.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from lab.nvml import install, models
from tests.runtime_hook.containers import MULTIARCH
from tests.runtime_hook.drivertree import compile_library

if TYPE_CHECKING:
    from pathlib import Path

GPUS = 8
VERSION = "535.309.01"
MAJOR = 195
CONTROL = {
    "nvidiactl": (MAJOR, 255),
    "nvidia-modeset": (MAJOR, 254),
    "nvidia-uvm": (511, 0),
    "nvidia-uvm-tools": (511, 1),
}
# What a device plugin puts into the container's configuration besides the GPUs.
ALLOCATED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
# Libraries with the number of their SONAME; those without have their file's name as SONAME.
NUMBERED = {
    "libcuda": 1, "libcudadebugger": 1, "libnvidia-allocator": 1, "libnvidia-cfg": 1, "libnvidia-nvvm": 4,
    "libnvidia-opencl": 1, "libnvidia-ptxjitcompiler": 1, "libnvcuvid": 1, "libnvidia-encode": 1,
    "libnvidia-opticalflow": 1, "libnvidia-fbc": 1, "libnvidia-ngx": 1, "libnvoptix": 1, "libGLX_nvidia": 0,
    "libEGL_nvidia": 0, "libGLESv1_CM_nvidia": 1, "libGLESv2_nvidia": 2, "vdpau/libvdpau_nvidia": 1,
}  # fmt: skip
UNNUMBERED = (
    "libnvidia-pkcs11", "libnvidia-pkcs11-openssl3", "libnvidia-eglcore", "libnvidia-glcore", "libnvidia-glsi",
    "libnvidia-glvkspirv", "libnvidia-rtcore", "libnvidia-tls",
)  # fmt: skip
PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
FILES = (
    f"lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin", f"lib/firmware/nvidia/{VERSION}/gsp_tu10x.bin",
    "usr/share/glvnd/egl_vendor.d/10_nvidia.json", "usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "usr/share/nvidia/nvoptix.bin", "etc/OpenCL/vendors/nvidia.icd", "etc/vulkan/icd.d/nvidia_icd.json",
    "etc/vulkan/implicit_layer.d/nvidia_layers.json",
)  # fmt: skip


def build_driver(root: Path) -> None:
    """Make the tree; needs root, for its device nodes."""
    libraries = root / MULTIARCH
    (libraries / "vdpau").mkdir(parents=True)
    machine = models.machine("a100-40gb", GPUS)
    install(libraries, VERSION, machine)
    for stem, number in [*NUMBERED.items(), *((stem, None) for stem in UNNUMBERED)]:
        real = libraries / f"{stem}.so.{VERSION}"
        soname = real.name if number is None else f"{real.name.partition('.so')[0]}.so.{number}"
        compile_library(real, soname)
        if soname != real.name:
            real.with_name(soname).symlink_to(real.name)
    for path in (*(f"usr/bin/{name}" for name in PROGRAMS), *FILES):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("of the host\n")
        (root / path).chmod(0o755)
    _add_kernel_side(root, [(gpu.uuid, gpu.pci_address) for gpu in machine.gpus])


def _add_kernel_side(root: Path, gpus: list[tuple[str, str]]) -> None:
    (root / "sys/module/nvidia").mkdir(parents=True)
    (root / "sys/module/nvidia/version").write_text(f"{VERSION}\n")
    (root / "dev").mkdir()
    for name, numbers in nodes(GPUS):
        os.mknod(root / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(*numbers))
    for minor, (uuid, address) in enumerate(gpus):
        folder = root / "proc/driver/nvidia/gpus" / address
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t A100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")


def nodes(gpus: int) -> list[tuple[str, tuple[int, int]]]:
    """Return names below ``/dev`` and numbers: the control nodes and so many GPUs."""
    return [*CONTROL.items(), *((f"nvidia{minor}", (MAJOR, minor)) for minor in range(gpus))]
