"""Hands out msgspec's decoders, each built once, and no two at a time.

msgspec builds what it knows of a struct when a type with it is first decoded, and runs Python code meanwhile: another
thread then finds the struct half built, and the process ends by SIGSEGV (0.22.0). So every typed decoding asks here.
"""

from __future__ import annotations

import re
import threading
from typing import Any, Final, TypeVar, overload

import msgspec

T = TypeVar("T")

_DEPTH: Final = 64  # of brackets; no object of Kubernetes has as many by itself
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[][{}]', re.DOTALL)
_ESCAPE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
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


def readable(text: bytes) -> bytes:
    """Return JSON without what no decoder here reads, and what an API server passes on as somebody wrote it.

    That is the inside of brackets far deeper than in any object of Kubernetes, and halves of surrogate pairs.
    """
    parts, depth, begin = [], 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth == _DEPTH:
                parts += [text[begin : token.start()], b"null"]
        elif token[0] in (b"]", b"}"):
            if depth == _DEPTH:
                begin = token.end()
            depth -= 1
    return _ESCAPE.sub(lambda found: b"\\ufffd" if found[1] else found[0], b"".join([*parts, text[begin:]]))


def convert(value: object, kind: type[T]) -> T:
    """Return a value that is parsed already as a ``kind``; raises ``msgspec.ValidationError``."""
    decoder_of(kind)
    return msgspec.convert(value, kind)
