"""Runs a process and says what it took with all that it started: CPU time rather than time on the clock.

Other work on the machine makes the clock run and leaves CPU time nearly as it is.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKOUT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Cost:
    """What one process took; ``peak_mib`` is that of its largest process."""

    cpu_s: float
    wall_s: float
    peak_mib: float
    output: str


def measure(command: Sequence[str]) -> Cost:
    """Run a command in the checkout; raises SystemExit with its output when it fails."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every start compiles what an installation has compiled
    began = time.monotonic()
    with tempfile.TemporaryFile(mode="w+") as output:
        process = subprocess.Popen(list(command), cwd=CHECKOUT, env=environment, stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        took = time.monotonic() - began
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {process.returncode}:\n{text}")
    return Cost(used.ru_utime + used.ru_stime, took, used.ru_maxrss / 1024, text)
