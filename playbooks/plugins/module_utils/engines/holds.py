"""Holds packages of engines, and lets go those alone that grapnel holds: the record of them is among the originals."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.packages.choose import find_manager
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import (
    OriginalsError,
    read_originals,
    remember_held,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host


def read_held(host: Host) -> list[str]:
    """Return the facts ``engine_holds``; none where the record is damaged, which whatever changes it says."""
    try:
        return list(read_originals(host).held)
    except OriginalsError:
        return []


def hold(host: Host, names: Collection[str]) -> None:
    """Hold packages that are installed and that nobody holds; raises `PackageError`, `OriginalsError`, OSError."""
    manager = find_manager(host)
    loose = sorted(manager.installed(host, names).keys() - manager.held(host, names)) if names else []
    if loose:
        remember_held(host, loose, held=True)
        manager.hold(host, loose)


def unhold(host: Host, names: Collection[str]) -> None:
    """Let packages go that grapnel holds, and no others; raises `PackageError`, `OriginalsError`, OSError."""
    ours = sorted({*names} & {*read_originals(host).held})
    if ours:
        manager = find_manager(host)
        manager.unhold(host, sorted(manager.held(host, ours)))
        remember_held(host, ours, held=False)


@contextmanager
def let_go(host: Host) -> Iterator[None]:
    """Have grapnel hold nothing of engines while packages are exchanged; raises `PackageError`, `OriginalsError`.

    A run that is killed leaves them so, and the next plan holds them again.
    """
    manager, ours = find_manager(host), read_originals(host).held
    held = sorted(manager.held(host, ours)) if ours else []
    manager.unhold(host, held)
    try:
        yield
    finally:
        hold(host, held)
