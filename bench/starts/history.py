"""What was measured before: one line of JSON for each run, so that a change that makes the hook slower is seen.

Milliseconds depend on the machine and its load; what is compared are the figures of the verdict, most of them ratios.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.starts.verdict import Line

WORSE = 1.10  # noise between two runs on one machine stays below
_SMALLEST = 0.5  # of milliseconds: differences below are noise, too


def read(path: Path) -> list[dict[str, Any]]:
    """Return the entries, oldest first."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, entry: dict[str, Any]) -> None:
    """Add an entry."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(entry, sort_keys=True) + "\n")


def last_of(entries: Sequence[dict[str, Any]], machine: str) -> dict[str, Any] | None:
    """Return the newest entry of a machine, else the newest of any."""
    own = [entry for entry in entries if entry["machine"] == machine]
    return next(reversed(own or entries), None)


def compare(before: dict[str, Any], lines: Sequence[Line]) -> list[str]:
    """Say how each figure was the last time; the ones that became worse are marked."""
    found = []
    for line in lines:
        old = before["figures"].get(line.name)
        if old is None:
            continue
        is_worse = line.measured > old * WORSE and (line.unit == "x" or line.measured > old + _SMALLEST)
        found.append(f"{line.name:58} {old:7.2f} -> {line.measured:5.2f} {line.unit:3} {'WORSE' if is_worse else ''}")
    return [text.rstrip() for text in found]
