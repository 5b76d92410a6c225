"""Finds the interpreters of this machine that a node's system may have, too."""

from __future__ import annotations

from pathlib import Path

MINORS = range(9, 15)  # 3.9 of RHEL 9 and Amazon Linux 2023, to 3.14 of Ubuntu 26.04


def find_python(minor: int) -> Path | None:
    """Return the system's Python 3.`minor`, or pyenv's; None where neither is installed."""
    places = (Path("/usr/bin"), *sorted(Path.home().glob(".pyenv/versions/*/bin")))
    return next((path for place in places if (path := place / f"python3.{minor}").is_file()), None)
