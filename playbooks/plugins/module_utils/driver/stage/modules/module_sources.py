"""Finds the sources that dkms builds a driver's module from: in the staged packages, or on the node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.work import Work

_TREE = "/usr/src"
# Names of packages that carry sources; the others are looked into only when none of these has them.
_LIKELY = re.compile(r"dkms|kmod|kernel")


@dataclass(frozen=True)
class ModuleSources:
    """A source tree of dkms, and the version in it, which need not be the driver's."""

    tree: str
    module: str
    version: str


def find_sources(work: Work, files: Iterable[str], scratch: str) -> ModuleSources:
    """Return the sources of a change's module, unpacked below ``scratch`` if a package has them.

    Raises `StageError`, and `SourceError` for a package that cannot be read.
    """
    host, source, module, version = work.host, work.source, str(work.change.dkms), work.change.version
    inside = re.compile(rf"{_TREE}/{re.escape(module)}-(?P<version>[0-9][^/]*)/dkms\.conf")
    for file in sorted(files, key=lambda path: (not _LIKELY.search(path.rsplit("/", 1)[-1]), path)):
        found = [match for path in source.list_files(host, file) if (match := inside.fullmatch(path))]
        if found:
            host.path(f"{scratch}/root").mkdir(parents=True, exist_ok=True)
            source.unpack(host, file, f"{scratch}/root")
            return ModuleSources(f"{scratch}/root{_TREE}", module, found[0]["version"])
    if host.path(f"{_TREE}/{module}-{version}/dkms.conf").is_file():
        return ModuleSources(_TREE, module, version)
    raise failure(
        "module-sources-missing",
        f"no package of the change has {_TREE}/{module}-*/dkms.conf, and the node has none for {version}",
        "the change names no package with the module's sources; choose a source that has them, or a packaged module",
    )
