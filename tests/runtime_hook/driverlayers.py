"""What a driver tree may have beyond CUDA: one function per layer, listed in ``LAYERS``.

File names, SONAMES and places are those of NVIDIA's 550 and 570 packages. Libraries are tiny ones of ``tinyelf``.
Device nodes are stand-ins (virtual consoles, major 4): the path is NVIDIA's, the minor is ours.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from tests.runtime_hook.tinyelf import library

if TYPE_CHECKING:
    from pathlib import Path

    from tests.runtime_hook.drivertree import DriverTree

# stem → SONAME; "" where it is the file's own name with the version.
MORE_UTILITY = {"libnvidia-cfg": "libnvidia-cfg.so.1", "libnvidia-nscq": "libnvidia-nscq.so.2"}
MORE_COMPUTE = {
    "libcudadebugger": "libcudadebugger.so.1",
    "libnvidia-opencl": "libnvidia-opencl.so.1",
    "libnvidia-nvvm": "libnvidia-nvvm.so.4",
    "libnvidia-allocator": "libnvidia-allocator.so.1",
    "libnvidia-pkcs11": "",
    "libnvidia-pkcs11-openssl3": "",
    "libnvidia-compiler": "",
}
VIDEO = {
    "libnvidia-encode": "libnvidia-encode.so.1",
    "libnvidia-opticalflow": "libnvidia-opticalflow.so.1",
    "libnvcuvid": "libnvcuvid.so.1",
}
GRAPHICS = {
    "libGLX_nvidia": "libGLX_nvidia.so.0",
    "libEGL_nvidia": "libEGL_nvidia.so.0",
    "libGLESv2_nvidia": "libGLESv2_nvidia.so.2",
    "libGLESv1_CM_nvidia": "libGLESv1_CM_nvidia.so.1",
    "libnvidia-eglcore": "",
    "libnvidia-glcore": "",
    "libnvidia-tls": "",
    "libnvidia-glsi": "",
    "libnvidia-rtcore": "",
    "libnvidia-glvkspirv": "",
    "libnvidia-fbc": "libnvidia-fbc.so.1",
    "libnvoptix": "libnvoptix.so.1",
    "libnvidia-vulkan-producer": "libnvidia-vulkan-producer.so",
}
NGX = {"libnvidia-ngx": "libnvidia-ngx.so.1"}
COMPAT32 = (
    "libcuda",
    "libnvidia-ml",
    "libnvidia-ptxjitcompiler",
    "libnvidia-encode",
    "libGLX_nvidia",
    "libnvidia-glcore",
)
# Libraries whose files carry a version of their own: file name → SONAME.
OWN_VERSION = {
    "libnvidia-egl-gbm.so.1.1.1": "libnvidia-egl-gbm.so.1",
    "libnvidia-egl-wayland.so.1.1.13": "libnvidia-egl-wayland.so.1",
}
MORE_BINARIES = (
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nv-fabricmanager",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-xconfig",
)
CONFIGS = (
    "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "usr/share/vulkan/icd.d/nvidia_icd.json",
    "usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
    "usr/share/nvidia/nvoptix.bin",
    "usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf",
    "etc/OpenCL/vendors/nvidia.icd",
)
FIRMWARE = ("gsp_ga10x.bin", "gsp_tu10x.bin")

# Minors of the stand-ins by path below /dev. Channel N of IMEX has minor N, as with the real driver.
STAND_INS = {
    "nvidia-modeset": 61,
    "nvidia-caps/nvidia-cap1": 50,
    "nvidia-caps/nvidia-cap2": 51,
    "nvidia-fs0": 54,
    "nvidia-fs1": 55,
    "gdrdrv": 56,
    "infiniband/uverbs0": 57,
    "infiniband/rdma_cm": 58,
    "nvidia-nvswitchctl": 48,
    "nvidia-nvswitch0": 49,
}
MAJOR_NAMES = ("nvidia", "nvidia-uvm", "nvidia-caps", "nvidia-caps-imex-channels", "nvidia-nvswitch", "gdrdrv")
DRM_CARDS, DRM_RENDER = 24, 32  # of GPU 0, the next one's number is the next; for eight GPUs
IMEX_CHANNELS = (0, 1)
# Of GPU 0 in MIG mode: GPU instance, compute instance.
MIG_INSTANCES = ((1, 0), (2, 0), (2, 1))
_FIRST_MIG_STAND_IN = 40


def _tiny(path: Path, soname: str, elf_class: int = 64, needed: tuple[str, ...] = ()) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(library(soname, elf_class, needed))


def _add_tiny(tree: DriverTree, libraries: dict[str, str]) -> None:
    for stem, soname in libraries.items():
        real = tree.folder / f"{stem}.so.{tree.version}"
        _tiny(real, soname or real.name)
        if soname:
            tree.link(tree.folder / soname, real.name)


def add_compute(tree: DriverTree) -> None:
    """Add the rest of utility and compute, programs included."""
    _add_tiny(tree, {**MORE_UTILITY, **MORE_COMPUTE})
    _tiny(tree.folder / "libnvidia-nvvm70.so.4", "libnvidia-nvvm70.so.4")
    for name in MORE_BINARIES:
        path = tree.root / "usr/bin" / name
        path.write_text(f"#!/bin/sh\necho {name} of the host\n")
        path.chmod(0o755)


def add_video(tree: DriverTree) -> None:
    """Add video: encoder, decoder, and VDPAU's driver in its folder."""
    _add_tiny(tree, VIDEO)
    real = tree.folder / "vdpau" / f"libvdpau_nvidia.so.{tree.version}"
    _tiny(real, "libvdpau_nvidia.so.1")
    tree.link(real.parent / "libvdpau_nvidia.so.1", real.name)


