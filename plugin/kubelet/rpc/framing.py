"""Length-prefixed messages inside a stream of bytes: one byte for compression, four for the length.

Source: PROTOCOL-HTTP2.md of gRPC. Not here: what is in a message.
"""

from __future__ import annotations

import struct

from plugin.kubelet.rpc.status import CallError, Code

_PREFIX = struct.Struct(">BI")


def frame_message(payload: bytes) -> bytes:
    """Return a message as it goes into DATA frames."""
    return _PREFIX.pack(0, len(payload)) + payload


class MessageReader:
    """Takes bytes as they arrive; holds at most one message of `limit_bytes` that is not complete."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()

    @property
    def is_between_messages(self) -> bool:
        """Whether the stream may end here."""
        return not self._buffer

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that are complete now; raises CallError."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= _PREFIX.size:
            compressed, length = _PREFIX.unpack_from(self._buffer)
            if compressed:
                raise CallError(Code.UNIMPLEMENTED, "compressed messages are not supported")
            if length > self._limit_bytes:
                raise CallError(
                    Code.RESOURCE_EXHAUSTED, f"a message of {length} bytes is longer than the limit {self._limit_bytes}"
                )
            end = _PREFIX.size + length
            if len(self._buffer) < end:
                break
            messages.append(bytes(self._buffer[_PREFIX.size : end]))
            del self._buffer[:end]
        return messages
