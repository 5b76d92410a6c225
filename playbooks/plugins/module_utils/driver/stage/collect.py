"""Collects a driver for other machines: its packages with all that they need, and built modules, as one archive.

The archive holds what a staged set holds, without a way back. It is for machines that have less than this one, so
nothing that is installed here counts as there; this machine's own driver is left alone.
"""

from __future__ import annotations

import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.change import change_id
from ansible_collections.grapnel.node.plugins.module_utils.driver.record import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import sync_folder
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.seal import seal
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage import folder as sets
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage import packages
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import (
    Cost,
    Finding,
    StageError,
    StageResult,
    failure,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules import tools
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.stage import alone, provide_modules
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.work import PackageSystem, Work
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Request, SourceError

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageOptions
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host

COLLECTED = f"{store.HOME}/collected"


def collected_archive(identifier: str) -> str:
    """Return where the archive of a change is."""
    return f"{COLLECTED}/{identifier}.tar"


def collect_change(
    host: Host, system: PackageSystem, change: DriverChange, options: StageOptions, clock: Clock
) -> StageResult:
    """Collect what a change needs; an error is in the result, and leaves no archive.

    Whoever has fetched the archive removes it; what earlier runs left is removed first.
    """
    identifier = change_id(change)
    try:
        store.open_store(host)
        with alone(host):
            sets.remove(host.path(COLLECTED))
            cost = _collect(host, system, change, options, clock)
            return StageResult(identifier, complete=True, changed=True, cost=cost)
    except StageError as error:
        found = error.finding
    except (store.StoreError, PackageError) as error:
        found = Finding("store-unusable", str(error), f"look at {store.HOME}")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        found = Finding("disk-error", f"{where}{error.strerror or error}", f"look at the disk of {store.HOME}")
    sets.remove(host.path(COLLECTED))
    return StageResult(identifier, complete=False, changed=False, findings=(found,))


def _collect(host: Host, system: PackageSystem, change: DriverChange, options: StageOptions, clock: Clock) -> Cost:
    work = _begin(host, system, change, options, clock)
    store.write_change(host, work.folder, change)
    began = clock.monotonic()
    files = _download(work)
    download_s = clock.monotonic() - began
    packages.write_headers(work, files)
    build_s, cpu_s = (0.0, 0.0) if options.without_modules else provide_modules(work, files, {})
    sets.remove(host.path(work.scratch))
    seal(host, work.folder)
    size_bytes = sets.size_bytes(host, work.folder)
    packages.require_space(host, COLLECTED, size_bytes, options.reserve_bytes)
    _pack(host, work.folder, collected_archive(change_id(change)))
    sets.remove(host.path(work.folder))
    sets.remove(host.path(f"{sets.INCOMING}/{change_id(change)}"))
    return Cost(download_s, build_s, size_bytes, cpu_s)


def _begin(host: Host, system: PackageSystem, change: DriverChange, options: StageOptions, clock: Clock) -> Work:
    folder = f"{COLLECTED}/{change_id(change)}"
    work = Work(host, system, change, options, clock, folder)
    for place in (COLLECTED, folder, work.packages, f"{folder}/{store.MODULES}", work.scratch):
        host.path(place).mkdir(mode=0o700)
    return work


def _download(work: Work) -> tuple[str, ...]:
    """Download as for a machine that has nothing of it; returns the files."""
    host, change = work.host, work.change
    given = packages.handed_packages(host, change_id(change))
    try:
        source = packages.with_given(work.system, given).source.for_any_machine(host, work.scratch)
    except SourceError as error:
        raise packages.failed(error) from error
    request = replace(packages.request_of(change), remove=())
    aside = replace(work, system=PackageSystem(work.manager, source))
    packages.download(aside, request, work.packages)
    if source is work.source:
        _add_tools(work)
    files = work.package_files()
    there = packages.versions_of(host, work.manager, files)
    missing = [f"{one.name} {one.version}" for one in change.packages if (one.name, one.version) not in there]
    if missing:
        raise failure(
            "installed-here",
            f"{work.manager.name} downloads nothing that is installed already: {', '.join(missing)}",
            "collect on a machine of the same distribution that has none of them",
        )
    return files


def _add_tools(work: Work) -> None:
    """Download what was installed here to build modules with: the driver needs it elsewhere, and counts it as there."""
    brought = work.manager.installed(work.host, tools.remembered(work.host))
    there = {name for name, _ in packages.versions_of(work.host, work.manager, work.package_files())}
    missing = {name: one.version for name, one in sorted(brought.items()) if name not in there}
    if missing:
        packages.download(work, Request(missing, again=True), work.packages)


def _pack(host: Host, folder: str, archive: str) -> None:
    """Write the archive; it has its name when it is whole."""
    place = host.path(archive)
    partial = place.with_name(f".{place.name}.new")
    with tarfile.open(partial, "w") as opened:
        for path in sorted(host.path(folder).rglob("*")):
            if path.is_file():
                opened.add(path, arcname=str(path.relative_to(host.path(folder))), recursive=False)
    partial.chmod(0o600)
    partial.replace(place)
    sync_folder(place.parent)
