"""Manages cgroups: one group per node in every hierarchy of the machine, v1 and v2.

Without it all nodes would share ``/payload`` and see each other's services. The group is also used to find and
kill a node's processes, whatever happened to the process that started them.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from lab.machine.errors import SiteError
from lab.machine.processes import kill_if

MOUNTS = Path("/proc/self/mounts")
KILL_TIMEOUT_S = 20.0
POLL_S = 0.02


def hierarchies() -> list[Path]:
    """Return where the machine's cgroup hierarchies are mounted."""
    fields = (line.split() for line in MOUNTS.read_text().splitlines())
    return sorted(Path(field[1]) for field in fields if field[2] in ("cgroup", "cgroup2"))


@dataclass(frozen=True)
class ControlGroup:
    """The group ``name`` at the top of every hierarchy."""

    name: str

    def create(self) -> list[Path]:
        """Create the group; return its folder in every hierarchy."""
        folders = [hierarchy / self.name for hierarchy in hierarchies()]
        for folder in folders:
            folder.mkdir(exist_ok=True)
            self._inherit_cpuset(folder)
        return folders

    @staticmethod
    def _inherit_cpuset(folder: Path) -> None:
        """Fill a v1 cpuset: it starts empty and accepts no process."""
        for name in ("cpuset.cpus", "cpuset.mems"):
            mine, parent = folder / name, folder.parent / name
            if mine.exists() and parent.exists() and not mine.read_text().strip():
                mine.write_text(parent.read_text())
        clone = folder / "cgroup.clone_children"
        if clone.exists():
            clone.write_text("1")

    def pids(self) -> set[int]:
        """Return every process in the group and below."""
        found: set[int] = set()
        for hierarchy in hierarchies():
            for path, _, files in os.walk(hierarchy / self.name):
                if "cgroup.procs" in files:
                    with contextlib.suppress(OSError):  # the group was just removed, or is a threaded one
                        found.update(map(int, Path(path, "cgroup.procs").read_text().split()))
        return found

    def kill(self) -> None:
        """Kill every process in the group, and wait until none is left."""
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while pids := self.pids():
            for pid in pids - {0, 1, os.getpid()}:
                kill_if(pid, self._has_member)
            if time.monotonic() > deadline:
                raise SiteError(f"cgroup {self.name}: processes {sorted(pids)} cannot be killed")
            time.sleep(POLL_S)

    def _has_member(self, pid: int) -> bool:
        return f"/{self.name}" in Path(f"/proc/{pid}/cgroup").read_text()

    def remove(self) -> None:
        """Remove the group and those below it. Who comes into it meanwhile is killed.

        A group is busy for a moment after its last process was reaped.
        """
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while folders := [folder for hierarchy in hierarchies() if (folder := hierarchy / self.name).exists()]:
            self.kill()
            for folder in folders:
                for path, _, _ in os.walk(folder, topdown=False):
                    with contextlib.suppress(OSError):
                        Path(path).rmdir()
            if time.monotonic() > deadline:
                raise SiteError(f"{folders[0]}: cgroup stays busy")
            time.sleep(POLL_S)
