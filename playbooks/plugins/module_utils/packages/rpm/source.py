"""Does with package files what dnf and zypper do alike: what is rpm's."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.files import (
    list_files,
    read_headers,
    rehearse_return,
    unpack,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.installed import read_installed
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.version import is_newer
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Callable

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.database import Rpm
    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import (
        Header,
        Offered,
        Request,
        Resolution,
        Step,
    )

Source = TypeVar("Source")


def require_unlocked(host: Host, request: Request, resolution: Resolution, is_held: Callable[[Rpm], bool]) -> None:
    """Raise `SourceError` for a package beside the driver's that would change although somebody has locked it."""
    asked = {*request.packages, *request.remove, *request.loose}
    names = {name for name, version in {**resolution.replaced, **resolution.remove}.items() if version} - asked
    try:
        installed = read_installed(host, names, is_held) if names else {}
    except PackageError as error:
        raise SourceError("packages-unreadable", str(error), "repair the package database first") from error
    locked = sorted(name for name, one in installed.items() if one.is_held)
    if locked:
        raise SourceError(
            "package-locked",
            f"{', '.join(locked)} would be changed for the driver, and a lock or an exclusion forbids that",
            "take the lock or exclusion away, or declare a driver that goes with the locked version",
        )


class RpmFiles:
    """The part of a source of package files that does not depend on who downloads them."""

    def is_newer(self, host: Host, version: str, than: str) -> bool:
        """Compare as rpm does."""
        return is_newer(version, than)

    def choose(self, host: Host, request: Request, files: Offered, scratch: str) -> tuple[str, ...]:
        """Choose what the machine lacks or has in an older version; dnf and zypper take no files as offers."""
        return tuple(
            file
            for file, (name, version) in files.described.items()
            if name in request.packages or name not in files.installed or is_newer(version, files.installed[name])
        )

    def read_headers(self, host: Host, files: Sequence[str]) -> tuple[Header, ...]:
        """Return what package files say of themselves; raises `SourceError`."""
        return read_headers(host, files)

    def with_files(self: Source, files: Sequence[str]) -> Source:  # noqa: PYI019 - Python 3.9 has no Self
        """Refuse: dnf and zypper take files as orders alone, and check nothing that no repository has signed."""
        raise SourceError(
            "not-handed-over",
            f"{', '.join(file.rpartition('/')[2] for file in files)} cannot stand beside repositories on this system",
            "stage with a bundle that has everything (--offline), or from a repository",
        )

    def for_any_machine(self: Source, host: Host, scratch: str) -> Source:  # noqa: PYI019 - of the protocol; Python 3.9 has no Self
        """Return the source itself: what this machine has counts as there on others."""
        return self

    def list_files(self, host: Host, file: str) -> tuple[str, ...]:
        """Return the paths in a package file; raises `SourceError`."""
        return list_files(host, file)

    def rehearse_return(self, host: Host, there: Step, back: Step, scratch: str) -> tuple[set[str], set[str]]:
        """Rehearse on a copy of rpm's database; raises `PackageError`."""
        return rehearse_return(host, there, back, scratch)

    def unpack(self, host: Host, file: str, folder: str) -> None:
        """Unpack below a folder; raises `SourceError`."""
        unpack(host, file, folder)
