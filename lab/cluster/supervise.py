"""Keeps the control plane running: ``supervise.py CONFIG``, started as a script in its own session.

It joins the cgroups, starts the processes in order, restarts them when they exit, and records their state in
``processes.json``. A SIGTERM ends all of them in order; so does the end of ``owner``, a process that the control
plane was bound to. If this process is killed the kernel ends the others (setpriv sets their parent death
signal).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

POLL_S = 0.25
RESTART_S = 1.0
STOP_S = 5.0


class Process:
    """One component: its command line and its state."""

    def __init__(self, config: dict) -> None:  # type: ignore[type-arg]  # JSON, read once
        self.config = config
        self.child: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.status: int | None = None
        self.next_start = 0.0

    def start(self, folder: str) -> None:
        """Start the process; its output is appended to its log."""
        self.starts += 1
        with open(self.config["log"], "ab") as log:  # one open file, no path arithmetic
            argv = ["setpriv", "--pdeathsig", "KILL", *self.config["argv"]]
            self.child = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def watch(self, folder: str, *, is_api_open: bool) -> bool:
        """Notice that it ended, restart it when it is due; return whether anything changed."""
        if self.child is not None:
            if self.child.poll() is None:
                return False
            self.status, self.child = self.child.returncode, None
            self.next_start = time.monotonic() + RESTART_S
            return True
        if time.monotonic() < self.next_start or (self.config["needs_api"] and not is_api_open):
            return False
        self.start(folder)
        return True

    def end(self) -> None:
        """Ask the process to end, and kill it if it does not in time."""
        if self.child is None:
            return
        self.child.terminate()
        try:
            self.child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def report(self) -> dict:  # type: ignore[type-arg]  # JSON, written once
        """Return the record for the state file: pid (0: not running), number of starts, last exit status."""
        return {"pid": self.child.pid if self.child else 0, "starts": self.starts, "status": self.status}


def main(config_path: str) -> int:
    """Run the control plane until it is told to end."""
    config = json.loads(Path(config_path).read_text())
    # A killed command may have left a supervisor: only one may run the processes of this folder.
    lock = os.open(f"{config_path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("another supervisor runs this control plane", flush=True)
        return 0
    for group in config["groups"]:
        Path(group, "cgroup.procs").write_text(str(os.getpid()))
    processes = [Process(component) for component in config["components"]]
    try:
        _keep(config, processes)
    finally:
        for process in reversed(processes):
            process.end()
        _write(config, processes)
        _leave(config["groups"])
    return 0


def _keep(config: dict, processes: list[Process]) -> None:  # type: ignore[type-arg]  # JSON
    """Watch the processes until a SIGTERM comes or the owner ends."""
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda caught, _frame: asked.append(caught))
    wake = [_signals(), *_owner(config["owner"])]
    is_api_open = False
    while True:
        is_api_open = is_api_open or _is_open(config["address"], config["port"])
        changes = [process.watch(config["folder"], is_api_open=is_api_open) for process in processes]
        if any(changes):
            _write(config, processes)
        readable = select.select(wake, [], [], POLL_S)[0]
        if asked or any(descriptor != wake[0] for descriptor in readable):
            return
        if readable:
            os.read(wake[0], 4096)


def _signals() -> int:
    """Return a descriptor that every signal makes readable; SIGCHLD is one of them from now on."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return reader


def _owner(pid: int) -> list[int]:
    """Return descriptors that become readable when the owner ends; an empty list without an owner."""
    return [os.pidfd_open(pid)] if pid else []


def _is_open(address: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, port), POLL_S):
        return True
    return False


def _write(config: dict, processes: list[Process]) -> None:  # type: ignore[type-arg]  # JSON
    """Replace the file atomically, so that readers see a consistent state."""
    seen = {process.config["name"]: process.report() for process in processes}
    path = Path(config["report"])
    partial = path.with_suffix(".partial")
    with contextlib.suppress(FileNotFoundError):  # the folder was removed: there is no reader any more
        partial.write_text(json.dumps({"supervisor": os.getpid(), "components": seen}))
        partial.replace(path)


def _leave(groups: list[str]) -> None:
    """Leave the cgroups and remove them, as the owner may no longer be there to do so."""
    for group in map(Path, groups):
        with contextlib.suppress(OSError):
            (group.parent / "cgroup.procs").write_text(str(os.getpid()))
            group.rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
