"""Starts one command and says what it cost, whatever it started itself included."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"}

# Starts the program that argv[0] names and notes its peak memory. It forks, so that what is counted is the program's
# own: a runtime starts hooks by vfork, which leaves the runtime's peak in the child's rusage.
PEAK = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct rusage used;
    int status, log = open(getenv("PEAK_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    pid_t child = fork();
    if (child == 0) { execv(argv[0], argv); _exit(127); }
    if (log < 0 || child < 0 || wait4(child, &status, 0, &used) < 0) return 126;
    dprintf(log, "%ld %s\n", used.ru_maxrss, argc > 1 ? argv[1] : argv[0]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 125;
}
"""


@dataclass(frozen=True)
class Cost:
    """Milliseconds of one start: by the clock, and of all processors together."""

    wall: float
    cpu: float


def measure(argv: list[str], stdin: bytes = b"") -> Cost:
    """Run a command to its end; SystemExit with its words if it fails."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        given.write(stdin)
        given.seek(0)
        actions = [
            (os.POSIX_SPAWN_DUP2, given.fileno(), 0),
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, said.fileno(), 2),
        ]
        began = time.perf_counter()
        pid = os.posix_spawnp(argv[0], argv, ENVIRONMENT, file_actions=actions)
        _, status, used = os.wait4(pid, 0)
        wall = time.perf_counter() - began
        if status:
            said.seek(0)
            raise SystemExit(f"{' '.join(argv)} failed: {said.read().decode(errors='replace')}")
    return Cost(wall * 1000, (used.ru_utime + used.ru_stime) * 1000)


def build_peak_wrapper(folder: Path) -> Path:
    """Compile the wrapper that notes the peak memory of a hook."""
    path = folder / "peak"
    subprocess.run(["gcc", "-O1", "-x", "c", "-o", str(path), "-"], input=PEAK, text=True, check=True)
    return path


def read_peaks(log: Path) -> list[tuple[str, float]]:
    """Return the noted processes, in their order: what was called, and MiB."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [(name, int(kib) / 1024) for kib, _, name in (line.partition(" ") for line in lines)]
