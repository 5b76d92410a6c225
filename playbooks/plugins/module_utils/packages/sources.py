"""Chooses where package files come from on a machine, by the name of its package manager; only that one is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import PackageSource


def find_source(manager: str) -> PackageSource:
    """Return the source of a manager that a driver change names; raises KeyError for another one."""
    if manager == "apt":
        from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.download import AptSource

        return AptSource()
    if manager == "dnf":
        from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf.download import DnfSource

        return DnfSource()
    if manager == "zypper":
        from ansible_collections.grapnel.node.plugins.module_utils.packages.zypper.download import (
            ZypperSource,
        )

        return ZypperSource()
    raise KeyError(manager)
