"""Does with package files what dnf and zypper do alike: what is rpm's."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.files import (
    list_files,
    read_headers,
    rehearse_return,
    unpack,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.rpm.version import is_newer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Header, Offered, Request, Step


Source = TypeVar("Source")


class RpmFiles:
    """The part of a source of package files that does not depend on who downloads them."""

    def is_newer(self, host: Host, version: str, than: str) -> bool:  # noqa: ARG002 - of the protocol
        """Compare as rpm does."""
        return is_newer(version, than)

    def choose(self, host: Host, request: Request, files: Offered, scratch: str) -> tuple[str, ...]:  # noqa: ARG002 - of the protocol
        """Choose what the machine lacks or has in an older version; dnf and zypper take no files as offers."""
        return tuple(
            file
            for file, (name, version) in files.described.items()
            if name in request.packages or name not in files.installed or is_newer(version, files.installed[name])
        )

    def read_headers(self, host: Host, files: Sequence[str]) -> tuple[Header, ...]:
        """Return what package files say of themselves; raises `SourceError`."""
        return read_headers(host, files)

    def for_any_machine(self: Source, host: Host, scratch: str) -> Source:  # noqa: ARG002, PYI019 - of the protocol; Python 3.9 has no Self
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
