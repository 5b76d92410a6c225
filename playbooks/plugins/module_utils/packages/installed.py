"""Finds what reads the installed versions of a machine's packages. Ansible sends what is imported here.

That is all that the facts need of a package manager; ``choose`` finds the whole one, with what transactions need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.packages import family
from ansible_collections.grapnel.node.plugins.module_utils.packages.apt.database import read_packages
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.installed import read_by_dnf, read_by_zypper
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import ReadInstalled

_READERS: dict[str, ReadInstalled] = {family.APT: read_packages, family.DNF: read_by_dnf, family.ZYPPER: read_by_zypper}


def find_reader(host: Host) -> ReadInstalled:
    """Return what reads the packages of the machine's own manager; raises `PackageError`."""
    name = family.find_manager(host)
    if not family.has_manager(host, name):
        raise PackageError(f"{name} is not on this machine, nor any other package manager")
    return _READERS[name]
