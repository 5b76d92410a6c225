"""Cuts what a peer sends into HTTP/2 frames. A frame that is too long is refused by its header, before it is kept.

h2 checks a length too, but only once the whole frame has come. Source: RFC 9113, sections 3.4, 4.1 and 4.2.
"""

from __future__ import annotations

PREFACE_BYTES = 24
_HEADER_BYTES = 9


class FrameTooLong(Exception):
    """A frame longer than the limit that was announced."""


class FrameCutter:
    """Holds at most what was fed to it and the part of one frame. A client's preface goes through as it comes."""

    def __init__(self, preface_bytes: int = 0) -> None:
        self._preface_left = preface_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        self._buffer += data

    def next_frame(self, limit_bytes: int) -> bytes:
        """Return the next whole frame, b"" where there is none yet; raises FrameTooLong."""
        if self._preface_left:
            taken = self._take(self._preface_left)
            self._preface_left -= len(taken)
            return taken
        if len(self._buffer) < _HEADER_BYTES:
            return b""
        length = int.from_bytes(self._buffer[:3], "big")
        if length > limit_bytes:
            raise FrameTooLong(f"a frame of {length} bytes is longer than the limit {limit_bytes}")
        end = _HEADER_BYTES + length
        return self._take(end) if len(self._buffer) >= end else b""

    def _take(self, length: int) -> bytes:
        taken = bytes(self._buffer[:length])
        del self._buffer[:length]
        return taken
