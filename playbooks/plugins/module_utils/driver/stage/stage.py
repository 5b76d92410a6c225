"""Stages a driver change: prepares everything on the node while it is in use, for a swap without network and compiler.

Order: packages → what dkms needs → modules → way back → rehearsal → seal. Nothing that runs is touched, and until the
seal is there nothing counts; a run that is killed anywhere is repeated, and takes up what it had downloaded.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.change import change_id
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.drift import FOUND, find_now
from ansible_collections.grapnel.node.plugins.module_utils.driver.record import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage import folder as sets
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage import packages
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.before import former_packages, keep_way_back
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.check import (
    FINDINGS,
    check_set,
    kept_findings,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import (
    Cost,
    Finding,
    StageError,
    StageResult,
    failure,
    unreadable,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules import tools
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.provide import (
    build_missing,
    require_packaged,
    take_built,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.signers import note_signers
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.rehearse import rehearse
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.work import PackageSystem, Work
from ansible_collections.grapnel.node.plugins.module_utils.driver.transfer.built_here import OWN_BUILDS
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import HostError
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageOptions
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageManager
    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Resolution

_LOCK = f"{store.HOME}/stage.lock"


def stage_change(
    host: Host, system: PackageSystem, change: DriverChange, options: StageOptions, clock: Clock
) -> StageResult:
    """Stage a change unless it is staged already; an error is in the result, and leaves no set."""
    identifier = change_id(change)
    try:
        store.open_store(host)
        with alone(host):
            if _is_good(host, system.manager, identifier):
                return _result(host, identifier, changed=False)
            _stage(Work(host, system, change, options, clock, sets.begin(host, identifier)), identifier)
            sets.prune(host, _needed(host, identifier))
            return _result(host, identifier, changed=True)
    except StageError as error:
        found = error.finding
    except store.StoreError as error:
        found = Finding("store-unusable", str(error), f"look at {store.HOME}")
    except HostError as error:
        found = Finding("no-answer", str(error), "stage again when the node is less busy")
    except OSError as error:
        found = _disk_finding(error)
    return StageResult(identifier, complete=False, changed=False, findings=(found,))


def _disk_finding(error: OSError) -> Finding:
    where = f"{error.filename}: " if error.filename else ""
    said = f"{where}{error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Finding("no-space", said, f"make room on the file system of {store.HOME}, then stage again")
    return Finding("disk-error", said, f"look at the disk of {store.HOME}")


def _stage(work: Work, identifier: str) -> None:
    """Take the steps, in order."""
    host, folder, clock = work.host, work.folder, work.clock
    handed = packages.handed_over(host, identifier)
    store.write_change(host, folder, work.change)
    _require_readable(work)
    start = clock.monotonic()
    files, resolution = _get_packages(work, handed)
    packages.write_headers(work, files)
    download_s = clock.monotonic() - start
    names = {*work.change.names, *former_packages(work.change, resolution), *resolution.remove}
    found = _found(work, names)
    build_s, cpu_s = provide_modules(work, files, handed)
    findings = [*work.findings, *note_signers(work, files), *keep_way_back(work, resolution), *rehearse(work)]
    sets.write_json(host, f"{folder}/{FINDINGS}", [one.document() for one in findings])
    sets.write_json(host, f"{folder}/{FOUND}", found)
    sets.write_json(host, f"{folder}/{OWN_BUILDS}", sorted(work.own))
    sets.remove(host.path(work.scratch))
    cost = Cost(download_s, build_s, sets.size_bytes(host, folder), cpu_s)
    sets.write_json(host, f"{folder}/{store.COST}", cost.document())
    sets.finish(host, folder, identifier)


def _get_packages(work: Work, handed: Mapping[str, str]) -> tuple[tuple[str, ...], Resolution]:
    """Return the package files of the set, and what installing them comes to."""
    given = packages.packages_in(handed)
    if work.options.offline:
        for path in work.host.path(work.packages).iterdir():
            sets.remove(path)
        files = packages.take_over(work.host, packages.useful(work, given), work.packages)
        return files, packages.resolve_handed_over(work, files)
    request = packages.request_of(work.change)
    try:
        work = replace(work, system=packages.with_given(work.system, given))
        resolution = work.source.resolve(work.host, request)
    except SourceError as error:
        raise packages.failed(error) from error
    return packages.fetch(work, request, resolution, work.packages), resolution


def _require_readable(work: Work) -> None:
    """Raise `StageError` for a damaged database: what seems not to be installed there is not to be downloaded."""
    try:
        work.manager.require_readable(work.host)
    except PackageError as error:
        raise unreadable(error) from error
    _found(work, {*work.change.names})


def _found(work: Work, names: set[str]) -> dict[str, object]:
    try:
        return find_now(work.host, work.manager.installed, names).document()
    except PackageError as error:
        raise unreadable(error) from error


def provide_modules(work: Work, files: tuple[str, ...], handed: Mapping[str, str]) -> tuple[float, float]:
    """Provide a module for every kernel; returns the seconds that building took, and those of the processors."""
    sets.remove(work.host.path(store.BUILD))  # of a run that was killed
    if not work.change.has_module:
        return 0.0, 0.0
    if work.change.dkms is None:
        require_packaged(work, files)
        return 0.0, 0.0
    missing = take_built(work, handed)
    if not missing:
        return 0.0, 0.0
    tools.provide(work, missing)
    start, used = work.clock.monotonic(), _cpu_s()
    build_missing(work, missing, files)
    return work.clock.monotonic() - start, _cpu_s() - used


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _is_good(host: Host, manager: PackageManager, identifier: str) -> bool:
    """Tell whether a set is there that can be used as it is."""
    return store.is_complete(host, identifier) and not any(one.is_error for one in check_set(host, manager, identifier))


def _needed(host: Host, identifier: str) -> set[str]:
    """Return the sets that stay: this one, those of the node's driver and the one before, that of a run in progress."""
    run = sets.read_json(host, store.RUN)
    busy = str(run["change"]) if isinstance(run, dict) and run.get("state") == "running" and "change" in run else ""
    return {identifier, store.current_change(host) or "", store.previous_change(host) or "", busy} - {""}


def _result(host: Host, identifier: str, *, changed: bool) -> StageResult:
    said = sets.read_json(host, f"{store.staged_folder(identifier)}/{store.COST}") or {}
    cost = Cost(**{name: said[name] for name in ("download_s", "build_s", "bytes", "cpu_s") if name in said})
    return StageResult(identifier, complete=True, changed=changed, findings=kept_findings(host, identifier), cost=cost)


@contextmanager
def alone(host: Host) -> Iterator[None]:
    """Hold the lock of staging; the kernel lets go of it when the process is killed."""
    descriptor = os.open(host.path(_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise failure(
            "staging-now", "another run is staging on this node", "wait until it is through, then stage again"
        ) from None
    finally:
        os.close(descriptor)
