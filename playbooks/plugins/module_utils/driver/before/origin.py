"""Remembers what the node had before its first driver change, so that `remove` can give it back.

Every successful swap adds what it was the first to touch: files, packages that were not there, holds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.before.way_back import (
    FormerFile,
    read_files,
    read_holds,
    write_files,
    write_holds,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import NO_DRIVER, DriverChange
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import write_durably
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import (
    ORIGIN,
    ORIGIN_PACKAGES,
    StoreError,
    before_folder,
    has_origin,
    read_change,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.target import Target

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host


@dataclass(frozen=True)
class Origin:
    """Files as they were before grapnel, packages that came with its drivers, and what was held before."""

    files: tuple[FormerFile, ...] = ()
    added: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()


def read_origin(host: Host) -> Origin:
    """Return what is remembered; nothing on a node whose driver was never changed. Raises `StoreError`."""
    if not has_origin(host):
        return Origin()
    try:
        added = frozenset(str(name) for name in json.loads(host.read_text(ORIGIN_PACKAGES) or "")["added"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{ORIGIN_PACKAGES} cannot be read: {error}") from error
    return Origin(tuple(read_files(host, ORIGIN)), added, read_holds(host, ORIGIN))


def remember_origin(host: Host, folder: str) -> None:
    """Add what the change in ``folder`` was the first to touch; raises `StoreError`, OSError."""
    before = before_folder(folder)
    known, forward, back = read_origin(host), read_change(host, folder), read_change(host, before)
    is_first = not has_origin(host)
    paths = {file.path for file in known.files}
    files = [*known.files, *(file for file in read_files(host, before) if file.path not in paths)]
    added = {*known.added, *forward.names, *back.remove}
    host.path(ORIGIN).mkdir(mode=0o700, exist_ok=True)
    write_files(host, ORIGIN, files)
    write_holds(host, ORIGIN, read_holds(host, before) if is_first else known.held)
    write_durably(host.path(ORIGIN_PACKAGES), json.dumps({"added": sorted(added)}).encode())


def removal_target(host: Host, manager: str, *, is_continued: bool) -> Target:
    """Return a node without a driver of grapnel's, as it was before the first one; raises `StoreError`.

    A removal that was cut short at its very end has nothing left to remember.
    """
    origin = read_origin(host)
    if not origin.added and not is_continued:
        raise StoreError("there is nothing to remove: no driver change was swapped in on this node")
    none = DriverChange(
        version=NO_DRIVER, flavour="none", manager=manager, packages=(), remove=tuple(sorted(origin.added)), files=(),
        hold=False, kernels=(), dkms=None, services=(), sign=None, compile="stage", reboot=False, module=NO_DRIVER,
    )  # fmt: skip
    return Target(none, ORIGIN, (), {}, origin.files, origin.held, none.remove)
