"""Finds the package manager of a machine. Only its own is loaded, which costs a start half as much as all three."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.packages import family
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageManager


def find_manager(host: Host) -> PackageManager:
    """Return the machine's own package manager; raises `PackageError`."""
    name = family.find_manager(host)
    if not family.has_manager(host, name):
        raise PackageError(f"no driver can be exchanged with {name} on this machine, only with apt, dnf, zypper")
    if name == family.APT:
        from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.transaction import Apt

        return Apt()
    if name == family.DNF:
        from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf.transaction import Dnf

        return Dnf()
    from ansible_collections.grapnel.node.plugins.module_utils.packages.zypper.transaction import (
        Zypper,
    )

    return Zypper()
