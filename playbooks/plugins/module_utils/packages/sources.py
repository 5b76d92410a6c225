"""Chooses where package files come from on a machine, by the name of its package manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.download import AptSource
from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf.download import DnfSource
from ansible_collections.grapnel.node.plugins.module_utils.packages.zypper.download import ZypperSource

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import PackageSource


def find_source(manager: str) -> PackageSource:
    """Return the source of a manager that a driver change names; raises KeyError for another one."""
    sources: dict[str, PackageSource] = {"apt": AptSource(), "dnf": DnfSource(), "zypper": ZypperSource()}
    return sources[manager]
