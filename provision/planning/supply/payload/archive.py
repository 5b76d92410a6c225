"""Writes deterministic tar files: equal content gives equal bytes, whoever builds them, whenever and wherever."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

DIGITS = 12


@dataclass(frozen=True, order=True)
class Entry:
    """One file of an archive: where it goes, what is in it, whether it can be executed."""

    name: str
    source: Path
    executable: bool = False


def write_archive(folder: Path, stem: str, entries: Iterable[Entry]) -> tuple[Path, str]:
    """Write ``<stem>-<digest>.tar`` into a folder; return its path and the SHA-256 of its bytes.

    Owner is root, times are the epoch, order is by name. The file appears under its name only when it is complete, and
    one that is there already with the same content is left as it is.
    """
    content = _tar(sorted(entries))
    digest = hashlib.sha256(content).hexdigest()
    path = folder / f"{stem}-{digest[:DIGITS]}.tar"
    if not (path.is_file() and path.read_bytes() == content):
        write_file(path, content)
    return path, digest


def write_file(path: Path, content: bytes | memoryview) -> None:
    """Write a file in one step: it is there as a whole, or as it was before."""
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(partial).chmod(0o644)
        Path(partial).replace(path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _tar(entries: Iterable[Entry]) -> memoryview:
    known: set[PurePosixPath] = set()
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for entry in entries:
            for parent in reversed(PurePosixPath(entry.name).parents[:-1]):
                if parent not in known:
                    known.add(parent)
                    tar.addfile(_header(f"{parent}", tarfile.DIRTYPE, 0o755, 0))
            content = entry.source.read_bytes()
            mode = 0o755 if entry.executable else 0o644
            tar.addfile(_header(entry.name, tarfile.REGTYPE, mode, len(content)), io.BytesIO(content))
    return stream.getbuffer()


def _header(name: str, kind: bytes, mode: int, size_bytes: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type, header.mode, header.size = kind, mode, size_bytes
    header.uname = header.gname = "root"
    return header
