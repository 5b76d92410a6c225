"""Takes over what the controller hands over for a driver change: files first, then the list that makes them count.

A kill on the way leaves files without a list, which count for nothing; the next run sends what is missing.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.change import is_change_id
from ansible_collections.grapnel.node.plugins.module_utils.driver.durable import sync_folder, write_durably
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.folder import INCOMING
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.packages import LIST
from ansible_collections.grapnel.node.plugins.module_utils.driver.store import StoreError, open_store
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import has_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_PLACE = re.compile(r"^(packages|modules)/[A-Za-z0-9][A-Za-z0-9._+~:%^-]{0,250}\Z")
_DIGEST = re.compile(r"^[0-9a-f]{64}\Z")


class HandoverError(Exception):
    """What was handed over cannot be taken; the message says why."""


def find_missing(host: Host, identifier: str, files: Mapping[str, str]) -> list[str]:
    """Return the places of files that the node does not have as they should be."""
    folder = _folder(identifier)
    _require_plain(files)
    return [
        place
        for place, digest in sorted(files.items())
        if not has_digest(host.path(f"{folder}/{place}"), f"sha256:{digest}")
    ]


def take_file(host: Host, identifier: str, place: str, digest: str, source: str) -> None:
    """Move a file that was sent to its place; raises `HandoverError`, `StoreError`, OSError."""
    folder = _folder(identifier)
    _require_plain({place: digest})
    open_store(host)
    if not has_digest(host.path(source), f"sha256:{digest}"):
        raise HandoverError(f"{place} arrived damaged, it does not have the digest that the bundle lists: run it again")
    host.path(f"{folder}/{LIST}").unlink(missing_ok=True)  # until everything is there again
    target = host.path(f"{folder}/{place}")
    for parent in (host.path(INCOMING), host.path(folder), target.parent):
        parent.mkdir(exist_ok=True, mode=0o700)
    beside = target.with_name(f".{target.name}.new")
    shutil.copyfile(host.path(source), beside)
    beside.chmod(0o600)
    beside.replace(target)
    sync_folder(target.parent)


def finish(host: Host, identifier: str, files: Mapping[str, str]) -> bool:
    """Write the list of files that are all there, and tell whether it was not there yet."""
    path = host.path(f"{_folder(identifier)}/{LIST}")
    text = (json.dumps(dict(files), indent=1, sort_keys=True) + "\n").encode()
    if path.is_file() and path.read_bytes() == text:
        return False
    write_durably(path, text)
    return True


def _folder(identifier: str) -> str:
    if not is_change_id(identifier):
        raise HandoverError(f"{identifier[:64]!r} is not the name of a driver change")
    return f"{INCOMING}/{identifier}"


def _require_plain(files: Mapping[str, str]) -> None:
    for place, digest in files.items():
        if not _PLACE.match(place) or not _DIGEST.match(digest):
            raise HandoverError(f"{place[:300]!r} is no place for a package or a built module, or has no digest")


__all__ = ["HandoverError", "StoreError", "find_missing", "finish", "take_file"]
