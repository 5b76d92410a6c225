"""The file of a change that is under way, `mig-change.json` in the state folder.

It is the truth: what was killed in the middle is found there by whoever comes next, the daemon included. Whoever writes
it has the lock of the folder (`sole_change` of the release): a release and a change exclude each other.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from plugin.base.documents import list_of, member, read_versioned, text, truth
from plugin.base.errors import MigError, os_reason
from plugin.system.durable import flush_folder, read_bounded, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHANGE_FILE = "mig-change.json"
_Value = TypeVar("_Value")


def read_change(folder: Path) -> OpenMigChange | None:
    """Return the change that is under way, None without one. A file that cannot be read is one with a problem."""
    path = folder / CHANGE_FILE
    try:
        return read_file(path, MAX_BYTES, parse_change, "")
    except MigError as error:
        return OpenMigChange("", problem=error.message)


def write_change(folder: Path, change: OpenMigChange) -> None:
    """Put the file in place in one step and on the disk; raises MigError."""
    write_file(folder / CHANGE_FILE, render_change(change))


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


# Files, also for those of `plugin.changes.mig_layout.store`


def read_file(path: Path, limit: int, parse: Callable[[bytes], _Value], hint: str) -> _Value | None:
    """Return what a file says, None where it is not there; raises MigError."""
    try:
        return parse(read_bounded(path, limit + 1))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MigError(f"{path} cannot be read: {os_reason(error)}", "are you root?") from error
    except (ValueError, RecursionError) as error:
        raise MigError(f"{path} cannot be understood: {error}", hint) from error


def write_file(path: Path, content: str) -> None:
    """Put a file in place in one step and on the disk; raises MigError."""
    try:
        replace_file(path, content)
    except OSError as error:
        hint = "nothing was changed after that; you must be root, and the disk must be writable and have space"
        raise MigError(f"{path} cannot be written: {os_reason(error)}", hint) from error


def forget(folder: Path, name: str) -> None:
    """Remove one of the files, if it is there; raises MigError."""
    try:
        (folder / name).unlink(missing_ok=True)
        flush_folder(folder)
    except OSError as error:
        reason = os_reason(error)
        raise MigError(f"{folder / name} cannot be removed: {reason}", "the same call tries it again") from error


# Which GPUs are being changed: a value, and the text of its file.

SCHEMA = "grapnel.dev/mig-change/v1alpha1"
MAX_BYTES = 1024 * 1024


class OpenMigChange(NamedTuple):
    """The GPUs that are being changed, which no pod is given. `closes`: the driver must not be open for it.

    `problem` says why the file cannot be understood: then it is not known which GPUs these are.
    """

    since: str
    uuids: frozenset[str] = frozenset()
    closes: bool = False
    problem: str = ""


def render_change(change: OpenMigChange) -> str:
    """Return the text of the file."""
    document = {"schema": SCHEMA, "since": change.since, "gpus": sorted(change.uuids), "closes": change.closes}
    return json.dumps(document, indent=2) + "\n"


def parse_change(content: bytes) -> OpenMigChange:
    """Return what a file says; raises ValueError."""
    document = read_versioned(content, MAX_BYTES, SCHEMA)
    uuids = member(document, "gpus", list_of(text(128)))
    return OpenMigChange(member(document, "since", text()), frozenset(uuids), member(document, "closes", truth))
