"""What a machine must have left before a cluster is started: memory, and inotify instances.

Of the latter Linux gives each user 128; a node's systemd, kubelet and engine take fifteen. A kubelet that gets none
ends with "too many open files", which nobody would understand.
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
class Room:
    """Amounts of what is scarce: what is there, or what is needed."""

    memory_bytes: int
    inotify_instances: int


def available_room(proc: Path = PROC) -> Room:
    """Look at the machine."""
    limit = int((proc / "sys" / INOTIFY_SETTING.replace(".", "/")).read_text())
    return Room(available_memory_bytes((proc / "meminfo").read_text()), limit - used_inotify_instances(proc))


def require_room(what: str, needed: Room, available: Room) -> None:
    """Raise ``ClusterError`` with what is missing and what helps."""
    if available.memory_bytes < needed.memory_bytes:
        have, need = (f"{room.memory_bytes / GIB:.1f} GiB" for room in (available, needed))
        hint = "end what is not needed: python3 -m lab status shows other sites"
        raise ClusterError(f"{have} of memory is available, {what} needs {need}", hint=hint)
    if available.inotify_instances < needed.inotify_instances:
        have, need = str(max(available.inotify_instances, 0)), str(needed.inotify_instances)
        hint = f"end what is not needed, or: sysctl -w {INOTIFY_SETTING}=1024"
        raise ClusterError(f"{have} inotify instances are left, {what} needs {need}", hint=hint)


def available_memory_bytes(meminfo: str) -> int:
    """Return ``MemAvailable`` of /proc/meminfo."""
    line = next(line for line in meminfo.splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024


def used_inotify_instances(proc: Path) -> int:
    """Count the instances that processes of this process's user have open: the limit is each user's own."""
    return sum(_inotify_instances(process) for process in proc.glob("[0-9]*"))


def _inotify_instances(process: Path) -> int:
    count = 0
    try:
        if process.stat().st_uid == os.geteuid():
            for descriptor in (process / "fd").iterdir():
                count += os.readlink(descriptor) == INOTIFY  # noqa: PTH115 - not a path
    except OSError:  # the process, or the descriptor, has just gone
        return count
    return count
