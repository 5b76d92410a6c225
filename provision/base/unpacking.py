"""Unpacks what others have packed with xz or gzip: one stream, in bounded memory and with nothing behind it.

Python's own readers allocate what a header of xz asks for, which is up to 4 GiB for a file of some kilobytes, and go on
with any number of empty streams, of which 20 bytes each cost as much time as a real one.
"""

from __future__ import annotations

import io
import lzma
import zlib
from typing import IO, TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from typing import Protocol

    class _Decoder(Protocol):
        @property
        def eof(self) -> bool: ...
        @property
        def needs_input(self) -> bool: ...
        @property
        def unused_data(self) -> bytes: ...
        def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


MAX_MEMORY_BYTES: Final = 128 * 1024 * 1024  # `xz -9`, the most that it takes without further options, needs 65 MiB
BROKEN: Final = (lzma.LZMAError, zlib.error, EOFError, ValueError)
_CHUNK_BYTES: Final = 64 * 1024


def open_xz(packed: IO[bytes]) -> IO[bytes]:
    """Return what is packed with xz, as a file; reading it raises one of `BROKEN`."""
    return _opened(packed, lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_MEMORY_BYTES))


def open_gzip(packed: IO[bytes]) -> IO[bytes]:
    """Return what is packed with gzip, as a file; reading it raises one of `BROKEN`."""
    return _opened(packed, _Gzip())


def _opened(packed: IO[bytes], decoder: _Decoder) -> IO[bytes]:
    return cast("IO[bytes]", io.BufferedReader(_Unpacked(packed, decoder)))


class _Gzip:
    """A decompressor of gzip that is used as the one of xz."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


class _Unpacked(io.RawIOBase):
    def __init__(self, packed: IO[bytes], decoder: _Decoder) -> None:
        self._packed, self._decoder = packed, decoder

    def readable(self) -> bool:
        """Tell that it is for reading."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer as far as there is something; 0 at the end."""
        while not self._decoder.eof:
            more = self._packed.read(_CHUNK_BYTES) if self._decoder.needs_input else b""
            data = self._decoder.decompress(more, len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)
            if not more and self._decoder.needs_input and not self._decoder.eof:
                raise EOFError("it is cut")
        if self._decoder.unused_data or self._packed.read(1):
            raise ValueError("something follows what is packed in it")
        return 0
