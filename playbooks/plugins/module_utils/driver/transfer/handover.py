"""Takes over what the controller hands over for a change: files first, then the list that makes them count.

A kill on the way leaves files without a list, which count for nothing; the next run sends what is missing.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from typing import IO, TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.change import is_change_id
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import sync_folder, write_durably
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import StoreError, open_store
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.folder import INCOMING
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.packages import LIST
from ansible_collections.grapnel.node.plugins.module_utils.files.plain_tar import open_plain, plain_members
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import has_digest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.work import PackageSystem
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_PLACE = re.compile(r"^(packages|modules)/[A-Za-z0-9][A-Za-z0-9._+~:%^-]{0,250}\Z")
_DIGEST = re.compile(r"^[0-9a-f]{64}\Z")
_CHUNK_BYTES = 1024 * 1024


class HandoverError(Exception):
    """What was handed over cannot be taken; the message says why."""


def find_missing(host: Host, identifier: str, files: Mapping[str, str], root: str = INCOMING) -> list[str]:
    """Return the places of files that the node does not have as they should be, in a folder below a root."""
    folder = _folder(identifier, root)
    _require_plain(files)
    return [
        place
        for place, digest in sorted(files.items())
        if not has_digest(host.path(f"{folder}/{place}"), f"sha256:{digest}")
    ]


def find_needed(
    host: Host, system: PackageSystem, files: Mapping[str, str], packages: Mapping[str, tuple[str, str]]
) -> dict[str, str]:
    """Return the files without those of packages that the node has as new already; raises `PackageError`.

    ``packages`` are name and version in some of the files, by their places.
    """
    present = system.manager.installed(host, {name for name, _ in packages.values()}) if packages else {}

    def is_there(place: str) -> bool:
        name, version = packages.get(place, ("", ""))
        return name in present and not system.source.is_newer(host, version, present[name].version)

    return {place: digest for place, digest in files.items() if not is_there(place)}


def take_files(host: Host, identifier: str, files: Mapping[str, str], archive: str, root: str = INCOMING) -> None:
    """Put the files of an archive that was sent in their places; raises `HandoverError`, `StoreError`, OSError."""
    folder = _folder(identifier, root)
    _require_plain(files)
    if root == INCOMING:
        open_store(host)
    host.path(f"{folder}/{LIST}").unlink(missing_ok=True)  # until everything is there again
    for place in (host.path(root), host.path(folder)):
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with open_plain(host.path(archive), "r:") as opened:
            for member in plain_members(opened):
                stream = opened.extractfile(member) if member.isreg() else None
                if stream is None or member.name not in files:
                    raise HandoverError(f"{printable(member.name)} was sent, but is not a file of the bundle")
                _take(host.path(f"{folder}/{member.name}"), member.name, files[member.name], stream)
    except tarfile.TarError as error:
        raise HandoverError(f"what was sent arrived damaged ({printable(str(error))}): run it again") from error


def _take(target: Path, place: str, digest: str, stream: IO[bytes]) -> None:
    target.parent.mkdir(exist_ok=True, mode=0o700)
    beside, found = target.with_name(f".{target.name}.new"), hashlib.sha256()
    with beside.open("wb") as out:
        beside.chmod(0o600)
        while chunk := stream.read(_CHUNK_BYTES):
            found.update(chunk)
            out.write(chunk)
    if found.hexdigest() != digest:
        beside.unlink()
        raise HandoverError(f"{place} arrived damaged, it does not have the digest that the bundle lists: run it again")
    beside.replace(target)
    sync_folder(target.parent)


def finish(host: Host, identifier: str, files: Mapping[str, str], root: str = INCOMING) -> bool:
    """Write the list of files that are all there, and tell whether it was not there yet."""
    path = host.path(f"{_folder(identifier, root)}/{LIST}")
    text = (json.dumps(dict(files), indent=1, sort_keys=True) + "\n").encode()
    if path.is_file() and path.read_bytes() == text:
        return False
    write_durably(path, text)
    return True


def _folder(identifier: str, root: str) -> str:
    if not is_change_id(identifier):
        raise HandoverError(f"{identifier[:64]!r} is not the name of a change")
    return f"{root}/{identifier}"


def _require_plain(files: Mapping[str, str]) -> None:
    for place, digest in files.items():
        if not _PLACE.match(place) or not _DIGEST.match(digest):
            raise HandoverError(f"{place[:300]!r} is no place for a package or a built module, or has no digest")


__all__ = ["HandoverError", "StoreError", "find_missing", "find_needed", "finish", "take_files"]
