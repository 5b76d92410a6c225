"""Finds and ends the processes of a run by a marker in their environment.

The ssh client's shared connections (ControlPersist) carry the marker too and are left alone: they end by
themselves and save the next run a handshake.

A process group is not enough: each worker of ansible-playbook (2.19) and each ssh client starts a session
of its own, and once ansible-playbook is gone they have no parent that could be followed either. Their
environment is inherited and stays. Where there is no /proc (macOS) nothing is found, and ansible-runner's
kill of the process group remains.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_POLL_S = 0.05


def find_processes(name: str, value: str, proc: Path = Path("/proc")) -> list[int]:
    """Return the pids, ascending, of processes with NAME=VALUE in their environment, without our own."""
    wanted = f"{name}={value}".encode()
    found = []
    for entry in proc.glob("[0-9]*"):
        pid = int(entry.name)
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            marked = wanted in (entry / "environ").read_bytes().split(b"\0")
            if marked and pid != os.getpid() and not _is_shared_connection(entry):
                found.append(pid)
    return sorted(found)


def _is_shared_connection(entry: Path) -> bool:
    """Whether it is an ssh master: OpenSSH sets the title ``ssh: <control path> [mux]``."""
    title = (entry / "cmdline").read_bytes().rstrip(b"\0 ")
    return title.startswith(b"ssh: ") and title.endswith(b"[mux]")


def end_processes(name: str, value: str, *, grace_s: float, proc: Path = Path("/proc")) -> int:
    """End the marked processes: SIGTERM, then SIGKILL for what is left after ``grace_s``; return how many.

    SIGTERM lets ansible-playbook tell its workers and remove its temporary files.
    """
    pids = find_processes(name, value, proc)
    _signal(pids, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and find_processes(name, value, proc):
        time.sleep(_POLL_S)
    _signal(find_processes(name, value, proc), signal.SIGKILL)
    return len(pids)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
