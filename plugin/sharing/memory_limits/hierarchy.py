"""The node's control groups: whether cgroup v2 has a group by its path.

Not here: whose group it is (`request`).
"""

from __future__ import annotations

import os
from pathlib import Path

from plugin.base.errors import LimitError

ROOT = Path("/sys/fs/cgroup")  # where NVIDIA's driver wants it
_PROCESSES = "cgroup.procs"
_CONTROLLERS = "cgroup.controllers"  # every group of v2 has it, and none of v1


def full_path(root: Path, group: str) -> str:
    """Return the full path of a group that is there; raises LimitError. `group` has been checked (`request`)."""
    if not (root / _CONTROLLERS).exists():
        raise LimitError(f"{root} is not cgroup v2", "memory limits take cgroup v2 alone (unified)")
    path = f"{root}{group}"
    # Links and mounts inside of the hierarchy would lead elsewhere; the kernel makes none.
    if os.path.realpath(path) != path or not Path(path, _PROCESSES).exists():
        raise LimitError(f"{path} is not there", "does the daemon see the node's control groups?")
    return path


def is_there(path: str) -> bool:
    """Whether a group still exists."""
    return Path(path, _PROCESSES).exists()
