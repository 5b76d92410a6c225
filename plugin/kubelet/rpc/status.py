"""What a call ends with: a code, a text, and how both and the time limit look in headers.

Source: PROTOCOL-HTTP2.md and statuscodes.md of gRPC. Not here: sending them.
"""

from __future__ import annotations

import enum
import math


class Code(enum.IntEnum):
    """gRPC's status codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class CallError(Exception):
    """A call that did not end well: its status."""

    def __init__(self, code: Code, detail: str) -> None:
        super().__init__(f"{code.name}: {detail}")
        self.code = code
        self.detail = detail


_MAX_DETAIL_BYTES = 1024  # of text; percent-encoded at most three times as much, far below a header's limit
_DIGITS = 2  # of a byte that is encoded
_PLAIN = frozenset(range(0x20, 0x7F)) - {0x25}
_UNITS_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_MAX_TIMEOUT_DIGITS = 8


def encode_detail(text: str) -> bytes:
    """Return a text as the value of `grpc-message`: printable ASCII as it is, the rest percent-encoded."""
    clipped = text.encode("utf-8", "replace")[:_MAX_DETAIL_BYTES]
    return b"".join(bytes((byte,)) if byte in _PLAIN else b"%%%02X" % byte for byte in clipped)


def decode_detail(value: bytes) -> str:
    """Return the text of a `grpc-message`; what is not encoded properly stays as it came."""
    parts = value.split(b"%")
    text = bytearray(parts[0])
    for part in parts[1:]:
        try:
            text.append(int(part[:2], 16) if len(part) >= _DIGITS else -1)
            text += part[2:]
        except ValueError:
            text += b"%" + part
    return text.decode("utf-8", "replace")


def parse_code(value: bytes | None) -> Code:
    """Return the code of a `grpc-status`; UNKNOWN for anything else."""
    try:
        return Code(int(value or b"2"))
    except ValueError:
        return Code.UNKNOWN


def parse_timeout(value: bytes) -> float:
    """Return the seconds of a `grpc-timeout`; raises CallError."""
    digits, unit_s = value[:-1], _UNITS_S.get(value[-1:])
    if unit_s is None or not digits.isdigit() or len(digits) > _MAX_TIMEOUT_DIGITS:
        raise CallError(Code.INTERNAL, "malformed grpc-timeout")
    return int(digits) * unit_s


def format_timeout(timeout_s: float) -> bytes:
    """Return a `grpc-timeout` of at least the given seconds, never zero."""
    milliseconds = max(1, math.ceil(timeout_s * 1000))
    if milliseconds < 10**_MAX_TIMEOUT_DIGITS:
        return b"%dm" % milliseconds
    return b"%dS" % min(math.ceil(timeout_s), 10**_MAX_TIMEOUT_DIGITS - 1)
