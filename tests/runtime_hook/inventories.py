"""A host with everything: two GPUs with displays, one of them split by MIG, services, extras, 32-bit libraries."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from runtime_hook.host.inventory import (
    Binary,
    ControlDevice,
    DriverFile,
    DriverLink,
    Fingerprint,
    Gpu,
    ImexChannels,
    Inventory,
    Library,
    MigDevice,
    Node,
)

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "550.163.01"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
LIBRARIES_32 = "/usr/lib/i386-linux-gnu"


def library(stem: str, capability: str, *, links: tuple[str, ...] = (), subfolder: str = "", bits: int = 64) -> Library:
    folder = LIBRARIES if bits == 64 else LIBRARIES_32
    path = "/".join(part for part in (folder, subfolder, f"{stem}.so.{VERSION}") if part)
    return Library(path, f"{stem}.so.1", links, capability, bits, subfolder)


def gpu(index: int) -> Gpu:
    drm = (Node(f"/dev/dri/card{index}", 226, index), Node(f"/dev/dri/renderD{128 + index}", 226, 128 + index))
    address = f"0000:{index + 1}0:00.0"
    return Gpu(index, f"GPU-{index}", index, address, f"/dev/nvidia{index}", 195, index, drm=drm)


MIG = MigDevice(
    gpu_uuid="GPU-1",
    gpu_instance=3,
    compute_instance=0,
    nodes=(Node("/dev/nvidia-caps/nvidia-cap30", 508, 30), Node("/dev/nvidia-caps/nvidia-cap31", 508, 31)),
    uuid="MIG-1",
    index=0,
)

FULL = Inventory(
    driver_version=VERSION,
    control=(
        ControlDevice("/dev/nvidiactl", 195, 255, "ctl"),
        ControlDevice("/dev/nvidia-uvm", 510, 0, "uvm"),
        ControlDevice("/dev/nvidia-uvm-tools", 510, 1, "uvm-tools"),
        ControlDevice("/dev/nvidia-modeset", 195, 254, "modeset"),
        ControlDevice("/dev/nvidia-caps/nvidia-cap1", 508, 1, "mig-config"),
        ControlDevice("/dev/nvidia-caps/nvidia-cap2", 508, 2, "mig-monitor"),
        ControlDevice("/dev/nvidia-fs0", 511, 0, "nvidia-fs"),
        ControlDevice("/dev/nvidia-fs1", 511, 1, "nvidia-fs"),
        ControlDevice("/dev/infiniband/uverbs0", 231, 192, "infiniband"),
    ),
    gpus=(gpu(0), gpu(1)),
    libraries=(
        library("libcuda", "compute", links=("libcuda.so",)),
        library("libnvidia-ml", "utility"),
        library("libnvidia-encode", "video"),
        library("libvdpau_nvidia", "video", subfolder="vdpau"),
        library("libGLX_nvidia", "graphics"),
        library("libnvidia-gpucomp", "compute"),
        library("libnvidia-gpucomp", "graphics"),
        library("libcuda", "compute", links=("libcuda.so",), bits=32),
    ),
    binaries=(
        Binary("/usr/lib/nvidia/current/nvidia-smi", "nvidia-smi", "utility"),
        Binary("/usr/bin/nvidia-cuda-mps-control", "nvidia-cuda-mps-control", "compute"),
    ),
    files=(
        DriverFile("/run/nvidia-persistenced/socket", "/run/nvidia-persistenced/socket", "utility", "socket"),
        DriverFile("/tmp/nvidia-mps", "/tmp/nvidia-mps", "compute", "socket"),
        DriverFile(
            "/lib/firmware/nvidia/550.163.01/gsp_ga10x.bin",
            "/lib/firmware/nvidia/550.163.01/gsp_ga10x.bin",
            "utility",
            "firmware",
        ),
        DriverFile(
            "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
            "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
            "graphics",
            "config",
        ),
    ),
    links=(
        DriverLink("gbm", "nvidia-drm_gbm.so", "../libnvidia-allocator.so.1", "graphics"),
        DriverLink("", "libGLX_indirect.so.0", f"libGLX_nvidia.so.{VERSION}", "graphics"),
    ),
    mig=(MIG,),
    imex=ImexChannels(509, ((7, 7),)),
    fingerprint=Fingerprint(VERSION, ("0000:10:00.0", "0000:20:00.0"), (), ()),
)


UDEV_ENTRY = "/run/udev/data/b8:0"


def changed(inventory: Inventory, **fields: object) -> Inventory:
    """Return an inventory with other fields."""
    return Inventory(**{**vars(inventory), **fields})


def make_files(inventory: Inventory, root: Path) -> None:
    """Make every file, socket and device node of an inventory below a root; each file holds its own path."""
    files = [*inventory.libraries, *inventory.binaries, *(file for file in inventory.files if file.kind != "socket")]
    for path in [file.path for file in files] + ["/etc/cufile.json", UDEV_ENTRY]:
        place = root / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{path}\n")
    bind_socket(root / "run/udev/control")
    for file in inventory.files:
        if file.kind == "socket" and file.path.endswith("/socket"):
            bind_socket(root / file.path[1:])
        elif file.kind == "socket":
            (root / file.path[1:]).mkdir(parents=True)


def bind_socket(path: Path) -> None:
    """Make a socket, whose path may be longer than an address can hold."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)
