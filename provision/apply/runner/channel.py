"""Reads and decodes the events of a run from a named pipe, out of reach of whatever a node prints.

It lies in the run's own folder (mode 0700). A thread reads it, so that a slow reader of the events holds up nobody:
ansible-playbook would stand still once the pipe is full.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from provision.base.decoding import decoder_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VARIABLE: Final = "GRAPNEL_EVENTS"  # tells the callback where the pipe is
KEYS_VARIABLE: Final = "GRAPNEL_EVENT_KEYS"  # and which keys of an answer are wanted
_CHUNK_BYTES: Final = 256 * 1024
_POLL_MS: Final = 100


MAX_HEADER_BYTES: Final = 64 * 1024
MAX_BODY_BYTES: Final = 8 * 1024 * 1024

_Name = Annotated[str, msgspec.Meta(max_length=4096)]
_Text = Annotated[str, msgspec.Meta(max_length=64 * 1024)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]


class FrameError(Exception):
    """The channel does not hold frames: what writes it is not our callback, or of another version."""


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Ansible knows of an event; ``time`` in seconds since the epoch.

    ``id`` names the task, ``action`` the module or action that it runs, ``refused`` why an answer was not passed on.
    """

    event: Literal["started", "ok", "failed", "skipped", "unreachable", "no-hosts", "stats"]
    time: float
    size: Annotated[int, msgspec.Meta(ge=0, le=MAX_BODY_BYTES)]
    node: _Name = ""
    task: _Name = ""
    action: _Name = ""
    role: _Name = ""
    id: _Name = ""
    changed: bool = False
    ignored: bool = False
    refused: _Name = ""


class TaskAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a task came to: the texts that say what went wrong, and the kept keys, each still JSON."""

    texts: dict[Literal["msg", "module_stderr", "stderr", "exception", "module_stdout", "stdout"], _Text] = {}
    status: int | None = None
    censored: bool = False
    values: dict[str, msgspec.Raw] = {}


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Ansible's own count of a host's tasks."""

    ok: _Count = 0
    changed: _Count = 0
    failures: _Count = 0
    unreachable: _Count = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """One event as it came."""

    header: Header
    body: bytes = b""


_HEADER: Final = decoder_of(Header)
_ANSWER: Final = decoder_of(TaskAnswer)
_COUNTS: Final = decoder_of(dict[str, Counts])
BROKEN: Final = (msgspec.DecodeError, UnicodeError, RecursionError, MemoryError)


def decode_answer(body: bytes) -> TaskAnswer:
    """Return an answer; raises one of `BROKEN` when it cannot be decoded."""
    return _ANSWER.decode(body)


def decode_counts(body: bytes) -> dict[str, Counts]:
    """Return the counts of all hosts; raises one of `BROKEN` when they cannot be decoded."""
    return _COUNTS.decode(body)


@dataclass(slots=True)
class Decoder:
    """Takes bytes as they come and gives whole frames; holds at most one frame."""

    _buffer: bytearray = field(default_factory=bytearray)
    _header: Header | None = None

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete now; raises `FrameError`."""
        self._buffer += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        if self._header is None:
            self._header = self._take_header()
        if self._header is None or len(self._buffer) < self._header.size:
            return None
        header, self._header = self._header, None
        body = bytes(self._buffer[: header.size])
        del self._buffer[: header.size]
        return Frame(header, body)

    def _take_header(self) -> Header | None:
        end = self._buffer.find(b"\n", 0, MAX_HEADER_BYTES)
        if end < 0:
            if len(self._buffer) >= MAX_HEADER_BYTES:
                raise FrameError(f"no header within {MAX_HEADER_BYTES} bytes")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            return _HEADER.decode(line)
        except BROKEN as error:
            raise FrameError(str(error)) from error


@dataclass(slots=True)
class Channel:
    """A pipe that is being read. Frames, or why it cannot be read, arrive in ``frames``; None is the end."""

    path: Path
    frames: queue.SimpleQueue[Frame | FrameError | None] = field(default_factory=queue.SimpleQueue)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def finish(self) -> None:
        """Say that nobody writes any more: what is in the pipe is still read, then the end follows."""
        self._is_over.set()

    def pump(self, descriptor: int) -> None:
        """Read until the end, on the channel's own thread."""
        decoder = Decoder()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        try:
            while True:
                is_last = self._is_over.is_set()  # asked before the pipe is: what was written first is not missed
                if poll.poll(0 if is_last else _POLL_MS):
                    for frame in decoder.feed(os.read(descriptor, _CHUNK_BYTES)):
                        self.frames.put(frame)
                elif is_last:
                    break
        except FrameError as error:
            self.frames.put(error)
        self.frames.put(None)


@contextlib.contextmanager
def open_channel(path: Path) -> Iterator[Channel]:
    """Make the pipe and read it until the end of the block."""
    os.mkfifo(path, 0o600)
    # Opened for writing too: the pipe has no end before the run has, whoever opens and closes it.
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    channel = Channel(path)
    thread = threading.Thread(target=channel.pump, args=(descriptor,), name="events")
    thread.start()
    try:
        yield channel
    finally:
        channel.finish()
        thread.join()
        os.close(descriptor)
