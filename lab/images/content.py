"""Represents file trees as values: read from packages, packed as tar, unpacked to a folder.

A tree maps paths (relative, without `./`) to entries. Packed trees are reproducible byte for byte.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from lab.images.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_UNPACK_TIMEOUT_S = 120
_MERGED = ("bin", "sbin", "lib", "lib64")
"""Folders that are links into usr: packages of older suites still ship files under the old paths."""


@dataclass(frozen=True)
class Entry:
    """A file (`data`), a symbolic link (`target`), or else a directory."""

    mode: int
    data: bytes | None = None
    target: str | None = None


def directory(mode: int = 0o755) -> Entry:
    """Return a directory."""
    return Entry(mode)


def file(data: bytes, mode: int = 0o644) -> Entry:
    """Return a regular file."""
    return Entry(mode, data=data)


def link(target: str) -> Entry:
    """Return a symbolic link."""
    return Entry(0o777, target=target)


def from_package(deb: Path, wanted: Callable[[str], bool]) -> dict[str, Entry]:
    """Return the files and links of a .deb that match, with merged /usr. Raises ImageError."""
    command = ["dpkg-deb", "--fsys-tarfile", str(deb)]
    try:
        packed = subprocess.run(command, check=True, capture_output=True, timeout=_UNPACK_TIMEOUT_S).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise ImageError(f"cannot unpack {deb}: {error}", hint="this needs dpkg-deb and an intact package") from error
    tree: dict[str, Entry] = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            path = _merged(member.name.removeprefix("./"))
            if not member.isdir() and wanted(path):
                tree[path] = _entry(archive, member)
    return tree


def _merged(path: str) -> str:
    return f"usr/{path}" if path.partition("/")[0] in _MERGED else path


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    content = archive.extractfile(member) if not member.issym() else None
    if content is None:
        return link(member.linkname)
    return file(content.read(), member.mode)


def with_parents(tree: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the tree with all parent directories, in the order in which they can be created."""
    full = dict(tree)
    for path in tree:
        for parent in PurePosixPath(path).parents:
            if str(parent) != ".":
                full.setdefault(str(parent), directory())
    return dict(sorted(full.items()))


def pack(tree: Mapping[str, Entry]) -> bytes:
    """Return the tree as an uncompressed tar: sorted, owned by root, with times of 1970."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, entry in with_parents(tree).items():
            member = tarfile.TarInfo(path)
            member.mode = entry.mode
            if entry.data is not None:
                member.size = len(entry.data)
            elif entry.target is not None:
                member.type, member.linkname = tarfile.SYMTYPE, entry.target
            else:
                member.type = tarfile.DIRTYPE
            archive.addfile(member, io.BytesIO(entry.data or b""))
    return buffer.getvalue()


def unpack(tree: Mapping[str, Entry], folder: Path) -> None:
    """Write the tree into a folder that is empty or missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, entry in with_parents(tree).items():
        place = folder / path
        if entry.data is not None:
            place.write_bytes(entry.data)
        elif entry.target is not None:
            place.symlink_to(entry.target)
        else:
            place.mkdir()
        if entry.target is None:
            place.chmod(entry.mode)
