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
_BEGINNING_POLL_S = 0.001
_BEGINS_S = 1.0
_END_OF_ENVIRONMENT = 51 - 3  # env_end, among the fields from the state on
_KILLED_S = 5.0  # a killed process may be in a call to a disk that does not answer
_ENDED = ("Z", "X")


def find_processes(name: str, value: str, proc: Path = Path("/proc")) -> list[int]:
    """Return the pids, ascending, of processes with NAME=VALUE in their environment, without our own."""
    wanted = f"{name}={value}".encode()
    found = []
    for entry in proc.glob("[0-9]*"):
        pid = int(entry.name)
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            marked = wanted in _environ(entry).split(b"\0")
            if marked and pid != os.getpid() and not _is_shared_connection(entry):
                found.append(pid)
    return sorted(found)


def _environ(entry: Path) -> bytes:
    """Return a process's environment; of one that just begins a program, as soon as the kernel has put it there.

    Raises OSError where there is no program: a kernel's thread, or what has ended.
    """
    if environ := (entry / "environ").read_bytes():
        return environ
    (entry / "exe").readlink()
    deadline = time.monotonic() + _BEGINS_S
    while _fields(entry)[_END_OF_ENVIRONMENT] == "0" and time.monotonic() < deadline:
        time.sleep(_BEGINNING_POLL_S)
    return (entry / "environ").read_bytes()


def _fields(entry: Path) -> list[str]:
    """Return what the kernel says of a process behind its name, its state first: proc_pid_stat(5) from (3) on."""
    return (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _is_shared_connection(entry: Path) -> bool:
    """Whether it is an ssh master: OpenSSH sets the title ``ssh: <control path> [mux]``."""
    title = (entry / "cmdline").read_bytes().rstrip(b"\0 ")
    return title.startswith(b"ssh: ") and title.endswith(b"[mux]")


def end_processes(name: str, value: str, *, grace_s: float, proc: Path = Path("/proc")) -> int:
    """End the marked processes: SIGTERM, then SIGKILL for what is left after ``grace_s``; return how many.

    SIGTERM lets ansible-playbook tell its workers and remove its temporary files. When this returns they have ended.
    One that is about to has no environment any more, but still its files, its locks and its connections.
    """
    pids = find_processes(name, value, proc)
    known = set(pids)

    def wait(seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            known.update(find_processes(name, value, proc))  # those that have come since
            if not any(_goes_on(proc / str(pid)) for pid in known):
                return
            time.sleep(_POLL_S)

    _signal(pids, signal.SIGTERM)
    wait(grace_s)
    _signal(find_processes(name, value, proc), signal.SIGKILL)
    wait(_KILLED_S)
    return len(pids)


def _goes_on(entry: Path) -> bool:
    try:
        return _fields(entry)[0] not in _ENDED and not _is_shared_connection(entry)
    except (OSError, IndexError):  # gone
        return False


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
