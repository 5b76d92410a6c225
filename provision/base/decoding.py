"""Hands out msgspec's decoders, each built once, and no two at a time.

msgspec builds what it knows of a struct when a type with it is first decoded, and runs Python code meanwhile: another
thread then finds the struct half built, and the process ends by SIGSEGV (0.22.0). So every typed decoding asks here.
"""

from __future__ import annotations

import threading
from typing import Any, Final, TypeVar, overload

import msgspec

T = TypeVar("T")

_BUILDING: Final = threading.Lock()
_BUILT: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}


@overload
def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def decoder_of(kind: object) -> msgspec.json.Decoder[Any]: ...  # of a union
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a type: the same one every time."""
    found = _BUILT.get(kind)
    if found is None:
        with _BUILDING:
            found = _BUILT.get(kind) or msgspec.json.Decoder(kind)
            _BUILT[kind] = found
    return found


def convert(value: object, kind: type[T]) -> T:
    """Return a value that is parsed already as a ``kind``; raises ``msgspec.ValidationError``."""
    decoder_of(kind)
    return msgspec.convert(value, kind)
