"""Takes the digest of a module as the compiler made it: unpacked, and without the signature of the node that built it.

Everything else counts, byte for byte. Two nodes of a kind build the same file to the last byte, the build id included,
because they do it below the same path (0112); each signs it with a key of its own DKMS.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from typing import IO, TYPE_CHECKING, Final, cast

from provision.base.unpacking import open_gzip, open_xz
from provision.planning.supply.builds.errors import BuildsError
from provision.planning.supply.module_archive import UnfitArchive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAX_BYTES: Final = 1024 * 1024 * 1024  # the proprietary module with its symbols is a quarter of that
_CHUNK_BYTES: Final = 1024 * 1024
# include/linux/module_signature.h: algorithm, hash, kind, two lengths, padding; then the signature's length.
_MAGIC: Final = b"~Module signature appended~\n"
_TRAILER: Final = struct.Struct(">BBBBB3xI")
_PKCS7: Final = 2


def digest_content(name: str, packed: IO[bytes], folder: Path) -> str:
    """Return the SHA-256 of a module's content; ``folder`` is for what is unpacked meanwhile.

    ``packed`` is a file at its beginning. Raises `UnfitArchive`, `BuildsError`, and the errors of its compression.
    """
    with tempfile.TemporaryFile(dir=folder) as plain:
        with _unpacked(name, packed) as data:
            size = 0
            while chunk := data.read(_CHUNK_BYTES):
                size += len(chunk)
                if size > _MAX_BYTES:
                    raise UnfitArchive(f"{name} in it unpacks to more than a driver's modules can be")
                plain.write(chunk)
        left = size - _signature_bytes(plain, size)
        plain.seek(0)
        found = hashlib.sha256()
        while left > 0:
            chunk = plain.read(min(_CHUNK_BYTES, left))
            found.update(chunk)
            left -= len(chunk)
        return found.hexdigest()


def _signature_bytes(plain: IO[bytes], size: int) -> int:
    """Return how much at the end of a module the kernel takes for its signature."""
    end = size - len(_MAGIC) - _TRAILER.size
    if end < 0:
        return 0
    plain.seek(end)
    last = plain.read()
    *_, kind, _signer, _key, length = _TRAILER.unpack_from(last)
    is_signed = last.endswith(_MAGIC) and kind == _PKCS7 and 0 < length <= end
    return length + len(last) if is_signed else 0


@contextlib.contextmanager
def _unpacked(name: str, packed: IO[bytes]) -> Iterator[IO[bytes]]:
    if name.endswith(".xz"):
        yield open_xz(packed)
    elif name.endswith(".gz"):
        yield open_gzip(packed)
    elif name.endswith(".zst"):
        with _zstd(name, packed) as data:
            yield data
    else:
        yield packed


@contextlib.contextmanager
def _zstd(name: str, packed: IO[bytes]) -> Iterator[IO[bytes]]:
    """Have zstd decompress, which Python does from 3.14 on only."""
    program = shutil.which("zstd")
    if program is None:
        raise BuildsError(
            f"{name} is compressed with zstd, and this machine has no program of that name to compare it with",
            hint="install zstd on the machine that runs grapnel",
        )
    os.lseek(packed.fileno(), 0, os.SEEK_SET)
    argv = [program, "--decompress", "--stdout", "--quiet"]
    with subprocess.Popen(argv, stdin=packed, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield cast("IO[bytes]", process.stdout)
            if process.wait():
                raise UnfitArchive(f"{name} in it is not compressed with zstd")
        finally:
            process.kill()
