"""Health as two files in the state folder, each with one writer.

`health.json` is written by the daemon alone, `verdicts.json` by people's verbs alone, so that neither ever loses
what the other wrote. Both are replaced in one step.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from plugin.base.errors import HealthError, os_reason
from plugin.devices.health.model import NodeHealth, Verdict
from plugin.devices.health.record import MAX_BYTES, parse_health, parse_verdicts, render_health, render_verdicts
from plugin.system.durable import read_bounded, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

HEALTH_FILE = "health.json"
VERDICTS_FILE = "verdicts.json"
_DAMAGED = ".damaged"
_RESERVE = ".health.reserve"
_RESERVED_BYTES = 64 * 1024
_FULL = {errno.ENOSPC, errno.EDQUOT}

_Value = TypeVar("_Value")


def _read(path: Path, parse: Callable[[bytes], _Value], otherwise: _Value) -> _Value:
    try:
        return parse(read_bounded(path, MAX_BYTES + 1))
    except FileNotFoundError:
        return otherwise
    except OSError as error:
        reason = os_reason(error)
        raise HealthError(f"{path} cannot be read: {reason}", "are you root?") from error
    except ValueError as error:
        hint = "look at it, then remove it: what it said is forgotten with it"
        raise HealthError(f"{path} cannot be understood: {error}", hint) from error


def read_health(folder: Path) -> NodeHealth:
    """Return what the daemon remembers; raises HealthError."""
    return _read(folder / HEALTH_FILE, parse_health, NodeHealth())


def read_verdicts(folder: Path) -> dict[str, Verdict]:
    """Return what people decided, by UUID; raises HealthError."""
    return _read(folder / VERDICTS_FILE, parse_verdicts, {})


def health_mark(folder: Path) -> tuple[int, ...] | None:
    """Return what tells the daemon's file from another one in its place, or None."""
    try:
        found = (folder / HEALTH_FILE).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def write_health(folder: Path, state: NodeHealth) -> None:
    """Replace the daemon's file, and make its folder if need be; on an OSError the file is as it was.

    Room is kept beside it for the moment when the disk is full: an error of a GPU must be remembered then, too.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path, text = folder / HEALTH_FILE, render_health(state)
    try:
        replace_file(path, text)
    except OSError as error:
        if error.errno not in _FULL or not (folder / _RESERVE).exists():
            raise
        (folder / _RESERVE).unlink()
        replace_file(path, text)
        return
    with suppress(OSError):
        _keep_room(folder / _RESERVE)


def _keep_room(path: Path) -> None:
    """Make a file that takes real blocks, unless it is there."""
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _RESERVED_BYTES)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(descriptor)


def set_damaged_aside(folder: Path) -> None:
    """Set a daemon's file that cannot be understood aside, for an administrator; raises OSError."""
    path = folder / HEALTH_FILE
    path.replace(path.with_name(HEALTH_FILE + _DAMAGED))


def write_verdicts(folder: Path, verdicts: Mapping[str, Verdict]) -> None:
    """Replace the people's file; on an error (HealthError) it is as it was. One caller at a time."""
    path = folder / VERDICTS_FILE
    try:
        replace_file(path, render_verdicts(verdicts))
    except OSError as error:
        raise HealthError(
            f"{path} cannot be written: {os_reason(error)}",
            "nothing was changed; you must be root, and the disk must be writable and have space",
        ) from error
