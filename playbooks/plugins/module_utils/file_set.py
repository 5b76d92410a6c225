"""A set of files that belong together: how they differ from what is there, and how they take its place.

Every file is replaced by a rename, so a reader sees the old text or the new one. What may read them, and what has to
restart for them, belongs to `configuration`.
"""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host


@dataclass(frozen=True)
class FileText:
    """One file as it should be; it belongs to the user that the module runs as, root on a node."""

    path: str
    content: str
    mode: int


@dataclass(frozen=True)
class Change:
    """A file that is not as it should be; ``before`` is None when it is not there."""

    before: FileText | None
    after: FileText


def find_changes(host: Host, wanted: list[FileText]) -> list[Change]:
    """Return the files that differ in text, mode or owner."""
    pairs = ((_present(host, one.path), one) for one in wanted)
    return [Change(before, one) for before, one in pairs if before != one or not _is_ours(host, one.path)]


def _present(host: Host, path: str) -> FileText | None:
    place = host.path(path)
    if not place.is_file():
        return None
    text = place.read_bytes().decode("utf-8", "surrogateescape")
    return FileText(path, text, stat.S_IMODE(place.stat().st_mode))


def _is_ours(host: Host, path: str) -> bool:
    place = host.path(path)
    return not place.exists() or place.stat().st_uid == os.geteuid()


def swap_in(host: Host, changes: list[Change]) -> None:
    """Put every file in its place."""
    for change in changes:
        _write(host.path(change.after.path), change.after)


def swap_back(host: Host, changes: list[Change]) -> None:
    """Put back what was there before, in reverse order."""
    for change in reversed(changes):
        if change.before is None:
            host.path(change.after.path).unlink(missing_ok=True)
        else:
            _write(host.path(change.after.path), change.before)


def _write(place: Path, wanted: FileText) -> None:
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    descriptor, beside = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(wanted.content.encode("utf-8", "surrogateescape"))
            os.fchmod(stream.fileno(), wanted.mode)
            stream.flush()
            os.fsync(stream.fileno())
        Path(beside).replace(place)
    except OSError:
        Path(beside).unlink(missing_ok=True)
        raise


def describe(changes: list[Change]) -> list[dict[str, str]]:
    """Return the changes as Ansible shows them with ``--diff``."""
    return [
        {
            "before_header": change.after.path,
            "after_header": change.after.path,
            "before": "" if change.before is None else change.before.content,
            "after": change.after.content,
        }
        for change in changes
    ]
