"""Finds the package manager of a machine. Ansible sends what is imported here, so each is imported by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.packages import family
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.transaction import Apt
from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf.transaction import Dnf
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError
from ansible_collections.grapnel.node.plugins.module_utils.packages.zypper.transaction import Zypper

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageManager

_MANAGERS: dict[str, PackageManager] = {family.APT: Apt(), family.DNF: Dnf(), family.ZYPPER: Zypper()}


def find_manager(host: Host) -> PackageManager:
    """Return the machine's own package manager; raises `PackageError`."""
    name = family.find_manager(host)
    if name not in _MANAGERS or not family.has_manager(host, name):
        raise PackageError(f"no driver can be exchanged with {name} on this machine, only with {', '.join(_MANAGERS)}")
    return _MANAGERS[name]
