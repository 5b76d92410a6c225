"""Seals a folder whose files belong together: the list of their digests is written last, and checked before use."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import (
    sync_file,
    sync_folder,
    write_durably,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

SEAL = "complete"
_MAX_SEAL_BYTES = 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")


class SealError(Exception):
    """A folder is not as it was sealed; the message names the file."""


def seal(host: Host, folder: str) -> None:
    """Bring every file of a folder to the disk, and write the list of their digests; raises OSError, `SealError`."""
    top = host.path(folder)
    digests = {}
    for relative, place in _files(top):
        digests[relative] = _digest(place)
        sync_file(place)
    for parent, _, _ in os.walk(top):
        sync_folder(Path(parent))
    text = json.dumps(digests, indent=1, sort_keys=True)
    write_durably(top / SEAL, text.encode())
    sync_folder(top.parent)


def require_sealed(host: Host, folder: str) -> None:
    """Raise `SealError` unless a folder holds exactly what it held when it was sealed."""
    top = host.path(folder)
    wanted = _read_seal(host, f"{folder}/{SEAL}")
    try:
        found = dict(_files(top))
        for relative in sorted(wanted.keys() | found.keys()):
            if relative not in wanted:
                raise SealError(f"{folder}/{relative} was added")
            if relative not in found:
                raise SealError(f"{folder}/{relative} is missing")
            if _digest(found[relative]) != wanted[relative]:
                raise SealError(f"{folder}/{relative} was changed")
    except OSError as error:
        raise SealError(f"{error.filename or folder} cannot be read: {error.strerror or error}") from error


def _read_seal(host: Host, path: str) -> dict[str, str]:
    try:
        found = json.loads(host.read_text(path, _MAX_SEAL_BYTES) or "")
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(
        isinstance(one, str) and _DIGEST.fullmatch(one) for one in found.values()
    ):
        raise SealError(f"{path} cannot be read")
    return found


def _files(top: Path) -> Iterator[tuple[str, Path]]:
    """Return the files below a folder but for the seal; raises `SealError` for what is neither file nor folder."""
    for parent, folders, names in os.walk(top):
        for name in sorted([*folders, *names]):
            place = Path(parent, name)
            relative = place.relative_to(top).as_posix()
            mode = place.lstat().st_mode
            if stat.S_ISREG(mode):
                if relative != SEAL:
                    yield relative, place
            elif not stat.S_ISDIR(mode):
                raise SealError(f"{printable(str(place))} is neither a file nor a folder")


def _digest(place: Path) -> str:
    found = hashlib.sha256()
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()
