"""Real control groups of cgroup v2, and processes in them."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def hierarchy() -> Path | None:
    """Return where cgroup v2 is mounted, None where it is not."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return next((Path(line.split()[1]) for line in lines if line.split()[2] == "cgroup2"), None)


@contextmanager
def control_group(path: str) -> Iterator[Path]:
    """Make a group by its path below the hierarchy, with those around it; skips where this process may not."""
    root = hierarchy()
    if root is None or os.geteuid() != 0 or not os.access(root, os.W_OK):
        pytest.skip("no control group can be made here: it takes root, and cgroup v2 that is writable")
    made: list[Path] = []
    folder = root
    for name in path.split("/"):
        folder /= name
        if not folder.exists():
            folder.mkdir()
            made.append(folder)
    try:
        yield folder
    finally:
        for each in reversed(made):
            with suppress(OSError):
                each.rmdir()


def inside(group: Path, command: Sequence[str]) -> list[str]:
    """Return the command that runs another one in a group."""
    return ["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group / "cgroup.procs"), *command]
