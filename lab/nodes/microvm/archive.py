"""Writes cpio archives of the form that Linux unpacks as its first root (``newc``): folders, links, regular files.

Several archives behind one another are unpacked over each other, so what a test adds needs no other disk.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAGIC = "070701"
_END = "TRAILER!!!"


def pack(folder: Path, place: str = "") -> bytes:
    """Return the content of a folder as an archive that is unpacked below ``place``; all of it is root's."""
    parts = [part for depth, part in enumerate(place.split("/")) if part or depth]
    above = ["/".join(parts[: count + 1]) for count in range(len(parts))] if place else []
    members = [_member(name, stat.S_IFDIR | 0o755, b"") for name in above]
    members += [_read(path, f"{place}/{path.relative_to(folder)}".lstrip("/")) for path in _below(folder)]
    return b"".join(members) + _member(_END, 0, b"")


def _below(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder, each folder before what is in it."""
    for name in sorted(os.listdir(folder)):
        path = folder / name
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)


def _read(path: Path, name: str) -> bytes:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return _member(name, mode, os.fsencode(path.readlink()))
    return _member(name, mode, path.read_bytes() if stat.S_ISREG(mode) else b"")


def _member(name: str, mode: int, data: bytes) -> bytes:
    """Return one member. Inode numbers are all 0: nothing of one link is taken for another link to it."""
    stored = name.encode() + b"\0"
    numbers = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(stored), 0)
    head = _MAGIC.encode() + b"".join(b"%08x" % number for number in numbers) + stored
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
