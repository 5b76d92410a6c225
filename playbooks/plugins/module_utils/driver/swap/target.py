"""Defines what the steps of a run bring a node to: a staged change, or what was there before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.before.way_back import read_files, read_holds
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import (
    before_folder,
    module_archives,
    package_files,
    read_change,
)

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.before.way_back import FormerFile
    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host


@dataclass(frozen=True)
class Target:
    """A change with everything that carrying it out needs from the node's own disk.

    ``former`` and ``held`` belong to a way back: files as they were, and exactly those packages of ``known`` that are
    held. Without ``held`` the change says whether its packages are. ``undone`` is what it leads back from; its
    packages are finished first if they were cut short. ``kept`` are the packages that somebody else holds, where the
    change itself holds none: package managers release what they change.
    """

    change: DriverChange
    folder: str
    packages: tuple[str, ...]
    archives: dict[str, str]
    former: tuple[FormerFile, ...] = ()
    held: frozenset[str] | None = None
    known: tuple[str, ...] = ()
    undone: Target | None = None
    kept: frozenset[str] = frozenset()

    @property
    def is_way_back(self) -> bool:
        """Whether this restores what was there before."""
        return self.held is not None


def forward_target(host: Host, folder: str, change: DriverChange, suffix: str) -> Target:
    """Return the target of a staged change; raises `StoreError`."""
    kept = frozenset() if change.hold else read_holds(host, before_folder(folder))
    return Target(change, folder, package_files(host, folder, suffix), module_archives(host, folder), kept=kept)


def way_back_target(host: Host, folder: str, suffix: str) -> Target:
    """Return what was there before the change in ``folder`` was staged; raises `StoreError`."""
    before = before_folder(folder)
    change, forward = read_change(host, before), read_change(host, folder)
    return Target(
        change,
        before,
        package_files(host, before, suffix),
        module_archives(host, before),
        tuple(read_files(host, before)),
        read_holds(host, before),
        tuple(dict.fromkeys((*change.names, *forward.names, *forward.remove))),
        forward_target(host, folder, forward, suffix),
    )
