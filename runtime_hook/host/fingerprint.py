"""Detects cheaply that the driver changed since the inventory was taken: a few stats, listings and small reads.

Every container with a GPU pays for it, so nothing is parsed that need not be. What is looked at, and why:

- the loaded module's version and the kernel's majors: a module that was replaced or reloaded;
- the GPUs that the module knows and, of those in MIG mode, their instances;
- what the loader's names of libcuda and libnvidia-ml lead to: libraries of another version;
- the folders of libraries: a package more or less (a folder's time changes when a name in it does);
- the numbers of the device nodes, and the folders of those of which a host has any number;
- sockets and folders of services, which come and go with them;
- the node daemon's facts.
"""

from __future__ import annotations

import os
import stat

from runtime_hook.host.driverfiles import LISTED_WORDS, MPS_FOLDER
from runtime_hook.host.inventory import DeviceMark, FileMark, Fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runtime_hook.host.hosttree import HostTree
    from runtime_hook.host.inventory import Inventory

GPU_FOLDER = "/proc/driver/nvidia/gpus"
PCI_FOLDER = "/sys/bus/pci/devices"
_SYS_VERSION = "/sys/module/nvidia/version"
_PROC_VERSION = "/proc/driver/nvidia/version"
_PROC_DEVICES = "/proc/devices"
_CAPABILITIES = "/proc/driver/nvidia/capabilities"
_LIMIT_BYTES = 1 << 16
_MAX_DIGITS = 9
_PAIR = 2  # words: a major and a name


def module_version(tree: HostTree) -> str:
    """Return the version of the loaded kernel module, "" where none is loaded."""
    data = tree.read(_SYS_VERSION, _LIMIT_BYTES)
    if data is not None:
        return data.decode("ascii", "replace").strip()
    text = (tree.read(_PROC_VERSION, _LIMIT_BYTES) or b"").decode("ascii", "replace")
    words = text.partition("Module")[2].split()
    return next((word for word in words if "." in word and word.replace(".", "").isdigit()), "")


def read_majors(tree: HostTree) -> tuple[tuple[str, int], ...]:
    """Return names and majors of NVIDIA's character devices from ``/proc/devices``, in the kernel's order."""
    data = tree.read(_PROC_DEVICES, _LIMIT_BYTES) or b""
    lines = data.partition(b"Block devices:")[0].decode("ascii", "replace").splitlines()
    pairs = (line.split() for line in lines if any(word in line for word in LISTED_WORDS))
    return tuple({pair[1]: int(pair[0]) for pair in pairs if len(pair) == _PAIR and is_number(pair[0])}.items())


def is_number(text: str) -> bool:
    """Tell whether a text is a number as the kernel writes it: Python calls more characters digits, such as ``²``."""
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS


def instance_folder(minor_number: int, gpu_instance: int) -> str:
    """Return what the driver calls a GPU instance in its lists of capabilities; it counts GPUs by minor number."""
    return f"gpu{minor_number}/gi{gpu_instance}"


def mig_instances(tree: HostTree, minor_number: int) -> list[tuple[int, int]]:
    """Return GPU instance and compute instance of each MIG device of a GPU, in order."""
    folder = f"{_CAPABILITIES}/gpu{minor_number}/mig"
    found = []
    for gpu_instance in _numbers(tree.names(folder), "gi"):
        inside = tree.names(f"{folder}/gi{gpu_instance}")
        found += [(gpu_instance, number) for number in _numbers(inside, "ci")]
    return found


def _numbers(names: Iterable[str], beginning: str) -> list[int]:
    tails = (name[len(beginning) :] for name in names if name.startswith(beginning))
    return sorted(int(tail) for tail in tails if is_number(tail))


def take_fingerprint(
    tree: HostTree, files: Iterable[str], devices: Iterable[str] = (), outside: Iterable[str] = ()
) -> Fingerprint:
    """Look at the host now. Files are named as the loader finds them, so that a switched link counts, too.

    ``outside`` are files that are not of the tree, which may be another root than the daemon's.
    """
    tree.forget()
    return Fingerprint(
        module_version=module_version(tree),
        gpu_addresses=tuple(tree.names(GPU_FOLDER)),
        files=tuple(_mark_mps(tree) if path == MPS_FOLDER else _mark_file(path, tree.status(path)) for path in files),
        devices=tuple(mark_device(path, tree.status(path)) for path in devices),
        majors=read_majors(tree),
        mig=tuple(_all_instances(tree)),
        outside=tuple(_mark_file(path, _status(path)) for path in outside),
    )


def is_fresh(inventory: Inventory, tree: HostTree) -> bool:
    """Tell whether the host still is as the inventory says."""
    old = inventory.fingerprint
    now = take_fingerprint(
        tree,
        [mark.path for mark in old.files],
        [mark.path for mark in old.devices],
        [mark.path for mark in old.outside],
    )
    return now == old


def _all_instances(tree: HostTree) -> Iterator[str]:
    for name in tree.names(_CAPABILITIES):
        number = name[len("gpu") :]
        if name.startswith("gpu") and is_number(number):
            for gpu_instance, compute_instance in mig_instances(tree, int(number)):
                yield f"{instance_folder(int(number), gpu_instance)}/ci{compute_instance}"


def _mark_file(path: str, status: os.stat_result | None) -> FileMark:
    if status is None:
        return FileMark(path, -1, -1, -1)
    return FileMark(path, status.st_ino, status.st_size, status.st_mtime_ns)


def mps_folder(tree: HostTree) -> os.stat_result | None:
    """Return stat of the folder of MPS if it is one and root's own: anybody may put something in its place."""
    status = tree.own_status(MPS_FOLDER)
    return status if status is not None and stat.S_ISDIR(status.st_mode) and status.st_uid == 0 else None


def _mark_mps(tree: HostTree) -> FileMark:
    """Mark it without its time, as its content changes with every client."""
    status = mps_folder(tree)
    return FileMark(MPS_FOLDER, -1, -1, -1) if status is None else FileMark(MPS_FOLDER, status.st_ino, 0, 0)


def mark_device(path: str, status: os.stat_result | None) -> DeviceMark:
    """Return which device a path leads to, given what stat says."""
    if status is None or not stat.S_ISCHR(status.st_mode):
        return DeviceMark(path, -1, -1)
    return DeviceMark(path, os.major(status.st_rdev), os.minor(status.st_rdev))


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
