"""Keeps what a node needs besides packages to be as it was: the former files, and which packages were held.

Both lie in the folder ``before`` of a staged set, beside the change that leads back: ``files/index.json`` with the
former texts as they were, and ``holds.json``.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import write_durably
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_FILES = "files"
_INDEX = f"{_FILES}/index.json"
_HOLDS = "holds.json"
_MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class FormerFile:
    """A file as it was; without ``content`` it was not there."""

    path: str
    content: bytes | None = None
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


def find_files(host: Host, paths: Iterable[str]) -> list[FormerFile]:
    """Return files as they are now; raises `StoreError` for one that is neither a plain file nor missing."""
    return [_find(host, path) for path in paths]


def _find(host: Host, path: str) -> FormerFile:
    place = host.path(path)
    try:
        status = place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return FormerFile(path)
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{path} is not a plain file, so it could not be put back: put one in its place")
    return FormerFile(path, place.read_bytes(), stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def write_files(host: Host, folder: str, files: list[FormerFile]) -> None:
    """Write former files into a folder ``before``."""
    host.path(f"{folder}/{_FILES}").mkdir(parents=True, exist_ok=True, mode=0o700)
    index: list[dict[str, Any]] = []
    for number, file in enumerate(files):
        if file.content is None:
            index.append({"path": file.path, "file": None})
            continue
        name = f"{number}"
        write_durably(host.path(f"{folder}/{_FILES}/{name}"), file.content)
        mode = f"{file.mode:04o}"
        index.append({"path": file.path, "file": name, "mode": mode, "uid": file.uid, "gid": file.gid})
    write_durably(host.path(f"{folder}/{_INDEX}"), json.dumps(index, indent=1).encode())


def read_files(host: Host, folder: str) -> list[FormerFile]:
    """Return the former files of a folder ``before``; raises `StoreError`."""
    path = f"{folder}/{_INDEX}"
    try:
        index = json.loads(host.read_text(path, _MAX_BYTES) or "")
        return [_read(host, f"{folder}/{_FILES}", one) for one in index]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}, or a file that it names, cannot be read: {error}") from error


def _read(host: Host, folder: str, entry: dict[str, Any]) -> FormerFile:
    path, name = str(entry["path"]), entry["file"]
    if name is None:
        return FormerFile(path)
    with host.open(f"{folder}/{int(name)}") as stream:
        content = stream.read()
    return FormerFile(path, content, int(entry["mode"], 8), int(entry["uid"]), int(entry["gid"]))


def files_to_put_back(host: Host, files: Iterable[FormerFile]) -> list[FormerFile]:
    """Return those of the files that are not what they were."""
    return [file for file in files if not _is_as_it_was(host, file)]


def put_back(host: Host, files: Iterable[FormerFile]) -> list[str]:
    """Make files what they were; returns the paths that were changed, and raises OSError."""
    changed = files_to_put_back(host, files)
    for file in changed:
        _put_back(host, file)
    return [file.path for file in changed]


def _is_as_it_was(host: Host, file: FormerFile) -> bool:
    if file.content is None:
        return not os.path.lexists(host.path(file.path))
    return _find_or_none(host, file.path) == file


def _put_back(host: Host, file: FormerFile) -> None:
    place = host.path(file.path)
    if file.content is None:
        place.unlink(missing_ok=True)
        return
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    write_durably(place, file.content, file.mode)
    os.chown(place, file.uid, file.gid, follow_symlinks=False)


def _find_or_none(host: Host, path: str) -> FormerFile | None:
    try:
        return _find(host, path)
    except StoreError:
        return None


def write_holds(host: Host, folder: str, held: Iterable[str]) -> None:
    """Write which packages were held into a folder ``before``."""
    write_durably(host.path(f"{folder}/{_HOLDS}"), json.dumps({"held": sorted(held)}).encode())


def read_holds(host: Host, folder: str) -> frozenset[str]:
    """Return which packages were held; raises `StoreError`."""
    path = f"{folder}/{_HOLDS}"
    try:
        return frozenset(str(name) for name in json.loads(host.read_text(path, _MAX_BYTES) or "")["held"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
