"""Tells whether a file is the host root's in a user namespace (rootless Podman), where that root has no id.

Every owner without an id in the namespace shows as the overflow id (user_namespaces(7)): root of the host, but also
any other user. So the file's own owner proves nothing, and its place does: where every folder down from ``/`` may be
written by its owner alone and none shows an owner of its own, nobody but root of the host can have put a file there.
Below ``/tmp`` or a home folder that does not hold. See docs/hook/unusual.md.
"""

from __future__ import annotations

import os
import stat

_OVERFLOW_UID = "/proc/sys/kernel/overflowuid"
_UID_MAP = "/proc/self/uid_map"
_LIMIT_BYTES = 4096
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def belongs_to_hosts_root(path: str, uid: int) -> bool:
    """Tell whether a file that shows a certain owner can only be root's on the host."""
    if not is_root_unmapped(_read(_UID_MAP)) or str(uid) != _read(_OVERFLOW_UID).strip():
        return False
    folder = os.path.dirname(path)
    return os.path.realpath(folder) == folder and are_roots_alone(folder, uid)


def is_root_unmapped(uid_map: str) -> bool:
    """Tell by /proc/self/uid_map whether root outside has no id inside."""
    lines = [line.split() for line in uid_map.splitlines()]
    return bool(lines) and all(outside != "0" for _, outside, _ in lines)


def are_roots_alone(folder: str, uid: int) -> bool:
    """Tell whether a folder and all around it show one owner, who alone may write there."""
    while True:
        status = os.lstat(folder)
        if status.st_uid != uid or status.st_mode & _WRITABLE_BY_OTHERS:
            return False
        if folder == "/":
            return True
        folder = os.path.dirname(folder)


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _LIMIT_BYTES).decode("ascii")
    finally:
        os.close(descriptor)
