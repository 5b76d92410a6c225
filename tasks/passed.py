"""Remembers which files a slow check has passed, so that it is not run again for the same ones."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from lab.machine.folders import cache_dir, content_key

if TYPE_CHECKING:
    from collections.abc import Callable


def run_unless_passed(name: str, paths: tuple[str, ...], check: Callable[[], int]) -> int:
    """Return the exit status of a check of what git has below ``paths``, or 0 if the same files have passed before."""
    passed = cache_dir() / name / content_key(*(path.read_bytes() for path in tracked(*paths)))
    if passed.exists():
        print("nothing has changed since it passed")
        return 0
    status = check()
    if status == 0:
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.touch()
    return status


def tracked(*paths: str) -> list[Path]:
    """Return the files below ``paths`` that git has, or would take in, in the order of their names."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *paths], capture_output=True, text=True, check=True
    )
    return [path for path in map(Path, sorted(listed.stdout.splitlines())) if path.is_file()]
