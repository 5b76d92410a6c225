"""Replacing a file so that whatever happens, the old or the new one is there, whole; reading one without waiting."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def read_bounded(path: Path, limit: int) -> bytes:
    """Return a regular file's first `limit` bytes; raises OSError, also for a pipe or device, which may never end.

    A reader in the event loop does not wait.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return file.read(limit)
    raise OSError(errno.EINVAL, "not a regular file")


def flush_folder(folder: Path) -> None:
    """Bring the folder's names to the disk; raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str | Iterable[str], mode: int = 0o600) -> None:
    """Put a file, given whole or in parts, in place in one step and on the disk; on an OSError it is as it was before.

    One process at a time: a temporary file of another one is taken for one that was killed.
    """
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)  # of a process that was killed
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, mode)
            file.writelines((text,) if isinstance(text, str) else text)
            file.flush()
            os.fsync(descriptor)
        flush_folder(path.parent)  # now rather than after the rename: an error then would come too late
        beside.rename(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    with suppress(OSError):
        flush_folder(path.parent)  # the file is in force; a disk that fails right now may forget it with the power
