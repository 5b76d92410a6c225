"""Keeps what the node has of driver changes, below ``/var/lib/grapnel/driver``: staged sets, and which one is current.

The folder belongs to root and nobody else can enter it, so what lies in it was put there by root. A link or a folder of
somebody else in its place is an error. What happened in runs is kept by `journal` and `run_record`.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.change import (
    MAX_CHANGE_BYTES,
    ChangeError,
    DriverChange,
    change_id,
    is_change_id,
    parse_change,
    render_change,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import sync_folder, write_durably
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.seal import SEAL, SealError, require_sealed

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

HOME = "/var/lib/grapnel/driver"
STAGED = f"{HOME}/staged"
JOURNALS = f"{HOME}/journal"
RUN = f"{HOME}/run.json"
NOTE = f"{HOME}/reboot.json"  # what is restored after a reboot that is no part of a run
CURRENT = f"{HOME}/current"
PREVIOUS = f"{HOME}/previous"
LOCK = f"{HOME}/lock"
SCRATCH = f"{HOME}/scratch"
BUILD = f"{HOME}/build"  # one path for all nodes and changes: it becomes a part of the modules
ORIGIN = f"{HOME}/origin"
ORIGIN_PACKAGES = f"{ORIGIN}/packages.json"  # written last: with it the origin is whole

CHANGE = "change.json"
PACKAGES = "packages"
MODULES = "modules"
MODULE_SUFFIX = ".tar.gz"
BEFORE = "before"
COST = "cost.json"
_FOLDERS = (HOME, STAGED, JOURNALS, SCRATCH)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class StoreError(Exception):
    """Something in the store is missing or wrong; the message says what, and what to do."""


def open_store(host: Host) -> None:
    """Make the folders, for root alone; raises `StoreError` where somebody else has put something in their place."""
    parent = HOME.rpartition("/")[0]
    try:
        host.path(parent).mkdir(parents=True, exist_ok=True, mode=0o755)
        _require_own(host, parent)
        for folder in _FOLDERS:
            host.path(folder).mkdir(exist_ok=True, mode=0o700)
            _require_own(host, folder)
            host.path(folder).chmod(0o700)
    except FileExistsError as error:
        raise StoreError(f"{error.filename} is not a folder: find out who made it, and remove it") from error
    except OSError as error:
        raise StoreError(f"{error.filename or HOME} cannot be made: {error.strerror or error}") from error


def _require_own(host: Host, folder: str) -> None:
    status = host.path(folder).lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise StoreError(f"{folder} is a link or no folder: find out who made it, and remove it")
    if status.st_uid != os.geteuid():
        raise StoreError(f"{folder} belongs to uid {status.st_uid}: find out who made it, and remove it")
    if status.st_mode & _OTHERS_WRITE:
        raise StoreError(f"{folder} can be written by users other than root: find out why, and remove that permission")


def staged_folder(identifier: str) -> str:
    """Return where the set of a change lies; raises `StoreError` for what is not the name of a change."""
    if not is_change_id(identifier):
        raise StoreError(f"{identifier[:64]!r} is not the name of a driver change: it has 12 hexadecimal digits")
    return f"{STAGED}/{identifier}"


def before_folder(folder: str) -> str:
    """Return where a set keeps the way back from it, which has the same shape."""
    return f"{folder}/{BEFORE}"


def write_change(host: Host, folder: str, change: DriverChange) -> None:
    """Write the document of a set, or of the way back from it."""
    write_durably(host.path(f"{folder}/{CHANGE}"), render_change(change))


def has_origin(host: Host) -> bool:
    """Tell whether a driver of grapnel's was swapped in on this node and not removed since."""
    return host.path(ORIGIN_PACKAGES).exists()


def read_change(host: Host, folder: str) -> DriverChange:
    """Return the change of a set, or of the way back from it; raises `StoreError`."""
    path = f"{folder}/{CHANGE}"
    try:
        with host.open(path) as stream:
            return parse_change(stream.read(MAX_CHANGE_BYTES + 1))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
    except ChangeError as error:
        raise StoreError(f"{path}: {error}") from error


