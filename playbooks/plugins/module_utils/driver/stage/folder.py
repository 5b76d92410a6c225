"""Puts a staged set together beside its place, and removes sets that nobody needs.

A set grows in the folder ``.new-<id>`` and is renamed when it is sealed. What a killed run leaves there is taken up by
the next run for the same change, as far as it was downloaded, and removed by one for another change.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.record import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import sync_folder, write_durably
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.seal import SEAL, seal

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

INCOMING = f"{store.HOME}/incoming"  # what the controller hands over, a folder for each change
SCRATCH = "scratch"  # in a set that is put together: gone when it is sealed
_NEW = ".new-"
_OLD = ".old-"


def begin(host: Host, identifier: str) -> str:
    """Return the folder in which a set is put together."""
    store.open_store(host)
    folder = f"{store.STAGED}/{_NEW}{identifier}"
    place = host.path(folder)
    place.mkdir(exist_ok=True, mode=0o700)
    for path in place.iterdir():
        if path.name != store.PACKAGES:
            remove(path)
    for name in (store.PACKAGES, store.MODULES, SCRATCH, store.BEFORE):
        (place / name).mkdir(exist_ok=True, mode=0o700)
    for name in (store.PACKAGES, store.MODULES):
        (place / store.BEFORE / name).mkdir(mode=0o700)
    return folder


def finish(host: Host, folder: str, identifier: str) -> None:
    """Seal a set and put it in its place, over one that is no longer right."""
    remove(host.path(f"{folder}/{SCRATCH}"))
    seal(host, folder)
    target = host.path(store.staged_folder(identifier))
    old = target.with_name(f"{_OLD}{identifier}")
    remove(old)
    if os.path.lexists(target):
        target.rename(old)
    host.path(folder).rename(target)
    sync_folder(target.parent)
    remove(old)


def prune(host: Host, keep: Collection[str]) -> None:
    """Remove what the folder of staged sets, and that of what was handed over, have of other changes."""
    for folder in (store.STAGED, INCOMING):
        for name in host.names(folder):
            if name not in keep:
                remove(host.path(f"{folder}/{name}"))


def newest(host: Host) -> str | None:
    """Return the change of the complete set that was sealed last."""
    found = [name for name in store.staged_changes(host) if store.is_complete(host, name)]
    sealed = {name: host.path(f"{store.staged_folder(name)}/{SEAL}").stat().st_mtime_ns for name in found}
    return max(found, key=sealed.__getitem__, default=None)


def write_json(host: Host, path: str, document: object) -> None:
    """Write a document durably."""
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)
    write_durably(host.path(path), f"{text}\n".encode())


def read_json(host: Host, path: str) -> Any:
    """Return the object in a JSON file, None when the file is absent or holds anything else."""
    text = host.read_text(path)
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return None


def size_bytes(host: Host, folder: str) -> int:
    """Return the bytes of all files of a folder."""
    return sum(path.stat().st_size for path in host.path(folder).rglob("*") if path.is_file())


def remove(path: Path) -> None:
    """Remove whatever is there, if anything."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
