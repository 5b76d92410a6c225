"""Looks at processes from outside: their CPU and memory, and what the controller's own says."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LEAD: Final = Path(__file__).with_name("lead.py")
ANSWER_S: Final = 60.0
END_S: Final = 120.0


def wait(is_true: Callable[[], bool], what: str, timeout_s: float, poll_s: float = 0.05) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {timeout_s:.0f} s in vain: {what}")
        time.sleep(poll_s)


def memory_mib(pid: int, *, at_most: bool = False) -> float:
    """Return a process's resident memory, or the most that it has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM" if at_most else "VmRSS")) / 1024


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Counts:
    """How many requests the controller has sent, and how many bytes it was sent."""

    requests: int
    size: int


@dataclass
class Lead:
    """The controller's process, and what it says."""

    process: subprocess.Popen[str]
    looked: dict[str, float] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    _counted: list[Counts] = field(default_factory=list)

    @classmethod
    @contextlib.contextmanager
    def running(cls, kubeconfig: Path, *options: str) -> Iterator[Lead]:
        """Run it while inside; it ends at the end of its standard input, and gives its lease back."""
        command = [sys.executable, "-P", str(LEAD), str(kubeconfig), *options]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            lead = cls(process)
            thread = threading.Thread(target=lead._read, daemon=True)
            thread.start()
            try:
                yield lead
                assert process.stdin is not None
                process.stdin.close()
                process.wait(END_S)
            finally:
                process.kill()
                thread.join(END_S)

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    def counts(self) -> Counts:
        """Ask it for its counts."""
        assert self.process.stdin is not None
        known = len(self._counted)
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        wait(lambda: len(self._counted) > known, "the controller's process answers", ANSWER_S)
        return self._counted[-1]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            moment, kind, text = line.rstrip("\n").split(" ", 2)
            if kind == "looked":
                self.looked[text] = float(moment)
            elif kind == "counted":
                self._counted.append(Counts(*map(int, text.split())))
            else:
                self.said.append(text)
