"""Finds the package manager of a machine. Ansible sends what is imported here, so each is imported by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.transaction import Apt
from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf.transaction import Dnf
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError
from ansible_collections.grapnel.node.plugins.module_utils.packages.zypper.transaction import Zypper

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageManager

_COMMANDS: dict[str, PackageManager] = {
    "apt-get": Apt(),
    "dnf": Dnf(),
    "zypper": Zypper(),
}  # where there are two, the first is the machine's own


def find_manager(host: Host) -> PackageManager:
    """Return the package manager that a machine has; raises `PackageError`."""
    for command, manager in _COMMANDS.items():
        if host.find_command(command):
            return manager
    raise PackageError(f"this machine has none of the package managers that are known: {', '.join(_COMMANDS)}")
