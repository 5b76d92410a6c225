"""Reads a file that somebody named: a regular one and of bounded size, so that no name makes a command hang."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """Return the content of a file of at most ``limit_bytes``; raises OSError for anything else, such as a FIFO."""
    data = read_beginning(path, limit_bytes + 1)
    if len(data) > limit_bytes:
        raise OSError(errno.EFBIG, f"larger than {limit_bytes} bytes", str(path))
    return data


def read_beginning(path: Path, size_bytes: int) -> bytes:
    """Return the first bytes of a regular file; raises OSError for anything else, without waiting for it."""
    with open_regular(path) as file:
        return file.read(size_bytes)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; raises OSError for anything else, without waiting for it."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - it needs an opener, and is returned
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def _without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)
