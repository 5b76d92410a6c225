"""Looks for a value in the lines of a log as somebody would who wants it: as text, as base64, unpacked, and joined."""

from __future__ import annotations

import base64
import binascii
import contextlib
import zlib


def leaks(lines: list[bytes], value: str) -> list[str]:
    """Return how a value can be had from the lines of a log."""
    words = [word for each in lines for word in each.split()]
    texts = {"as it is": b"\n".join(lines), "joined": b"".join(words)}
    for number, word in enumerate(words):
        for packed in {word, decoded(word)}:
            texts[f"word {number}, {packed[:8]!r}"] = packed + unpacked(packed)
    whole = b"".join(decoded(each.split()[-1]) for each in lines if each.split())
    texts["all of it"] = whole + unpacked(whole)
    wanted = {value.encode(), base64.b64encode(value.encode()).rstrip(b"=")[:-1]}
    return [how for how, text in texts.items() if any(each in text for each in wanted)]


def decoded(word: bytes) -> bytes:
    with contextlib.suppress(binascii.Error):
        return base64.b64decode(word, validate=True)
    return b""


def unpacked(data: bytes) -> bytes:
    """Return what zlib, gzip or a bare stream of deflate makes of it."""
    found = b""
    for bits in (zlib.MAX_WBITS, zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):
        with contextlib.suppress(zlib.error):
            found += zlib.decompressobj(bits).decompress(data, 1 << 20)
    return found
