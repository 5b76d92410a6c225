"""Processes by their ids, from /proc: where each belongs, and that it is the one that was meant.

Needs no privilege: status and control group of every process may be read, unless /proc is mounted with `hidepid`.
Not here: what a pod is called, and who holds device nodes (`plugin.holdings.holders.scan`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from plugin.holdings.holders.cgroup import parse_cgroup

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.holdings.holders.cgroup import Place

_FIRST_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h
_START_TIME = 22 - 3  # of the fields behind the command's name (proc_pid_stat(5))
_MAX_BYTES = 65536


class ProcessTable:
    """A /proc; `ticks_per_s` is the unit of its times."""

    def __init__(self, proc: Path, ticks_per_s: int | None = None) -> None:
        self._proc = str(proc)
        self._ticks_per_s = ticks_per_s or os.sysconf("SC_CLK_TCK")

    def has_the_machines_ids(self) -> bool:
        """Whether ids here are those of the machine's own process namespace; False where that cannot be told."""
        try:
            return os.readlink(f"{self._proc}/self/ns/pid") == _FIRST_NAMESPACE
        except OSError:
            return False

    def place(self, pid: int, before_s: float) -> Place | None:
        """Return where a process belongs that had its id already at `before_s` (CLOCK_BOOTTIME), and has it still.

        None for one that ended, and for one that began later: it may have got the id of another. Both files are read
        through one descriptor of the process's folder, which never becomes that of another process.
        """
        try:
            folder = os.open(f"{self._proc}/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            began = start_ticks(_read(folder, "stat"))
            # A time is rounded down: what says tick 7 may have begun at the end of it.
            if (began + 1) / self._ticks_per_s > before_s:
                return None
            return parse_cgroup(_read(folder, "cgroup"))
        except (OSError, ValueError):
            return None
        finally:
            os.close(folder)


def start_ticks(stat: str) -> int:
    """Return when a process began, in ticks since boot, from /proc/PID/stat. Raises ValueError for anything else."""
    fields = stat.rpartition(")")[2].split()  # the name in parentheses may have any character
    if len(fields) <= _START_TIME:
        raise ValueError("not the status of a process")
    return int(fields[_START_TIME])


def _read(folder: int, name: str) -> str:
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(descriptor, _MAX_BYTES).decode(errors="replace")
    finally:
        os.close(descriptor)
