"""What others have packed costs no more than its content: not what its headers ask for, nor what stands behind it."""

from __future__ import annotations

import gzip
import io
import lzma
from typing import TYPE_CHECKING

import pytest

from provision.base.unpacking import BROKEN, MAX_MEMORY_BYTES, open_gzip, open_xz

if TYPE_CHECKING:
    from collections.abc import Callable

CONTENT = bytes(range(256)) * 3000
PACKED = {open_xz: lzma.compress(CONTENT), open_gzip: gzip.compress(CONTENT)}
EMPTY = {open_xz: lzma.compress(b""), open_gzip: gzip.compress(b"")}


def greedy(dictionary_bytes: int) -> bytes:
    """Return a small file of xz whose header asks for a large dictionary."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": dictionary_bytes, "mode": lzma.MODE_FAST}]
    return lzma.compress(b"module", lzma.FORMAT_XZ, filters=filters)


@pytest.mark.parametrize("opened", PACKED)
def test_one_stream_is_read_in_pieces_of_any_size(opened: Callable[[io.BytesIO], io.BufferedReader]) -> None:
    for size in (1, 17, 1 << 20):
        file = opened(io.BytesIO(PACKED[opened]))
        assert b"".join(iter(lambda f=file, s=size: f.read(s), b"")) == CONTENT
    assert opened(io.BytesIO(EMPTY[opened])).read() == b""


@pytest.mark.parametrize("opened", PACKED)
@pytest.mark.parametrize("what", ["cut", "rubbish", "nothing", "changed"])
def test_what_is_broken_is_said_to_be(opened: Callable[[io.BytesIO], io.BufferedReader], what: str) -> None:
    packed = PACKED[opened]
    at = len(packed) // 2
    data = {
        "cut": packed[:-1],
        "rubbish": b"rubbish" * 99,
        "nothing": b"",
        "changed": packed[:at] + bytes([packed[at] ^ 255]) + packed[at + 1 :],
    }[what]

    with pytest.raises(BROKEN):
        opened(io.BytesIO(data)).read()


@pytest.mark.parametrize("opened", PACKED)
@pytest.mark.parametrize("what", ["another stream", "an empty stream", "zeros", "text"])
def test_nothing_stands_behind_what_is_packed(opened: Callable[[io.BytesIO], io.BufferedReader], what: str) -> None:
    """A minute of the controller's time went into 256 MiB of empty streams."""
    more = {"another stream": PACKED[opened], "an empty stream": EMPTY[opened], "zeros": bytes(4), "text": b"text"}

    with pytest.raises(ValueError, match="something follows"):
        opened(io.BytesIO(PACKED[opened] + more[what])).read()


def test_a_header_of_xz_does_not_say_how_much_memory_is_taken() -> None:
    """61 KB took 430 MiB, and up to 1 GiB with a larger dictionary: the controller's pod has 512 MiB."""
    assert open_xz(io.BytesIO(greedy(64 << 20))).read() == b"module"
    with pytest.raises(lzma.LZMAError, match="limit"):
        open_xz(io.BytesIO(greedy(MAX_MEMORY_BYTES))).read()
