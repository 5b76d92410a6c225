"""What a hostile image has where the hook wants to write, and what its process does meanwhile."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import shutil
import socket
import stat
from typing import TYPE_CHECKING

from tests.runtime_hook.containers import MULTIARCH
from tests.runtime_hook.drivertree import VERSION

if TYPE_CHECKING:
    from pathlib import Path
    from typing import NoReturn

# Folders and files of a container that the hook may write to, or has to pass on its way.
FOLDER_TARGETS = {
    "the library folder": MULTIARCH,
    "its parent": "usr/lib",
    "usr": "usr",
    "etc": "etc",
    "the program folder": "usr/bin",
    "the firmware folder": "lib/firmware",
    "the firmware of the driver": f"lib/firmware/nvidia/{VERSION}",
    "the shared data": "usr/share",
    "the driver's data": "usr/share/nvidia",
    "the OpenCL vendors": "etc/OpenCL/vendors",
    "the Vulkan drivers": "etc/vulkan/icd.d",
    "the driver's settings": "etc/nvidia",
    "the loader's settings": "etc/ld.so.conf.d",
    "the sockets": "run/nvidia-persistenced",
    "run": "run",
    "the folder of udev": "run/udev",
    "udev's database": "run/udev/data",
    "the compat folder": "usr/local/cuda/compat",
    "dev": "dev",
    "the InfiniBand devices": "dev/infiniband",
    "the IMEX channels": "dev/nvidia-caps-imex-channels",
    "proc": "proc",
    "the driver in proc": "proc/driver/nvidia",
}
FILE_TARGETS = {
    "the library": f"{MULTIARCH}/libcuda.so.{VERSION}",
    "the soname": f"{MULTIARCH}/libcuda.so.1",
    "the development link": f"{MULTIARCH}/libcuda.so",
    "the cache": "etc/ld.so.cache",
    "the program": "usr/bin/nvidia-smi",
    "a firmware file": f"lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
    "the OpenCL vendor": "etc/OpenCL/vendors/nvidia.icd",
    "a device node": "dev/nvidia0",
    "a control node": "dev/nvidiactl",
    "the settings of cuFile": "etc/cufile.json",
    "the device of nvidia-fs": "dev/nvidia-fs0",
    "the device of GDRCopy": "dev/gdrdrv",
    "an InfiniBand device": "dev/infiniband/uverbs0",
    "an IMEX channel": "dev/nvidia-caps-imex-channels/channel0",
    "the parameters in proc": "proc/driver/nvidia/params",
}
TARGETS = {**FOLDER_TARGETS, **FILE_TARGETS}
LINKS = {
    "an absolute link": "{victim}",
    "a climbing link": "../../../../../../../../../../..{victim}",
    "a link through proc self": "/proc/self/root{victim}",
    "a link through proc 1": "/proc/1/root{victim}",
    "a link through a working directory": "/proc/self/cwd{victim}",
    "a link to the host's root": "/",
    "a loop": "loop",
}
KINDS = ("a full folder", "a fifo", "a socket", "a device", "a hard link", "an immutable file", "a mount")
AT_FDCWD = -100
RENAME_EXCHANGE = 2
MS_BIND = 4096
_SET_FLAGS = 0x40086602  # FS_IOC_SETFLAGS
_IMMUTABLE = 0x10
_SPIN = 2000

libc = ctypes.CDLL(None, use_errno=True)


def occupy(path: Path, kind: str, victim: Path) -> None:
    """Put something hostile at a path of the image; ``victim`` is the host's file or folder it is after."""
    if kind == "a mount":
        cover(path, victim)
        return
    clear(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "a full folder":
        path.mkdir()
        (path / "full").touch()
    elif kind == "a fifo":
        os.mkfifo(path)
    elif kind == "a socket":
        _bind_socket(path)
    elif kind == "a device":
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    elif kind == "a hard link":
        with contextlib.suppress(OSError):  # on another file system there is none
            os.link(victim / "secret" if victim.is_dir() else victim, path)
    elif kind == "an immutable file":
        path.write_text("the image's own")
        _make_immutable(path)
    else:
        path.symlink_to(path.name if kind == "a loop" else LINKS[kind].format(victim=victim))


def clear(path: Path) -> None:
    """Remove what stands at a path; a mount point inside is left."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    elif path.is_symlink() or path.exists():
        path.unlink()


def cover(path: Path, victim: Path) -> None:
    """Mount the victim over a path, as a volume is."""
    if victim.is_dir():
        if not path.is_dir():
            clear(path)
            path.mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    if libc.mount(os.fsencode(victim), os.fsencode(path), None, MS_BIND, None):
        raise OSError(ctypes.get_errno(), "mount", str(path))


def _make_immutable(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # tmpfs knows the flag since Linux 6.6
            fcntl.ioctl(descriptor, _SET_FLAGS, _IMMUTABLE.to_bytes(8, "little"))
    finally:
        os.close(descriptor)


def _bind_socket(path: Path) -> None:
    """A socket's address is short: it is bound through its folder's descriptor."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def swap_for_ever(path: Path, aside: Path) -> NoReturn:
    """Let two names change places, at ever other moments, until this process is killed."""
    here, there = os.fsencode(path), os.fsencode(aside)
    chance = random.Random(os.getpid())
    exchange = libc.renameat2
    while True:
        exchange(AT_FDCWD, here, AT_FDCWD, there, RENAME_EXCHANGE)
        for _ in range(chance.randrange(_SPIN)):
            pass
