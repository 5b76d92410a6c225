"""Notices cheaply that the driver changed behind the inventory's back: a few stats and one small read."""

from __future__ import annotations

import os

from runtime_hook.host.inventory import DeviceMark, FileMark, Fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from runtime_hook.host.hosttree import HostTree
    from runtime_hook.host.inventory import Inventory

_SYS_VERSION = "/sys/module/nvidia/version"
_PROC_VERSION = "/proc/driver/nvidia/version"
_GPU_FOLDER = "/proc/driver/nvidia/gpus"
_LIMIT_BYTES = 1 << 16


def module_version(tree: HostTree) -> str:
    """Return the version of the loaded kernel module, "" where none is loaded."""
    data = tree.read(_SYS_VERSION, _LIMIT_BYTES)
    if data is not None:
        return data.decode("ascii", "replace").strip()
    text = (tree.read(_PROC_VERSION, _LIMIT_BYTES) or b"").decode("ascii", "replace")
    words = text.partition("Module")[2].split()
    return next((word for word in words if "." in word and word.replace(".", "").isdigit()), "")


def take_fingerprint(tree: HostTree, files: Iterable[str], devices: Iterable[str]) -> Fingerprint:
    """Look at the host now. Files are named as the loader finds them, so that a switched link counts, too."""
    return Fingerprint(
        module_version=module_version(tree),
        gpu_addresses=tuple(tree.names(_GPU_FOLDER)),
        files=tuple(_mark_file(tree, path) for path in files),
        devices=tuple(_mark_device(tree, path) for path in devices),
    )


def is_fresh(inventory: Inventory, tree: HostTree) -> bool:
    """Tell whether the host still is as the inventory says."""
    old = inventory.fingerprint
    now = take_fingerprint(tree, [mark.path for mark in old.files], [mark.path for mark in old.devices])
    return now == old


def _mark_file(tree: HostTree, path: str) -> FileMark:
    status = tree.status(path)
    if status is None:
        return FileMark(path, -1, -1, -1)
    return FileMark(path, status.st_ino, status.st_size, status.st_mtime_ns)


def _mark_device(tree: HostTree, path: str) -> DeviceMark:
    status = tree.status(path)
    if status is None:
        return DeviceMark(path, -1, -1)
    return DeviceMark(path, os.major(status.st_rdev), os.minor(status.st_rdev))
