"""Tells which package manager a machine has.

os-release says which it should be; what counts is what is there: a Debian machine may have dnf to build images with,
and a minimal RPM system may have only the one that its maker gave it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.machine.identity import read_os_release

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

APT, DNF, ZYPPER = "apt", "dnf", "zypper"
_COMMANDS = {APT: ("apt-get",), DNF: ("dnf", "dnf5", "dnf-3"), ZYPPER: ("zypper",)}
_IDS = {
    APT: {"debian", "ubuntu"},
    DNF: {"almalinux", "amzn", "centos", "fedora", "ol", "rhel", "rocky"},
    ZYPPER: {"opensuse", "sles", "suse"},
}


def find_manager(host: Host) -> str:
    """Return ``apt``, ``dnf`` or ``zypper``: the distribution's own if it is there, else the one that is."""
    fields = read_os_release(host)
    ids = {fields.get("ID", ""), *fields.get("ID_LIKE", "").split()}
    usual = [manager for manager, names in _IDS.items() if names & ids]
    present = [manager for manager in _COMMANDS if has_manager(host, manager)]
    return next(iter([*(each for each in usual if each in present), *present, *usual, APT]))


def has_manager(host: Host, manager: str) -> bool:
    """Tell whether a package manager's command is there."""
    return any(host.find_command(name) for name in _COMMANDS[manager])
