"""Keeps package files of an engine that the controller handed over: those that come, and those that are installed.

A node that reaches no package source has its way back from them: what was installed of a bundle stays, until something
else takes its place.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.seal import (
    SEAL,
    SealError,
    require_sealed,
    seal,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageError
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.packages import handed_packages
from ansible_collections.grapnel.node.plugins.module_utils.engines.staged import HANDED
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Transaction
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import (
    Download,
    Offered,
    Request,
    Resolution,
    SourceError,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.sources import find_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageManager

HOME = HANDED.rpartition("/")[0]
_KEPT = f"{HOME}/installed"
_AGAIN = "make the bundle again, for this node's release of its distribution"


def resolve_handed(
    host: Host, manager: PackageManager, wanted: Mapping[str, str], identifier: str, scratch: str
) -> Resolution:
    """Return what installing packages from what was handed over comes to, and from nothing else.

    The downloads are the files that are needed, with where they are. Raises `SourceError`, `PackageError`.
    """
    try:
        files = handed_packages(host, identifier, HANDED)
    except StageError as error:
        raise SourceError(error.finding.code, error.finding.message, error.finding.remedy) from error
    described = manager.describe(host, files) if files else {}
    versions = dict(described.values())
    if missing := sorted(name for name, version in wanted.items() if not _is_in(versions, name, version)):
        raise SourceError("not-handed-over", f"{', '.join(missing)} was not handed over", _AGAIN)
    present = {name: one.version for name, one in manager.installed(host, versions).items()}
    request = Request({name: versions[name] for name in wanted})
    chosen = find_source(manager.name).choose(host, request, Offered(described, present), scratch)
    found = manager.rehearse(host, Transaction(chosen, (), scratch))
    return Resolution(
        downloads=tuple(Download(file.rpartition("/")[2], file, host.path(file).stat().st_size) for file in chosen),
        install=found.install,
        replaced={name: present.get(name, "") for name in found.install},
        remove=dict.fromkeys(found.remove, ""),
        obsoleted=dict.fromkeys(found.obsoleted, ""),
    )


def keep(host: Host, manager: PackageManager, files: tuple[str, ...]) -> None:
    """Keep files of packages that are installed now, in the place of former ones of these packages.

    They count as long as they are as they are now.
    """
    folder = host.path(_KEPT)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    coming = {name for name, _ in manager.describe(host, files).values()}
    for file, described in _kept(host, manager).items():
        if described is None or described[0] in coming:
            host.path(file).unlink()
    for file in files:
        host.path(file).replace(folder / file.rpartition("/")[2])
    seal(host, _KEPT)


def find_kept(host: Host, manager: PackageManager, former: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files of packages at these versions, empty unless all of them are kept as they were."""
    try:
        require_sealed(host, _KEPT)
    except SealError:
        return ()
    found = {described: file for file, described in _kept(host, manager).items() if described is not None}
    return tuple(found[one] for one in former.items()) if found.keys() >= set(former.items()) else ()


def forget_handed(host: Host) -> None:
    """Remove what was handed over, and is not installed."""
    shutil.rmtree(host.path(HANDED), ignore_errors=True)


def forget_kept(host: Host) -> None:
    """Remove what is kept: what is installed now came otherwise."""
    shutil.rmtree(host.path(HOME), ignore_errors=True)


def _is_in(versions: Mapping[str, str], name: str, version: str) -> bool:
    return name in versions and version in ("", versions[name])


def _kept(host: Host, manager: PackageManager) -> dict[str, tuple[str, str] | None]:
    """Return what the kept files say of themselves, None for one that is damaged."""
    files = (f"{_KEPT}/{name}" for name in sorted(host.names(_KEPT)) if name != SEAL)
    return {file: _describe(host, manager, file) for file in files}


def _describe(host: Host, manager: PackageManager, file: str) -> tuple[str, str] | None:
    try:
        return manager.describe(host, [file])[file]
    except PackageError:
        return None
