"""Gives the archive of modules that this node has built to the controller, piece by piece, for other nodes of its kind.

Any complete set on the node will do, the one that the node runs included: what counts is driver, flavour and kernel,
and that this node has built it. What another has built proves nothing about either of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.record import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import StoreError
from ansible_collections.grapnel.node.plugins.module_utils.driver.transfer.built_here import own_builds

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

PIECE_BYTES = 2_600_000  # an answer may have 3.5 million characters, and this becomes 3,466,668
_CHUNK_BYTES = 1024 * 1024


class BuiltModuleError(Exception):
    """There is no such archive; the message says what was looked for."""


@dataclass(frozen=True)
class Wanted:
    """Modules by what they are of."""

    kernel: str
    dkms: str
    version: str
    flavour: str


def find_archive(host: Host, wanted: Wanted) -> str:
    """Return the path of an archive on this node; raises `BuiltModuleError`."""
    for identifier in store.staged_changes(host):
        folder = store.staged_folder(identifier)
        path = store.module_archive(folder, wanted.kernel)
        is_there = store.is_complete(host, identifier) and host.path(path).is_file()
        if is_there and _is_of(host, folder, wanted) and wanted.kernel in own_builds(host, folder):
            return path
    raise BuiltModuleError(
        f"this node has no modules of driver {wanted.version} ({wanted.flavour}, {wanted.dkms}) for the kernel "
        f"{wanted.kernel} among its staged changes that it has built itself"
    )


def _is_of(host: Host, folder: str, wanted: Wanted) -> bool:
    try:
        change = store.read_change(host, folder)
    except StoreError:
        return False
    return (change.dkms, change.version, change.flavour) == (wanted.dkms, wanted.version, wanted.flavour)


def describe_archive(host: Host, path: str) -> tuple[int, str]:
    """Return size and SHA-256 of an archive."""
    found = hashlib.sha256()
    with host.open(path) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            found.update(chunk)
        return stream.tell(), found.hexdigest()


def read_piece(host: Host, path: str, offset: int) -> bytes:
    """Return the bytes of an archive from an offset on, at most ``PIECE_BYTES``."""
    with host.open(path) as stream:
        stream.seek(offset)
        return stream.read(PIECE_BYTES)


__all__ = ["BuiltModuleError", "StoreError", "Wanted", "describe_archive", "find_archive", "read_piece"]
