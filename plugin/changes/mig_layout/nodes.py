"""Makes the capability nodes of MIG instances: `/dev/nvidia-caps/nvidia-cap<minor>`, by which a container gets one.

The driver numbers all capabilities that there can be in `/proc/driver/nvidia-caps/mig-minors`, and leaves it to user
space to make nodes of them; a node that is left of other numbers would open another one's instance.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from plugin.base.errors import os_reason
from plugin.changes.mig_layout.holders import capability_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from plugin.driver.mig_instances import CuttableGpu

_FOLDER = "nvidia-caps"
_MAJOR_NAME = "nvidia-caps"
_MAX_BYTES = 1 << 16
_MODE = 0o444  # as nvidia-modprobe makes those of instances; the control group decides who may open one


def make_nodes(gpus: Iterable[CuttableGpu], minors: Mapping[str, int], dev_root: Path, proc_root: Path) -> list[str]:
    """Make the nodes of all instances that lack one; returns what is missing then, in words."""
    names = [name for gpu in gpus for each in gpu.instances for name in capability_names(gpu.minor, each)]
    if not names:
        return []
    major = _major(proc_root)
    problems = [f"the driver names no capability node for {name}" for name in names if name not in minors]
    for minor in sorted({minors[name] for name in names if name in minors}):
        path = dev_root / _FOLDER / f"nvidia-cap{minor}"
        try:
            _make(path, major, minor)
        except OSError as error:
            problems.append(f"{path} cannot be made: {os_reason(error)}")
    return problems


def _major(proc_root: Path) -> int | None:
    """Return the major number that the kernel gave to capability nodes, None where it says none."""
    try:
        with (proc_root / "devices").open("rb") as file:
            lines = file.read(_MAX_BYTES).decode("ascii", "replace").splitlines()
    except OSError:
        return None
    pairs = (line.split() for line in lines)
    return next((int(pair[0]) for pair in pairs if pair[1:] == [_MAJOR_NAME] and pair[0].isdecimal()), None)


def _make(path: Path, major: int | None, minor: int) -> None:
    """Make one node in one step, in the place of one of other numbers; what cannot be told is left as it is."""
    found = _numbers(path)
    if (found is not None and major is None) or found == (major, minor):
        return
    if major is None:
        raise OSError(0, f"the kernel names no major number {_MAJOR_NAME}")
    path.parent.mkdir(mode=0o755, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)  # of a process that was killed
    os.mknod(beside, stat.S_IFCHR | _MODE, os.makedev(major, minor))
    beside.chmod(_MODE)
    beside.replace(path)


def _numbers(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (os.major(found.st_rdev), os.minor(found.st_rdev)) if stat.S_ISCHR(found.st_mode) else None
