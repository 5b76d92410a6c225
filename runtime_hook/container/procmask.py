"""Covers the driver's folder in a container's procfs: a small tmpfs, with what is shown bound from underneath it.

The only place that goes into another mount of the container on purpose, so that mount is judged first: it is a procfs,
and none that would pass our mount on to the host. All that is shown comes out of that same procfs, so from the kernel.
Needs no more than the rest (fsopen is of Linux 5.2).
"""

from __future__ import annotations

import errno
import os
import stat

from runtime_hook.base.reading import read_descriptor
from runtime_hook.container import libc
from runtime_hook.container.libc import (
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOEXEC,
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    RESOLVE_BENEATH,
    RESOLVE_IN_ROOT,
    RESOLVE_NO_SYMLINKS,
    RESOLVE_NO_XDEV,
)
from runtime_hook.container.mounttable import is_shared_mount

PROC_SUPER_MAGIC = 0x9FA0

_TEXTS = ("params", "version", "registry")
_PROC = "/proc/"
_TEXT_LIMIT_BYTES = 1 << 20
_FOLDER = os.O_PATH | os.O_DIRECTORY
_BELOW = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV
_HARMLESS = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC


def mask_proc(root: int, target: str, shown: tuple[str, ...], label: str = "") -> int:
    """Cover ``target`` below a container's root, but for the paths in it that are shown.

    The cover has the SELinux label that the engine gives the container's mounts; without it, the label would be one
    whose files the container may not read. Returns a handle of the cover, with which all of it goes away; -1 where
    there is nothing to cover.
    """
    folder = _open_target(root, target)
    if folder < 0:
        return -1
    cover = libc.make_tmpfs(b"0555", _HARMLESS, label)
    for name in _TEXTS:
        _copy_text(folder, cover, name)
    trees = [_prepare(folder, cover, path) for path in shown]
    libc.set_attributes(cover, MOUNT_ATTR_RDONLY | _HARMLESS)
    libc.attach_tree(cover, folder)
    try:
        for tree, place in trees:
            libc.attach_tree(tree, place)
    except BaseException:
        libc.unmount(cover)
        raise
    return cover


def mask_parameters(text: bytes) -> bytes:
    """Return the driver's parameters with ``ModifyDeviceFiles`` off: device nodes are not the libraries' work."""
    lines = text.split(b"\n")
    return b"\n".join(b"ModifyDeviceFiles: 0" if line.startswith(b"ModifyDeviceFiles:") else line for line in lines)


def _open_target(root: int, target: str) -> int:
    """Open the folder in the container's procfs; -1 where there is no procfs, or no such folder in it."""
    try:
        proc = libc.openat2(root, "proc", _FOLDER, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS)
    except OSError as reason:
        if reason.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            return -1
        raise
    if libc.file_system(proc) != PROC_SUPER_MAGIC:
        return -1
    if _may_be_the_hosts(proc) and is_shared_mount(proc):
        raise OSError(errno.EXDEV, "/proc is the host's and a shared mount", target)
    try:
        return libc.openat2(proc, target[len(_PROC) :], _FOLDER, _BELOW)
    except FileNotFoundError:
        return -1


def _may_be_the_hosts(proc: int) -> bool:
    """Tell whether a procfs is that of the host's processes: one of a container's own nobody else has mounted."""
    try:
        return os.stat("/proc").st_dev == os.fstat(proc).st_dev
    except OSError:
        return True


def _copy_text(folder: int, cover: int, name: str) -> None:
    try:
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return
    try:
        text = read_descriptor(source, _TEXT_LIMIT_BYTES) or b""
    finally:
        os.close(source)
    copy = _create(cover, name)
    try:
        os.write(copy, mask_parameters(text) if name == "params" else text)
    finally:
        os.close(copy)


def _create(cover: int, name: str) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444, dir_fd=cover)


def _prepare(folder: int, cover: int, path: str) -> tuple[int, int]:
    """Clone what is shown and make a place for it in the cover, which nobody else can see yet."""
    source = libc.openat2(folder, path, os.O_PATH, _BELOW)
    _make_parents(cover, path)
    if stat.S_ISDIR(os.fstat(source).st_mode):
        os.mkdir(path, 0o555, dir_fd=cover)
    else:
        os.close(_create(cover, path))
    tree = libc.clone_tree(source)
    os.close(source)
    libc.set_attributes(tree, MOUNT_ATTR_RDONLY | _HARMLESS)
    return tree, os.open(path, os.O_PATH | os.O_CLOEXEC, dir_fd=cover)


def _make_parents(cover: int, path: str) -> None:
    parts = path.split("/")
    for depth in range(1, len(parts)):
        folder = "/".join(parts[:depth])
        if not os.access(folder, os.F_OK, dir_fd=cover):
            os.mkdir(folder, 0o555, dir_fd=cover)
