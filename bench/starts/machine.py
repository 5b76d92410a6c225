"""What figures depend on, for a line of the history: the machine and the commit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]


def machine(python: str) -> str:
    """Return processor, kernel, and the version of a Python."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    processor = models[0].partition(":")[2].strip() if models else os.uname().machine
    version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return f"{len(os.sched_getaffinity(0))} x {processor}, Linux {os.uname().release}, {version}"


def commit() -> str:
    """Return the commit that is checked out, marked where files differ from it."""
    command = ["git", "-C", str(_REPOSITORY), "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
