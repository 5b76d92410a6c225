"""Reads JSON that somebody else wrote into a type: within limits, and so that every reader sees the same document.

msgspec by itself skips what it does not know unread and lets the last of two equal keys win.
"""

from __future__ import annotations

import json
from typing import Final, NoReturn, TypeVar

import msgspec

from provision.base.decoding import decoder_of
from provision.base.printable import printable

_LONGEST: Final = 300

T = TypeVar("T")


class MalformedError(ValueError):
    """The document is not what was expected; the message is fit to be shown."""


def decode(data: bytes, kind: type[T], *, limit_bytes: int) -> T:
    """Return the document as a ``kind``; raises `MalformedError` with the path of the first value that is wrong."""
    if len(data) > limit_bytes:
        raise MalformedError(f"it has {len(data):,} bytes, more than the limit of {limit_bytes:,}")
    try:
        value = decoder_of(kind).decode(data)
        json.loads(data.decode("utf-8"), object_pairs_hook=_require_unique, parse_constant=_refuse_constant)
    except RecursionError:
        raise MalformedError("it is nested too deeply") from None
    except MemoryError:
        raise MalformedError("it needs too much memory") from None
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        reason = printable(str(error), limit=_LONGEST)
        raise MalformedError(reason[:1].lower() + reason[1:]) from error
    return value


def as_bytes(data: object) -> bytes:
    """Return a document that is text, or is parsed already, as it would have been sent; raises `MalformedError`."""
    if isinstance(data, bytes):
        return data
    try:
        text = data if isinstance(data, str) else json.dumps(data, allow_nan=False)
        return text.encode()
    except (TypeError, ValueError, RecursionError, MemoryError) as error:
        raise MalformedError(f"not a JSON document: {printable(str(error), limit=_LONGEST)}") from error


def _require_unique(pairs: list[tuple[str, object]]) -> None:
    """Refuse an object that has a key twice; what the objects hold is not kept."""
    known: set[str] = set()
    for key, _ in pairs:
        if key in known:
            raise MalformedError(f"the key {printable(key, limit=64)} is given twice")
        known.add(key)


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedError(f"{name} is not a JSON number")
