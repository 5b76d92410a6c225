"""The files of a change in the state folder: `mig-before.json`, and `mig-change.json` while one is under way.

They are the truth: what was killed in the middle is found there by whoever comes next, the daemon included. Whoever
writes them has the lock of the folder (`sole_change` of the release): a release and a change exclude each other.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, TypeVar

from plugin.errors import MigError
from plugin.mig_layout.document import MAX_BYTES as MAX_LAYOUT
from plugin.mig_layout.document import parse_layout
from plugin.mig_layout.record import MAX_BYTES, Change, parse_before, parse_change, render_before, render_change
from plugin.system.durable import flush_folder, read_bounded, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from plugin.mig_layout.model import Layout
    from plugin.mig_layout.record import Before

BEFORE_FILE, CHANGE_FILE = "mig-before.json", "mig-change.json"
_Value = TypeVar("_Value")


def read_layout(path: Path) -> Layout | None:
    """Return the declared layout, None where none is declared; raises MigError."""
    return _read(path, MAX_LAYOUT, parse_layout, "it is written by `grapnel apply`; the contract is mig-layout")


def read_before(folder: Path) -> Before | None:
    """Return how GPUs were cut, None where nothing was changed; raises MigError."""
    hint = "look at it, then remove it: how the gpus were cut is forgotten with it"
    return _read(folder / BEFORE_FILE, MAX_BYTES, parse_before, hint)


def read_change(folder: Path) -> Change | None:
    """Return the change that is under way, None without one. A file that cannot be read is one with a problem."""
    path = folder / CHANGE_FILE
    try:
        return _read(path, MAX_BYTES, parse_change, "")
    except MigError as error:
        return Change("", problem=error.message)


def _read(path: Path, limit: int, parse: Callable[[bytes], _Value], hint: str) -> _Value | None:
    try:
        return parse(read_bounded(path, limit + 1))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MigError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}", "are you root?") from error
    except (ValueError, RecursionError) as error:
        raise MigError(f"{path} cannot be understood: {error}", hint) from error


def write_before(folder: Path, before: Before) -> None:
    """Put the file in place in one step and on the disk; raises MigError."""
    _write(folder / BEFORE_FILE, render_before(before))


def write_change(folder: Path, change: Change) -> None:
    """Put the file in place in one step and on the disk; raises MigError."""
    _write(folder / CHANGE_FILE, render_change(change))


def _write(path: Path, content: str) -> None:
    try:
        replace_file(path, content)
    except OSError as error:
        hint = "nothing was changed after that; you must be root, and the disk must be writable and have space"
        raise MigError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}", hint) from error


def forget(folder: Path, name: str) -> None:
    """Remove one of the files, if it is there; raises MigError."""
    try:
        (folder / name).unlink(missing_ok=True)
        flush_folder(folder)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise MigError(f"{folder / name} cannot be removed: {reason}", "the same call tries it again") from error


def is_locked(folder: Path) -> bool:
    """Whether a process that changes something has the folder's lock; never waits."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
