"""Reads the CRI log format: `<time> <stream> <F|P> <text>` lines, P for a line that continues in the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_FIELDS = 3


def read_log(path: Path) -> str:
    """Return what a container wrote; nothing if there is no log."""
    if not path.is_file():
        return ""
    return parse_log(path.read_text(errors="replace"))


def parse_log(log: str) -> str:
    """Return the texts of all lines of a log, joined as the container wrote them."""
    parts = []
    for line in log.split("\n"):
        fields = line.split(" ", _FIELDS)
        if len(fields) <= _FIELDS:
            continue
        parts.append(fields[_FIELDS] + ("" if fields[2] == "P" else "\n"))
    return "".join(parts)
