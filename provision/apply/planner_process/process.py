"""Starts a worker process, exchanges bytes with it, and ends it at any time."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final

import provision
from provision.apply.planner_process.wire import LENGTH

if TYPE_CHECKING:
    import threading

POLL_S: Final = 0.1
_CHUNK_BYTES: Final = 1 << 16


class WorkerError(Exception):
    """There was no answer; the worker has ended."""


class EndedError(WorkerError):
    """The worker ended by itself: ``how`` says with which status or signal."""


class LateError(WorkerError):
    """The worker did not answer in time."""


class OversizeError(WorkerError):
    """The worker's answer is larger than is read."""


class CanceledWorkError(WorkerError):
    """Nobody waits for the answer any more."""


class WorkerProcess:
    """One worker, started at once. Not for several threads at a time."""

    def __init__(self) -> None:
        argv = [sys.executable, "-P", "-m", "provision.apply.planner_process.worker"]
        folders = [str(Path(provision.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, folders)), "LC_ALL": "C.UTF-8"}
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # an interrupt at the keyboard is the controller's alone
        )
        assert self._process.stdin is not None  # for type checkers: both are pipes
        assert self._process.stdout is not None  # the same
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)
        self._finalizer = weakref.finalize(self, _end, self._process)

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the worker can be asked."""
        return self._finalizer.alive and self._process.poll() is None

    def ask(self, request: bytes, cancel: threading.Event, *, wall_s: float, limit_bytes: int) -> bytes:
        """Send a request and return the content of the frame that answers it.

        Raises one of the errors above, and then the worker has ended.
        """
        try:
            return self._exchange(memoryview(request), cancel, time.monotonic() + wall_s, limit_bytes)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Kill the worker unless it has ended; it has nothing to finish."""
        self._finalizer()

    def _exchange(self, unsent: memoryview, cancel: threading.Event, deadline: float, limit_bytes: int) -> bytes:
        received = bytearray()
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        poll.register(self._input, select.POLLOUT)
        while True:
            if cancel.is_set():
                raise CanceledWorkError
            if time.monotonic() > deadline:
                raise LateError
            ready = dict(poll.poll(POLL_S * 1000))
            if self._input in ready:
                unsent = self._send(unsent)
                if not unsent:
                    poll.unregister(self._input)
            if self._output in ready:
                received += self._receive()
                if len(received) >= LENGTH.size:
                    (length,) = LENGTH.unpack_from(received)
                    if length > limit_bytes:
                        raise OversizeError
                    if len(received) >= LENGTH.size + length:
                        return bytes(received[LENGTH.size :])

    def _send(self, unsent: memoryview) -> memoryview:
        try:
            return unsent[os.write(self._input, unsent[:_CHUNK_BYTES]) :]
        except BlockingIOError:
            return unsent
        except BrokenPipeError:
            raise self._ended() from None

    def _receive(self) -> bytes:
        chunk = os.read(self._output, _CHUNK_BYTES)
        if not chunk:
            raise self._ended()
        return chunk

    def _ended(self) -> EndedError:
        self._process.kill()
        status = self._process.wait()
        return EndedError(f"by signal {-status}" if status < 0 else f"with status {status}")


def _end(process: subprocess.Popen[bytes]) -> None:
    with process:  # closes the pipes and waits
        process.kill()
