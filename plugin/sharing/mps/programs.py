"""Runs a program within a time limit, with nothing of it left behind; tells at once when another process ends.

Each in a thread, so that a program that was begun comes to its end, or to its limit, whatever becomes of the task that
asked for it. No thread keeps the daemon from ending.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

from plugin.base.errors import MpsError, os_reason
from plugin.system.thread_calls import called_in_own

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_MAX_SHOWN = 512
_MAX_ANSWER = 64 * 1024
_END_S = 1.0


async def run_program(
    command: Sequence[str], timeout_s: float, *, said: str = "", environment: Mapping[str, str] | None = None
) -> str:
    """Return what a program prints; `said` is its input. Raises MpsError with the command, to be pasted.

    A program that is late is killed with all that it started.
    """
    every = {**ENVIRONMENT, **(environment or {})}
    return await called_in_own("mps", lambda: _run(command, timeout_s, said, every))


def _run(command: Sequence[str], timeout_s: float, said: str, environment: Mapping[str, str]) -> str:
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise MpsError(f"{command[0]} cannot be started: {os_reason(error)}") from error
    try:
        output, complaints = process.communicate(said.encode(), timeout_s)
    except subprocess.TimeoutExpired as error:
        _kill(process)
        raise MpsError(f"no answer within {timeout_s:g} s: {_pasted(command, said)}") from error
    if process.returncode:
        why = (complaints or output)[-_MAX_SHOWN:].decode("utf-8", "replace").strip()
        raise MpsError(f"{why or f'exit code {process.returncode}'}: {_pasted(command, said)}")
    return output[:_MAX_ANSWER].decode("utf-8", "replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group; what sleeps in the kernel may outlive it, and is not waited for any longer."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=_END_S)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _pasted(command: Sequence[str], said: str) -> str:
    words = shlex.join(command)
    return f"echo {shlex.quote(said.strip())} | {words}" if said else words


class ExitWatch:
    """Watches one process at a time, in the event loop. Kernels before 5.3 cannot: what looks regularly has to do."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._pid = 0
        self._gone = 0  # systemd may name it a moment longer
        self._descriptor = -1

    @property
    def is_watching(self) -> bool:
        """Whether the process that was named last runs, as far as the kernel tells."""
        return self._descriptor >= 0

    def watch(self, pid: int) -> None:
        """Watch this process from now on, instead of another one; 0 is none."""
        if pid in {self._pid, self._gone}:
            return
        self.close()
        self._pid = pid
        try:
            self._descriptor = os.pidfd_open(pid) if pid else -1
        except OSError:  # it has ended, or the kernel is too old
            return
        if self._descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._descriptor, self._on_end)

    def close(self) -> None:
        """Watch nothing."""
        self._pid = 0
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _on_end(self) -> None:
        self._gone = self._pid
        self.close()
        self._ended()
