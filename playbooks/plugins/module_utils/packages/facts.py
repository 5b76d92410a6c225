"""Defines what every package manager says about itself and its packages, and loads the one of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ansible_collections.grapnel.node.plugins.module_utils.packages import family

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.lists import Freshness


class PackageFacts(Protocol):
    """A package manager's module ``facts``."""

    NAME: str

    def refresh_lists(self, host: Host, freshness: Freshness, clock: Clock) -> dict[str, Any]:
        """Bring the lists up to date if they are missing or old; returns their age, and the error if there was one."""

    def wait_for_lock(self, host: Host, timeout_s: float, clock: Clock) -> dict[str, Any] | None:
        """Return the lock's holder, None as soon as there is none."""

    def read_installed(self, host: Host) -> tuple[dict[str, Any], bool]:
        """Return the facts ``packages``, and whether a transaction was interrupted; raises HostError."""

    def read_available(self, host: Host) -> dict[str, Any]:
        """Return the facts ``available``."""

    def read_state(self, host: Host) -> dict[str, Any]:
        """Return ``module_streams`` and ``release_lock``, which dnf has, and ``left_out``, which apt has not."""

    def is_owned(self, host: Host, path: str) -> bool:
        """Tell whether a package has a file."""


def find_facts(host: Host) -> PackageFacts:
    """Return the facts of the machine's package manager."""
    name = family.find_manager(host)
    if name == family.APT:
        from ansible_collections.grapnel.node.plugins.module_utils.packages.apt import facts as apt

        return apt
    if name == family.DNF:
        from ansible_collections.grapnel.node.plugins.module_utils.packages.dnf import facts as dnf

        return dnf
    from ansible_collections.grapnel.node.plugins.module_utils.packages.zypper import facts as zypper

    return zypper
