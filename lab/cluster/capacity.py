"""Checks that the machine has enough memory and inotify instances left before a cluster is started.

Linux allows each user 128 inotify instances; a node's systemd, kubelet and engine take fifteen. Without one a kubelet
exits with "too many open files", which does not point to the cause.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lab.cluster.errors import ClusterError

PROC = Path("/proc")
INOTIFY = "anon_inode:inotify"
INOTIFY_SETTING = "fs.inotify.max_user_instances"
GIB = 1 << 30


@dataclass(frozen=True)
class Capacity:
    """Amounts of scarce resources, available or needed."""

    memory_bytes: int
    inotify_instances: int


def available_capacity(proc: Path = PROC) -> Capacity:
    """Return what the machine has left."""
    limit = int((proc / "sys" / INOTIFY_SETTING.replace(".", "/")).read_text())
    return Capacity(available_memory_bytes((proc / "meminfo").read_text()), limit - used_inotify_instances(proc))


def require_capacity(what: str, needed: Capacity, available: Capacity) -> None:
    """Raise ``ClusterError`` with what is missing and how to free it."""
    if available.memory_bytes < needed.memory_bytes:
        have, need = (f"{capacity.memory_bytes / GIB:.1f} GiB" for capacity in (available, needed))
        hint = "stop what is not needed: python3 -m lab status shows other sites"
        raise ClusterError(f"{have} of memory is available, {what} needs {need}", hint=hint)
    if available.inotify_instances < needed.inotify_instances:
        have, need = str(max(available.inotify_instances, 0)), str(needed.inotify_instances)
        hint = f"stop what is not needed, or: sysctl -w {INOTIFY_SETTING}=1024"
        raise ClusterError(f"{have} inotify instances are left, {what} needs {need}", hint=hint)


def available_memory_bytes(meminfo: str) -> int:
    """Return ``MemAvailable`` from /proc/meminfo, in bytes."""
    line = next(line for line in meminfo.splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024


def used_inotify_instances(proc: Path) -> int:
    """Count the instances that this user's processes have open: the limit is per user."""
    return sum(_inotify_instances(process) for process in proc.glob("[0-9]*"))


def _inotify_instances(process: Path) -> int:
    count = 0
    try:
        if process.stat().st_uid == os.geteuid():
            for descriptor in (process / "fd").iterdir():
                count += os.readlink(descriptor) == INOTIFY  # noqa: PTH115 - not a path
    except OSError:  # the process or the descriptor is gone
        return count
    return count
