"""Reads what a Debian package file says of itself, its file ``control`` (deb(5), deb-control(5)).

dpkg-deb starts four processes for that, and a driver has sixteen packages that are looked at more than once. What this
does not read, such as a compression that Python has no part for, dpkg-deb does.
"""

from __future__ import annotations

import io
import lzma
import tarfile
import zlib
from typing import TYPE_CHECKING, BinaryIO

from ansible_collections.grapnel.node.plugins.module_utils.host import Finished

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_MAGIC, _VERSION = b"!<arch>\n", b"2."
_HEADER, _END = 60, b"`\n"
_NAME, _SIZE = slice(0, 16), slice(48, 58)
_MAX_BYTES = 16 * 1024 * 1024  # of the archive with control in it, which lists each file of the package
_GZIP = 16 + zlib.MAX_WBITS


def ask_control(host: Host, file: str, timeout_s: float) -> Finished:
    """Return what ``dpkg-deb --field`` prints: the file ``control`` as it is."""
    try:
        with host.path(file).open("rb") as stream:
            return Finished(0, read_control(stream))
    except (OSError, EOFError, ValueError, KeyError, lzma.LZMAError, tarfile.TarError, zlib.error):
        return host.run(["dpkg-deb", "--field", file], timeout_s)


def read_control(stream: BinaryIO) -> str:
    """Return the file ``control`` of a package file; raises ValueError, and what its parts raise."""
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("not a Debian package")
    name, content = _member(stream)
    if name != "debian-binary" or not content.startswith(_VERSION):
        raise ValueError("another version of the format")
    name, content = _member(stream)
    with tarfile.open(fileobj=io.BytesIO(_unpacked(name, content)), mode="r:") as archive:
        for member in archive:
            if member.name in ("./control", "control") and member.isreg():
                found = archive.extractfile(member)
                return found.read().decode("utf-8", "replace") if found else ""
    raise ValueError("without a file control")


def _member(stream: BinaryIO) -> tuple[str, bytes]:
    header = stream.read(_HEADER)
    if len(header) != _HEADER or not header.endswith(_END):
        raise ValueError("a damaged archive")
    size = int(header[_SIZE])
    if not 0 <= size <= _MAX_BYTES:
        raise ValueError("too large a part")
    content = stream.read(size + size % 2)[:size]
    if len(content) != size:
        raise EOFError
    return header[_NAME].decode("ascii").strip().rstrip("/"), content


def _unpacked(name: str, content: bytes) -> bytes:
    if name == "control.tar.xz":
        decompressor = lzma.LZMADecompressor()
        unpacked, is_whole = decompressor.decompress(content, _MAX_BYTES), decompressor.eof
    elif name == "control.tar.gz":
        inflater = zlib.decompressobj(_GZIP)
        unpacked, is_whole = inflater.decompress(content, _MAX_BYTES), inflater.eof
    else:
        unpacked, is_whole = content, name == "control.tar"
    if not is_whole:
        raise ValueError(f"{name} is not read here")
    return unpacked