def add_graphics(tree: DriverTree) -> None:
    """Add GLVND's ICDs, EGL's platform libraries, the GBM back end and the modules of X."""
    _add_tiny(tree, GRAPHICS)
    for name, soname in OWN_VERSION.items():
        _tiny(tree.usual_folder / name, soname)
        tree.link(tree.usual_folder / soname, name)
    if "compute" not in tree.layers:
        _add_tiny(tree, {"libnvidia-allocator": MORE_COMPUTE["libnvidia-allocator"]})
    (tree.usual_folder / "gbm").mkdir(exist_ok=True)
    tree.link(tree.usual_folder / "gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1")
    modules = tree.root / "usr/lib/xorg/modules"
    _tiny(modules / "drivers/nvidia_drv.so", "nvidia_drv.so")
    extensions = tree.root / "usr/lib/nvidia/current" if tree.layout == "debian" else modules / "extensions"
    _tiny(extensions / f"libglxserver_nvidia.so.{tree.version}", "libglxserver_nvidia.so")
    tree.link(extensions / "libglxserver_nvidia.so", f"libglxserver_nvidia.so.{tree.version}")


def add_ngx(tree: DriverTree) -> None:
    """Add NGX."""
    _add_tiny(tree, NGX)


def add_compat32(tree: DriverTree) -> None:
    """Add 32-bit libraries where the layout has them."""
    folders = {"debian": "usr/lib/i386-linux-gnu/nvidia/current", "multiarch": "usr/lib/i386-linux-gnu"}
    folder = tree.root / folders.get(tree.layout, "usr/lib")
    sonames = {**tree.sonames(), **VIDEO, **GRAPHICS}
    for stem in COMPAT32:
        name = f"{stem}.so.{tree.version}"
        _tiny(folder / name, sonames[stem] or name, 32)


def add_firmware(tree: DriverTree) -> None:
    """Add the GSP's firmware."""
    folder = tree.root / "lib/firmware/nvidia" / tree.version
    folder.mkdir(parents=True)
    for name in FIRMWARE:
        (folder / name).write_bytes(b"firmware of the host\n")


def add_configs(tree: DriverTree) -> None:
    """Add what tells loaders of the driver: GLVND, Vulkan, OpenCL, EGL, X."""
    for name in CONFIGS:
        path = tree.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.name} of the host\n")


def add_sockets(tree: DriverTree) -> None:
    """Add the sockets of persistenced and the fabric manager, and the folder of MPS."""
    for service in ("nvidia-persistenced", "nvidia-fabricmanager"):
        folder = tree.root / "run" / service
        folder.mkdir(parents=True)
        # A socket's path may have 107 bytes.
        with contextlib.chdir(folder), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
            made.bind("socket")
    (tree.root / "tmp/nvidia-mps").mkdir(parents=True)


def add_drm(tree: DriverTree) -> None:
    """Add a card and a render node for each GPU, as the module nvidia-drm makes them."""
    for index in range(tree.gpus):
        known = tree.root / f"sys/bus/pci/devices/0000:1{index}:00.0/drm"
        for name, number in ((f"card{index}", DRM_CARDS + index), (f"renderD{128 + index}", DRM_RENDER + index)):
            (known / name).mkdir(parents=True)
            tree.node(f"dri/{name}", number)


def add_mig(tree: DriverTree) -> None:
    """Put GPU 0 into MIG mode, with three compute instances in two GPU instances."""
    minors = ["config 1", "monitor 2"]
    capabilities = tree.root / "proc/driver/nvidia/capabilities"
    for name in ("config", "monitor"):
        _access(capabilities / "mig" / name, int(minors[("config", "monitor").index(name)].split()[1]))
    number = 3
    for gi, ci in MIG_INSTANCES:
        for inside in (f"gi{gi}", f"gi{gi}/ci{ci}"):
            folder = capabilities / "gpu0/mig" / inside
            if folder.exists():
                continue
            _access(folder / "access", number)
            minors.append(f"gpu0/{inside}/access {number}")
            tree.node(f"nvidia-caps/nvidia-cap{number}", _FIRST_MIG_STAND_IN + number - 3)
            number += 1
    (tree.root / "proc/driver/nvidia-caps").mkdir(parents=True)
    (tree.root / "proc/driver/nvidia-caps/mig-minors").write_text("\n".join(minors) + "\n")
    for name in ("nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap2"):
        tree.node(name, STAND_INS[name])


def _access(path: Path, minor: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")


def add_imex(tree: DriverTree) -> None:
    """Add two IMEX channels."""
    for channel in IMEX_CHANNELS:
        tree.node(f"nvidia-caps-imex-channels/channel{channel}", channel)


def add_extras(tree: DriverTree) -> None:
    """Add mode setting and what GPUDirect Storage, GDRCopy, MOFED and NVSwitch open."""
    for name, minor in STAND_INS.items():
        if not name.startswith("nvidia-caps/"):
            tree.node(name, minor)


def add_proc_devices(tree: DriverTree) -> None:
    """Add the kernel's list of majors, in which every stand-in is NVIDIA's."""
    tree.set_majors(dict.fromkeys(MAJOR_NAMES, 4))


LAYERS = {
    "compute": add_compute,
    "video": add_video,
    "graphics": add_graphics,
    "ngx": add_ngx,
    "compat32": add_compat32,
    "firmware": add_firmware,
    "configs": add_configs,
    "sockets": add_sockets,
    "drm": add_drm,
    "mig": add_mig,
    "imex": add_imex,
    "extras": add_extras,
    "proc-devices": add_proc_devices,
}
EVERYTHING = tuple(LAYERS)
