"""Reads files that others may have prepared: bounded, never blocking, regular files only."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.base.errors import HookError

_CHUNK_BYTES = 1 << 16
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def read_descriptor(descriptor: int, limit_bytes: int) -> bytes | None:
    """Read a descriptor to its end; None when there is more than limit_bytes."""
    chunks: list[bytes] = []
    left = limit_bytes + 1
    while left > 0:
        chunk = os.read(descriptor, min(left, _CHUNK_BYTES))
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        left -= len(chunk)
    return None


def read_regular(path: str, limit_bytes: int, error: type[HookError]) -> bytes:
    """Read a regular file of bounded size; FileNotFoundError passes, every other failure becomes error."""
    return _read(path, limit_bytes, error, _OPEN_FLAGS)[0]


def read_trusted(path: str, limit_bytes: int, error: type[HookError]) -> bytes:
    """Read a file that decides what root does: no symlink, owned by root, writable by root alone."""
    data, status = _read(path, limit_bytes, error, _OPEN_FLAGS | os.O_NOFOLLOW)
    if status.st_uid != 0 and not _is_hosts_root(path, status.st_uid):
        raise error(f"{path} belongs to user {status.st_uid}", f"chown root {path}")
    if status.st_mode & WRITABLE_BY_OTHERS:
        raise error(f"{path} is writable by others than root", f"chmod go-w {path}")
    return data


def _is_hosts_root(path: str, uid: int) -> bool:
    from runtime_hook.base.ownership import belongs_to_hosts_root

    return belongs_to_hosts_root(path, uid)


def _read(path: str, limit_bytes: int, error: type[HookError], flags: int) -> tuple[bytes, os.stat_result]:
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as reason:
        raise error(f"cannot open {path}: {describe_error(reason)}") from reason
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise error(f"{path} is not a regular file")
        data = read_descriptor(descriptor, limit_bytes) if status.st_size <= limit_bytes else None
    except OSError as reason:
        raise error(f"cannot read {path}: {describe_error(reason)}") from reason
    finally:
        os.close(descriptor)
    if data is None:
        raise error(f"{path} is larger than {limit_bytes >> 20} MiB")
    return data, status


def describe_error(reason: Exception) -> str:
    """Return the kernel's words in lower case, without Python's decoration."""
    text = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
    return text[:1].lower() + text[1:]
