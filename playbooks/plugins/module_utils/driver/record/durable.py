"""Writes files that a power cut must not lose or halve: temporary file, fsync, rename, fsync of the folder."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_durably(place: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file as a whole; raises OSError, and then the file is as it was."""
    beside = place.with_name(f".{place.name}.new")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            os.fchmod(stream.fileno(), mode)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(place)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    sync_folder(place.parent)


def remove_durably(place: Path) -> None:
    """Remove a file if it is there."""
    place.unlink(missing_ok=True)
    if place.parent.is_dir():
        sync_folder(place.parent)


def sync_file(place: Path) -> None:
    """Bring a file's content to the disk."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Bring renames in a folder to the disk; where a file system cannot, they get there by themselves."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
