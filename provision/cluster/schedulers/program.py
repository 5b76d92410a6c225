"""Runs a program of the site: no shell, no input, a limit on its time and on what it may print.

Only its name is in messages: arguments may hold what is not for a log.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from provision.base.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_ERRORS: Final = 16 << 10  # bytes of standard error that are kept
MAX_SHOWN: Final = 300  # characters of it in a message
_CHUNK: Final = 1 << 16
_CHUNKS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a program ended: its exit code, negative for a signal. ``problem`` is why it came to no end of its own."""

    code: int
    output: bytes = b""
    errors: str = ""
    problem: str = ""

    @property
    def complaint(self) -> str:
        """What went wrong, in its own words where it said any, as one line."""
        if self.problem:
            return self.problem
        said = " ".join(self.errors.split())
        end = f"ended by signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return f"{end}: {printable(said, limit=MAX_SHOWN)}" if said else end


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How programs are run: at most ``timeout_s`` long, in ``environ``, printing at most ``limit_bytes``."""

    timeout_s: float
    limit_bytes: int
    environ: Mapping[str, str]

    def run(self, argv: Sequence[str]) -> Ran:
        """Run a program to its end; one whose time is up is killed, with everything that it started."""
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.environ),
                start_new_session=True,
            )
        except OSError as error:
            return Ran(code=-1, problem=f"it cannot be started: {error.strerror}")
        with contextlib.ExitStack() as stack:
            stack.callback(_end, process)
            return self._follow(process, stack)

    def _follow(self, process: subprocess.Popen[bytes], stack: contextlib.ExitStack) -> Ran:
        """Read until the program itself has ended: what it started may keep its output open for longer."""
        deadline = time.monotonic() + self.timeout_s
        limits = (self.limit_bytes, MAX_ERRORS)
        streams = (stream for stream in (process.stdout, process.stderr) if stream is not None)
        output, errors = (_Stream(stream, limit) for stream, limit in zip(streams, limits, strict=True))
        ended = os.pidfd_open(process.pid)
        stack.callback(os.close, ended)
        selector = stack.enter_context(selectors.DefaultSelector())
        for each in (output.descriptor, errors.descriptor, ended):
            selector.register(each, selectors.EVENT_READ)
        is_over = False
        while not is_over:
            left_s = deadline - time.monotonic()
            ready = {key.fd for key, _events in selector.select(max(0.0, left_s))}
            if not ready or left_s <= 0:  # one that prints without end is ready for ever
                return Ran(code=-1, problem=f"no answer within {self.timeout_s:g} s")
            is_over = ended in ready
            for stream in (output, errors):
                stream.read()
                if stream.is_closed and not is_over and stream.descriptor in selector.get_map():
                    selector.unregister(stream.descriptor)
            if output.is_cut:
                return Ran(code=-1, problem=f"it printed more than {self.limit_bytes} bytes")
        return Ran(code=process.wait(), output=bytes(output.kept), errors=errors.kept.decode(errors="replace"))


class _Stream:
    """What a program prints; beyond the limit it is read and not kept, so that the program does not wait to be read."""

    def __init__(self, stream: IO[bytes], limit_bytes: int) -> None:
        self.descriptor = stream.fileno()
        self.kept = bytearray()
        self.is_closed = self.is_cut = False
        self._limit_bytes = limit_bytes
        os.set_blocking(self.descriptor, False)

    def read(self) -> None:
        """Take what can be read now, at most so much that others are looked at in between."""
        for _ in range(_CHUNKS):
            if self.is_closed:
                return
            try:
                chunk = os.read(self.descriptor, _CHUNK)
            except BlockingIOError:
                return
            room = self._limit_bytes - len(self.kept)
            self.kept += chunk[:room]
            self.is_cut = self.is_cut or len(chunk) > room
            self.is_closed = not chunk


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
