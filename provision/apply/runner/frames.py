"""Decodes the events of a run from their channel. Pure.

A frame is a header, one line of JSON, and as many bytes of JSON behind it as its ``size`` says. The header is written
by our callback (``callback_plugins/grapnel_events.py``) from what Ansible itself knows; only the body holds what a node
has answered. So a body can be of any content and only ever spoils the event that it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from provision.base.decoding import decoder_of

if TYPE_CHECKING:
    from collections.abc import Iterator

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
