"""Collects the package files of a change: from what was handed over, or from the node's package sources."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.record import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.folder import INCOMING, read_json, write_json
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import failure
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Transaction
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import (
    Offered,
    Request,
    Resolution,
    SourceError,
    has_digest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageError
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.work import PackageSystem, Work
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageManager

LIST = "list.json"  # of what was handed over: digests by the files' places below the folder
HEADERS = "packages.json"  # of a set: what its package files say of themselves, by which a bundle can be planned from
_MIB = 1024 * 1024
_OTHER_BUNDLE = (
    "make the bundle again for this node's release of its distribution: it must have every package that the node lacks"
)


def request_of(change: DriverChange) -> Request:
    """Return what a change asks of the package manager."""
    return Request({one.name: one.version for one in change.packages}, change.remove)


def handed_over(host: Host, identifier: str, root: str = INCOMING) -> dict[str, str]:
    """Return the files that the controller handed over for a change, by their places, each with its right digest.

    Raises `StageError` for a file that is missing or damaged: what was handed over is complete, or it is no use.
    """
    folder = f"{root}/{identifier}"
    listed = read_json(host, f"{folder}/{LIST}")
    if listed is None:
        return {}
    found = {}
    for place, digest in sorted(dict(listed).items()):
        if (
            place.startswith("/")
            or ".." in place.split("/")
            or not has_digest(host.path(f"{folder}/{place}"), f"sha256:{digest}")
        ):
            raise failure(
                "damaged-handover",
                f"{folder}/{place} is missing or does not have the digest that {LIST} gives",
                "hand the bundle's files over again",
            )
        found[place] = f"{folder}/{place}"
    return found


def handed_packages(host: Host, identifier: str, root: str = INCOMING) -> tuple[str, ...]:
    """Return the package files that the controller handed over for a change; raises `StageError` as `handed_over`."""
    return packages_in(handed_over(host, identifier, root))


def packages_in(handed: Mapping[str, str]) -> tuple[str, ...]:
    """Return the package files among what was handed over."""
    return tuple(file for place, file in handed.items() if place.startswith(f"{store.PACKAGES}/"))


def with_given(system: PackageSystem, files: Sequence[str]) -> PackageSystem:
    """Return a package system whose source has files that were handed over besides; raises `SourceError`."""
    return replace(system, source=system.source.with_files(files)) if files else system


def download(work: Work, request: Request, target: str) -> tuple[str, ...]:
    """Download the files of a request into a folder, and return them; raises `StageError` as `fetch`."""
    try:
        resolution = work.source.resolve(work.host, request)
    except SourceError as error:
        raise failed(error) from error
    return fetch(work, request, resolution, target)


def fetch(work: Work, request: Request, resolution: Resolution, target: str) -> tuple[str, ...]:
    """Download what a request comes to, and return the files; raises `StageError` before the disk is full."""
    host, source, options = work.host, work.source, work.options
    try:
        require_space(host, target, resolution.size_bytes, options.reserve_bytes)
        source.fetch(host, request, resolution.downloads, target, options.download_timeout_s)
    except SourceError as error:
        raise failed(error) from error
    return tuple(f"{target}/{one.name}" for one in resolution.downloads)


def take_over(host: Host, files: Iterable[str], folder: str) -> tuple[str, ...]:
    """Put files that the node has already into a set, without a second copy where the disk allows that."""
    return tuple(link_or_copy(host, file, f"{folder}/{file.rsplit('/', 1)[-1]}") for file in files)


def link_or_copy(host: Host, file: str, target: str) -> str:
    """Put a second link to a file that never changes in a place, a copy where a link cannot be made."""
    place = host.path(target)
    place.unlink(missing_ok=True)
    try:
        os.link(host.path(file), place)
    except OSError:
        shutil.copyfile(host.path(file), place)
    return target


def useful(work: Work, files: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files that a node needs of those handed over, which may be for any node; raises `StageError`."""
    host = work.host
    try:
        described = work.manager.describe(host, files)
        names = {*work.change.names, *(name for name, _ in described.values())}
        present = {name: one.version for name, one in work.manager.installed(host, names).items()}
    except PackageError as error:
        raise failure("damaged-package", str(error), "hand the bundle's files over again") from error
    _require_all(work.change, {*described.values(), *present.items()})
    if not files:
        return ()
    try:
        return work.source.choose(host, request_of(work.change), Offered(described, present), work.scratch)
    except SourceError as error:
        raise failure(error.code, str(error), _OTHER_BUNDLE) from error


def write_headers(work: Work, files: Sequence[str]) -> None:
    """Write what the package files of a set say of themselves; raises `StageError`."""
    try:
        found = work.source.read_headers(work.host, files)
    except SourceError as error:
        raise failed(error) from error
    headers = [{**vars(one), "file": one.file.rsplit("/", 1)[-1], "depends": list(one.depends)} for one in found]
    write_json(work.host, f"{work.folder}/{HEADERS}", headers)


def resolve_handed_over(work: Work, files: tuple[str, ...]) -> Resolution:
    """Return what installing files without a network comes to; raises `StageError`."""
    host, change = work.host, work.change
    try:
        described = {name for name, _ in work.manager.describe(host, files).values()}
        rehearsal = work.manager.rehearse(host, Transaction(files, change.remove, work.scratch))
        names = {*described, *change.names, *rehearsal.remove, *change.remove}
        before = {name: one.version for name, one in work.manager.installed(host, names).items()}
    except PackageError as error:
        raise failure("unresolvable", str(error), _OTHER_BUNDLE) from error
    return Resolution(
        install=rehearsal.install,
        replaced={name: before.get(name, "") for name in rehearsal.install},
        remove={name: before.get(name, "") for name in rehearsal.remove},
    )


def _require_all(change: DriverChange, there: set[tuple[str, str]]) -> None:
    """Raise `StageError` for packages of the change that were not handed over and are not installed either."""
    missing = [f"{one.name} {one.version}" for one in change.packages if (one.name, one.version) not in there]
    if missing:
        raise failure(
            "not-handed-over",
            f"packages of the change are neither on this node nor among what was handed over: {', '.join(missing)}",
            "make the bundle for this node's distribution and this driver, or stage with the package sources",
        )


def require_space(host: Host, folder: str, size_bytes: int, reserve_bytes: int) -> None:
    """Raise `StageError` where files of a size would not leave the reserve on the folder's file system."""
    free = _free_bytes(host.path(folder))
    if free < size_bytes + reserve_bytes:
        raise failure(
            "no-space",
            f"{size_bytes // _MIB} MiB of packages do not fit below {store.HOME}: of {free // _MIB} MiB free, "
            f"{reserve_bytes // _MIB} MiB must stay free",
            "free some space on that file system, or give /var/lib/grapnel one of its own",
        )


def _free_bytes(place: Path) -> int:
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def failed(error: SourceError) -> StageError:
    """Return the error of a source as one of staging."""
    return failure(error.code, str(error), error.remedy)


def versions_of(host: Host, manager: PackageManager, files: Iterable[str]) -> Mapping[tuple[str, str], str]:
    """Return package files by name and version; raises `StageError` for one that is none."""
    try:
        return {described: file for file, described in manager.describe(host, tuple(files)).items()}
    except PackageError as error:
        raise failure("damaged-package", str(error), "remove the file and stage again") from error
