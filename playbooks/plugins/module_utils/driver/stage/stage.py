"""Stages a driver change: prepares everything on the node while it is in use, so that the swap needs no network and
no compiler.

Order: packages → what dkms needs → modules → way back → rehearsal → seal. Nothing that runs is touched, and until the
seal is there nothing counts; a run that is killed anywhere is repeated, and takes up what it had downloaded.
"""

from __future__ import annotations

import fcntl
import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import change_id
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage import folder as sets
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage import packages, tools
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.before import former_packages, keep_way_back
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.check import (
    FINDINGS,
    FOUND,
    check_set,
    kept_findings,
    node_as_found,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import (
    Cost,
    Finding,
    StageError,
    StageOptions,
    StageResult,
    failure,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules import (
    build_missing,
    require_packaged,
    take_built,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.rehearse import rehearse
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.host import Clock, Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageManager
    from ansible_collections.grapnel.node.plugins.module_utils.packages.source import PackageSource, Resolution

_LOCK = f"{store.HOME}/stage.lock"


def stage_change(
    host: Host,
    manager: PackageManager,
    source: PackageSource,
    change: DriverChange,
    options: StageOptions,
    clock: Clock,
) -> StageResult:
    """Stage a change unless it is staged already; an error is in the result, and leaves no set."""
    identifier = change_id(change)
    try:
        store.open_store(host)
        with _alone(host):
            if _is_good(host, manager, identifier):
                return _result(host, identifier, changed=False)
            _stage(_Stage(host, manager, source, change, options, clock))
            sets.prune(host, _needed(host, identifier))
            return _result(host, identifier, changed=True)
    except StageError as error:
        found = error.finding
    except store.StoreError as error:
        found = Finding("store-unusable", str(error), f"look at {store.HOME}")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        found = Finding("disk-error", f"{where}{error.strerror or error}", f"look at the disk of {store.HOME}")
    return StageResult(identifier, complete=False, changed=False, findings=(found,))


class _Stage:
    """What all steps need."""

    def __init__(
        self,
        host: Host,
        manager: PackageManager,
        source: PackageSource,
        change: DriverChange,
        options: StageOptions,
        clock: Clock,
    ) -> None:
        self.host, self.manager, self.source = host, manager, source
        self.change, self.options, self.clock = change, options, clock
        self.id = change_id(change)
        self.folder = sets.begin(host, self.id)
        self.handed = packages.handed_over(host, self.id)


def _stage(stage: _Stage) -> None:
    host, folder = stage.host, stage.folder
    store.write_change(host, folder, stage.change)
    start = stage.clock.now()
    files, resolution = _get_packages(stage)
    downloaded = stage.clock.now()
    names = {*stage.change.names, *former_packages(stage.change, resolution), *resolution.remove}
    found = _found(stage, names)
    cpu_s = _provide_modules(stage, files)
    built = stage.clock.now()
    arguments = (host, stage.manager, stage.source, stage.change)
    findings = keep_way_back(*arguments, resolution, folder, stage.options)
    findings += rehearse(*arguments, folder)
    sets.write_json(host, f"{folder}/{FINDINGS}", [one.document() for one in findings])
    sets.write_json(host, f"{folder}/{FOUND}", found)
    cost = Cost(downloaded - start, built - downloaded, sets.size_bytes(host, folder), cpu_s)
    sets.write_json(host, f"{folder}/{store.COST}", cost.document())
    sets.finish(host, folder, stage.id)


def _get_packages(stage: _Stage) -> tuple[tuple[str, ...], Resolution]:
    """Return the package files of the set, and what installing them comes to."""
    host, target = stage.host, f"{stage.folder}/{store.PACKAGES}"
    given = [file for place, file in stage.handed.items() if place.startswith(f"{store.PACKAGES}/")]
    if given or stage.options.offline:
        for path in host.path(target).iterdir():
            sets.remove(path)
        files = packages.take_over(host, given, target)
        return files, packages.resolve_handed_over(host, stage.manager, stage.change, files, stage.folder)
    request = packages.request_of(stage.change)
    try:
        resolution = stage.source.resolve(host, request)
    except SourceError as error:
        raise packages.failed(error) from error
    return packages.download(host, stage.source, request, target, stage.options), resolution


def _found(stage: _Stage, names: set[str]) -> dict[str, object]:
    try:
        return node_as_found(stage.host, stage.manager, names)
    except PackageError as error:
        raise failure("packages-unreadable", str(error), "repair the package database first") from error


def _provide_modules(stage: _Stage, files: tuple[str, ...]) -> float:
    """Provide a module for every kernel; returns the seconds of processor time that building took."""
    host, change = stage.host, stage.change
    if change.dkms is None:
        require_packaged(host, stage.source, change, files)
        return 0.0
    missing = take_built(host, change, stage.folder, stage.handed)
    if not missing:
        return 0.0
    tools.provide(host, stage.manager, stage.source, missing, stage.folder, stage.options, stage.clock)
    before = _cpu_s()
    build_missing(host, stage.source, change, missing, files, stage.folder, stage.options)
    return _cpu_s() - before


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _is_good(host: Host, manager: PackageManager, identifier: str) -> bool:
    """Tell whether a set is there that can be used as it is."""
    return store.is_complete(host, identifier) and not any(one.is_error for one in check_set(host, manager, identifier))


def _needed(host: Host, identifier: str) -> set[str]:
    """Return the sets that stay: this one, the one that the node runs, and that of a run in progress."""
    run = sets.read_json(host, store.RUN)
    busy = str(run["change"]) if isinstance(run, dict) and run.get("state") == "running" and "change" in run else ""
    return {identifier, store.current_change(host) or "", busy} - {""}


def _result(host: Host, identifier: str, *, changed: bool) -> StageResult:
    said = sets.read_json(host, f"{store.staged_folder(identifier)}/{store.COST}") or {}
    cost = Cost(**{name: said[name] for name in ("download_s", "build_s", "bytes", "cpu_s") if name in said})
    return StageResult(identifier, complete=True, changed=changed, findings=kept_findings(host, identifier), cost=cost)


@contextmanager
def _alone(host: Host) -> Iterator[None]:
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
