"""The journal: node state in a file on this machine, where there is no cluster.

It is replaced as a whole (temporary file, fsync, rename), so a crash leaves the state before or after, never half of
it. A file that cannot be read is never overwritten. The contract is ``docs/contracts/node-state``.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from provision import strict_json
from provision.cluster.errors import JournalError
from provision.cluster.record import RecordDocument  # noqa: TC001 - msgspec resolves the annotation
from provision.regular_file import read_regular
from provision.strict_json import MalformedError

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA: Final = "grapnel.dev/journal/v1alpha1"
MAX_BYTES: Final = 64 * 1024 * 1024  # tens of thousands of nodes with the longest reasons


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node: what is remembered of its upgrade, and whether it is out of service for it."""

    record: RecordDocument | None = None
    cordoned: bool = False


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """Every node of which something is remembered, by its name in the inventory."""

    schema: Literal["grapnel.dev/journal/v1alpha1"]
    nodes: dict[str, Entry]


def journal_path(key: str, environ: Mapping[str, str]) -> Path:
    """Return where the journal of an inventory lies: the user's state folder, which outlives a reboot."""
    home = Path(environ.get("HOME") or "~").expanduser()
    folder = Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state")
    return folder / "grapnel" / f"journal-{key}.json"


def read_journal(path: Path) -> dict[str, Entry]:
    """Return what is remembered, nothing when there is no file. Raises JournalError."""
    try:
        return strict_json.decode(read_regular(path, MAX_BYTES), Journal, limit_bytes=MAX_BYTES).nodes
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise JournalError(f"journal {path} cannot be read: {error.strerror}") from error
    except MalformedError as error:
        raise JournalError(
            f"journal {path} cannot be read: {error}",
            hint="it says which nodes an upgrade has taken out of service: look after them, then move the file away",
        ) from error


def write_journal(path: Path, nodes: Mapping[str, Entry]) -> None:
    """Replace the journal; on the disk when this returns. Raises JournalError, and then the old one is still there."""
    body = msgspec.json.encode(Journal(schema=SCHEMA, nodes=dict(sorted(nodes.items()))))
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _replace(path, msgspec.json.format(body, indent=2) + b"\n")
    except OSError as error:
        raise JournalError(f"journal {path} cannot be written: {error.strerror}") from error


def _replace(path: Path, body: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