def require_staged(host: Host, identifier: str) -> DriverChange:
    """Return the change of a set that is complete and unchanged since, way back included; raises `StoreError`."""
    folder = staged_folder(identifier)
    if not host.path(f"{folder}/{SEAL}").exists():
        raise StoreError(f"driver change {identifier} is not staged on this node: stage it first")
    try:
        require_sealed(host, folder)
    except SealError as error:
        raise StoreError(f"driver change {identifier} is not whole: {error}; stage it again") from error
    change = read_change(host, folder)
    if change_id(change) != identifier:
        raise StoreError(f"{folder} holds driver change {change_id(change)}: stage {identifier} again")
    return change


def package_files(host: Host, folder: str, suffix: str) -> tuple[str, ...]:
    """Return the package files of a set, in order of their names."""
    return _files(host, f"{folder}/{PACKAGES}", suffix)


def module_archive(folder: str, kernel: str) -> str:
    """Return where a set keeps the prebuilt module for a kernel, whether it has one or not."""
    return f"{folder}/{MODULES}/{kernel}{MODULE_SUFFIX}"


def module_archives(host: Host, folder: str) -> dict[str, str]:
    """Return the prebuilt modules of a set, by kernel."""
    paths = _files(host, f"{folder}/{MODULES}", MODULE_SUFFIX)
    return {path.rpartition("/")[2][: -len(MODULE_SUFFIX)]: path for path in paths}


def _files(host: Host, folder: str, suffix: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in host.names(folder) if name.endswith(suffix) and name[0] not in ".-")


def staged_changes(host: Host) -> list[str]:
    """Return the names of the changes that have a folder, complete or not."""
    return [name for name in host.names(STAGED) if is_change_id(name)]


def is_complete(host: Host, identifier: str) -> bool:
    """Tell whether staging a change came to its end; what became of the files since is not looked at."""
    return host.path(f"{staged_folder(identifier)}/{SEAL}").is_file()


def remove_staged(host: Host, identifier: str) -> None:
    """Remove the set of a change; a kill on the way leaves one that counts as not staged."""
    folder = host.path(staged_folder(identifier))
    if folder.is_dir() and not folder.is_symlink():
        (folder / SEAL).unlink(missing_ok=True)
        sync_folder(folder)
        shutil.rmtree(folder)


def current_change(host: Host) -> str | None:
    """Return the change that the node runs, None when there is none."""
    return _read_link(host, CURRENT)


def previous_change(host: Host) -> str | None:
    """Return the change that the node ran before, to which the way back leads; None when there is none."""
    return _read_link(host, PREVIOUS)


def _read_link(host: Host, path: str) -> str | None:
    try:
        name = host.path(path).readlink().name
    except OSError:
        return None
    return name if is_change_id(name) else None


def advance(host: Host, identifier: str) -> None:
    """Say that the node runs a change now; the one before the previous is no longer needed, and its set goes."""
    former, old = current_change(host), previous_change(host)
    if former == identifier:
        return
    _write_link(host, PREVIOUS, former)
    _write_link(host, CURRENT, identifier)
    if old is not None and old not in (former, identifier):
        remove_staged(host, old)


def retreat(host: Host, identifier: str) -> None:
    """Say that the node no longer runs a change, but what it ran before."""
    if current_change(host) == identifier:
        former = previous_change(host)
        _write_link(host, CURRENT, former if former is not None and is_complete(host, former) else None)
        _write_link(host, PREVIOUS, None)


def forget(host: Host) -> None:
    """Say that the node runs no change, and remove all sets."""
    _write_link(host, PREVIOUS, None)
    for identifier in staged_changes(host):
        remove_staged(host, identifier)
    shutil.rmtree(host.path(ORIGIN), ignore_errors=True)
    _write_link(host, CURRENT, None)


def _write_link(host: Host, path: str, identifier: str | None) -> None:
    link = host.path(path)
    if identifier is None:
        link.unlink(missing_ok=True)
    else:
        beside = link.with_name(f".{link.name}.new")
        beside.unlink(missing_ok=True)
        beside.symlink_to(Path("staged", identifier))
        beside.replace(link)
    sync_folder(link.parent)
