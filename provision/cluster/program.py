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

from provision.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_ERRORS: Final = 16 << 10  # bytes of standard error that are kept
MAX_SHOWN: Final = 300  # characters of it in a message
_CHUNK: Final = 1 << 16


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
        output, errors = (_Stream(stream) for stream in (process.stdout, process.stderr) if stream is not None)
        ended = os.pidfd_open(process.pid)
        stack.callback(os.close, ended)
        selector = stack.enter_context(selectors.DefaultSelector())
        for each in (output.descriptor, errors.descriptor, ended):
            selector.register(each, selectors.EVENT_READ)
        is_over = False
        while not is_over:
            ready = {key.fd for key, _events in selector.select(max(0.0, deadline - time.monotonic()))}
            if not ready:
                return Ran(code=-1, problem=f"no answer within {self.timeout_s:g} s")
            is_over = ended in ready
            for stream in (output, errors):
                stream.read(self.limit_bytes)
                if stream.is_closed and not is_over and stream.descriptor in selector.get_map():
                    selector.unregister(stream.descriptor)
            if len(output.kept) > self.limit_bytes:
                return Ran(code=-1, problem=f"it printed more than {self.limit_bytes} bytes")
            del errors.kept[MAX_ERRORS:]
        return Ran(code=process.wait(), output=bytes(output.kept), errors=errors.kept.decode(errors="replace"))


class _Stream:
    """What a program prints, as far as it is kept."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.descriptor = stream.fileno()
        self.kept = bytearray()
        self.is_closed = False
        os.set_blocking(self.descriptor, False)

    def read(self, limit_bytes: int) -> None:
        """Take all that can be read now, and no more than a chunk beyond the limit."""
        while not self.is_closed and len(self.kept) <= limit_bytes:
            try:
                chunk = os.read(self.descriptor, _CHUNK)
            except BlockingIOError:
                return
            self.kept += chunk
            self.is_closed = not chunk


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
