"""Does with the database of packages what dnf and zypper do alike: what is rpm's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm import transaction as common
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.installed import read_instances

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host


class RpmDatabase(ABC):
    """The part of a package manager that does not depend on who solves and downloads."""

    suffix = ".rpm"

    def describe(self, host: Host, files: Sequence[str]) -> dict[str, tuple[str, str]]:
        return {file: common.describe(host, file) for file in files}

    def require_readable(self, host: Host) -> None:
        read_instances(host, ["rpm"])

    def is_interrupted(self, host: Host) -> bool:
        return bool(common.surplus(host))

    @abstractmethod
    def wait(self, host: Host, clock: Clock) -> None:
        """Wait for the lock of the manager itself; rpm has none that covers a transaction."""

    def repair(self, host: Host, clock: Clock) -> None:
        """Erase the older one of what is there twice; packages that were not reached are left to the transaction."""
        self.wait(host, clock)
        common.erase_surplus(host)
