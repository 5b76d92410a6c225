"""Reads and writes the state file, which holds node state on this machine where there is no cluster.

It is replaced as a whole (temporary file, fsync, rename), so a crash leaves the old state or the new one, never half of
it. A file that cannot be read is never overwritten. The contract is ``docs/contracts/node-state``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from provision.base import strict_json
from provision.base.regular_file import read_regular
from provision.base.strict_json import MalformedError
from provision.cluster.errors import StateFileError
from provision.cluster.pause import PauseDocument
from provision.cluster.record import RecordDocument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCHEMA: Final = "grapnel.dev/state-file/v1alpha1"
_PREFIX: Final = "node-state-"
MAX_BYTES: Final = 64 * 1024 * 1024  # tens of thousands of nodes with the longest reasons


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node: what is remembered of its upgrade, whether it is out of service for it, and whether it is skipped."""

    record: RecordDocument | None = None
    cordoned: bool = False
    skipped: bool = False


NOTHING: Final = Entry()


class StateFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every node of which something is known, by its name in the inventory, and the pause, if there is one.

    The second schema is what older files say.
    """

    schema: Literal["grapnel.dev/state-file/v1alpha1", "grapnel.dev/journal/v1alpha1"]
    nodes: dict[str, Entry]
    pause: PauseDocument | None = None


def state_file_path(key: str, environ: Mapping[str, str]) -> Path:
    """Return the path of an inventory's state file: in the user's state folder, which outlives a reboot."""
    home = Path(environ.get("HOME") or "~").expanduser()
    folder = Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state")
    return folder / "grapnel" / f"{_PREFIX}{key}.json"


def read_state(path: Path) -> StateFile:
    """Return what the file has, nothing when there is no file. Raises StateFileError."""
    for place in (path, _older_name(path)):
        try:
            return strict_json.decode(read_regular(place, MAX_BYTES), StateFile, limit_bytes=MAX_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StateFileError(f"state file {place} cannot be read: {error.strerror}") from error
        except MalformedError as error:
            raise StateFileError(
                f"state file {place} cannot be read: {error}",
                hint="it says which nodes an upgrade took out of service: check them, then move the file away",
            ) from error
    return StateFile(schema=SCHEMA, nodes={})


@contextlib.contextmanager
def editing(path: Path) -> Iterator[StateFile]:
    """Yield what the file has, and keep every other process from changing it meanwhile.

    The lock is held for as long as it takes to write the file, and the kernel drops it with its process.
    """
    lock = path.with_suffix(".edit")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateFileError(f"lock {lock} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield read_state(path)
    finally:
        os.close(descriptor)


def write_state(path: Path, nodes: Mapping[str, Entry], pause: PauseDocument | None) -> None:
    """Replace the file; on the disk when this returns. Raises StateFileError, and then the old one is still there.

    Only inside `editing`: what another process has written since it was read would be lost.
    """
    kept = {name: entry for name, entry in sorted(nodes.items()) if entry != NOTHING}
    body = msgspec.json.encode(StateFile(schema=SCHEMA, nodes=kept, pause=pause))
    try:
        replace_file(path, msgspec.json.format(body, indent=2) + b"\n")
        if (older := _older_name(path)) != path:
            older.unlink(missing_ok=True)
    except OSError as error:
        raise StateFileError(f"state file {path} cannot be written: {error.strerror}") from error


def progress_path(path: Path) -> Path:
    """Return where the engine of a state file says how its rollout stands."""
    return path.with_name(f"rollout-progress-{path.stem.removeprefix(_PREFIX)}.json")


def lock_path(path: Path) -> Path:
    """Return the file that the engine of a state file has locked while it is at work."""
    return path.with_suffix(".lock")


def _older_name(path: Path) -> Path:
    """Return what the file was called when it was a "journal"; a path of any other name is returned as it is."""
    is_ours = path.name.startswith(_PREFIX)
    return path.with_name(f"journal-{path.name.removeprefix(_PREFIX)}") if is_ours else path


def replace_file(path: Path, body: bytes, *, lasting: bool = True) -> None:
    """Replace a file as a whole. ``lasting``: it is on the disk when this returns, and outlives a power failure."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    if not lasting:
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
