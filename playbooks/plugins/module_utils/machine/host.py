"""Reaches the machine that a module runs on: its file system, commands and time, all replaceable in a test.

What the files and commands mean belongs to the modules beside this one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Callable

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

# Messages are parsed and shown, so they are in one language; nothing ever asks a question.
_ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "LC_ALL": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}
MAX_TEXT_BYTES = 1024 * 1024  # of a file that is read as a whole
_MAX_COMPLAINT = 2000  # characters of a message
_MAX_COMMAND = 300  # characters of a command in a message
_TIMED_OUT = 124  # as timeout(1) says it
_NOT_FOUND = 127  # as a shell says it


class HostError(Exception):
    """The machine cannot be read: the message says why."""


@dataclass(frozen=True)
class Finished:
    """How a command ended; 124 when it ran out of time, 127 when there is no such command."""

    return_code: int
    stdout: str = ""
    stderr: str = ""

    @property
    def is_timed_out(self) -> bool:
        """Whether it ran out of time, so that what it did not say is not known."""
        return self.return_code == _TIMED_OUT

    @property
    def complaints(self) -> str:
        """Everything the command said went wrong, on one line: the first cause may be at either end."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return printable("; ".join(lines), _MAX_COMPLAINT) or self.complaint

    @property
    def complaint(self) -> str:
        """What the command said went wrong, one line for a message."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return printable(lines[-1].strip(), _MAX_COMPLAINT) if lines else f"exit status {self.return_code}"


Run = Callable[[Sequence[str], float], Finished]


def run_command(arguments: Sequence[str], timeout_s: float) -> Finished:
    """Run a command with an explicit environment and a time limit, without a terminal that it could ask at.

    One that runs out of time is ended with everything that it has started, which would otherwise go on: a compiler
    below dkms, or a download that keeps a lock. What it had printed by then is returned.
    """
    try:
        process = subprocess.Popen(
            list(arguments),
            env=_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        return Finished(_NOT_FOUND, stderr=f"{arguments[0]} does not exist")
    with process:
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            _end_session(process)
            said = [_text(error.stderr).rstrip(), f"{arguments[0]} took longer than {timeout_s:g} s"]
            return Finished(_TIMED_OUT, _text(error.stdout), "\n".join(filter(None, said)))
        except BaseException:
            _end_session(process)
            raise
    return Finished(process.returncode, _text(stdout), _text(stderr))


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End a command and its children, of which it is the session's leader and so the leader of their group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    proxies = {name: value for name, value in inherited.items() if name.lower().endswith("_proxy")}
    return {**proxies, **_ENVIRONMENT}


@dataclass(frozen=True)
class Clock:
    """Time, for what has to wait and what is measured; ``monotonic`` goes on through every change of the clock."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Host:
    """A file-system root and a way to run commands."""

    root: Path = Path("/")
    run: Run = run_command

    def path(self, absolute: str) -> Path:
        """Place an absolute path of the machine below the root."""
        return self.root / absolute.lstrip("/")

    def ask(self, arguments: Sequence[str], timeout_s: float) -> Finished:
        """Run a command for what it answers; raises HostError when it gives none in time, which is no answer."""
        done = self.run(arguments, timeout_s)
        if done.is_timed_out:
            command = printable(shlex.join(arguments), _MAX_COMMAND)
            raise HostError(f"`{command}` took longer than {timeout_s:g} s: try again when the machine is less busy")
        return done

    def open(self, absolute: str) -> BinaryIO:
        """Open a regular file for reading; raises OSError for whatever else stands there, without waiting for it."""
        descriptor = os.open(self.path(absolute), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", absolute)
        return os.fdopen(descriptor, "rb")

    def read_text(self, absolute: str, limit_bytes: int = MAX_TEXT_BYTES) -> str | None:
        """Content of a file without surrounding white space, None when it cannot be read or is larger than that."""
        try:
            with self.open(absolute) as stream:
                data = stream.read(limit_bytes + 1)
        except OSError:
            return None
        return None if len(data) > limit_bytes else data.decode("utf-8", "replace").strip()

    def names(self, absolute: str) -> list[str]:
        """Names in a folder, sorted; none when it is not there."""
        try:
            return sorted(entry.name for entry in self.path(absolute).iterdir())
        except OSError:
            return []

    def find_command(self, name: str) -> str | None:
        """Absolute path of a command that the machine has."""
        for folder in _ENVIRONMENT["PATH"].split(":"):
            if os.access(self.path(f"{folder}/{name}"), os.X_OK):
                return f"{folder}/{name}"
        return None
