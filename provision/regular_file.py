"""Reads a file that somebody named: a regular one and of bounded size, so that no name makes a command hang."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """Return the content of a file of at most ``limit_bytes``; raises OSError for anything else, such as a FIFO."""
    data = read_beginning(path, limit_bytes + 1)
    if len(data) > limit_bytes:
        raise OSError(errno.EFBIG, f"larger than {limit_bytes} bytes", str(path))
    return data


def read_beginning(path: Path, size_bytes: int) -> bytes:
    """Return the first bytes of a regular file; raises OSError for anything else, without waiting for it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(size_bytes)
    finally:
        os.close(descriptor)
