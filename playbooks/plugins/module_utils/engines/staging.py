"""What installing the packages of an engine comes to, and its files: downloaded or handed over, and staged.

What it comes to is asked first, and nothing of others may go for it. The files of what is exchanged are downloaded as
well, so that an engine that does not work afterwards is given back without a network. All of that can be done before
the exchange, while containers run: what is staged is used where it is what is wanted, on the node that it was staged
for. Files that the controller has handed over take the place of the package sources.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import sync_folder
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.seal import seal
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.folder import remove
from ansible_collections.grapnel.node.plugins.module_utils.engines.handed import find_kept, resolve_handed
from ansible_collections.grapnel.node.plugins.module_utils.engines.staged import (
    BACK,
    DESCRIPTION,
    HOME,
    STAGED,
    THERE,
    WORK,
    EngineSet,
    StagedError,
    read_set,
)
from ansible_collections.grapnel.node.plugins.module_utils.engines.trial import MARK, remove_trial
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable
from ansible_collections.grapnel.node.plugins.module_utils.packages.choose import find_manager
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Transaction
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import (
    Request,
    Resolution,
    SourceError,
    Step,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.sources import find_source
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import read_originals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageManager

_NEW = f"{HOME}/new"  # what is put together: renamed when it is complete
_MIB = 1024 * 1024
_RESERVE_BYTES = 512 * _MIB  # of the disk, left over for installing
_DOWNLOAD_TIMEOUT_S = 900.0


class EnginePackageError(Exception):
    """An engine cannot be installed; the message says why and what helps, and what is there now."""


@dataclass(frozen=True)
class Arrival:
    """What installing packages comes to.

    ``wanted`` are not there yet, or not at their versions ("" for any), ``coming`` are all new ones, and ``former`` the
    versions of those that change. ``staged`` is what lies on the node for it, ``unstaged`` why nothing does that can be
    used. ``is_handed``: the controller has handed the files over, and the downloads say where they are.
    """

    wanted: Mapping[str, str] = field(default_factory=dict)
    resolution: Resolution = field(default_factory=Resolution)
    staged: EngineSet | None = None
    unstaged: str = ""
    is_handed: bool = False

    @property
    def coming(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, was in self.resolution.replaced.items() if not was))

    @property
    def former(self) -> dict[str, str]:
        return {name: was for name, was in self.resolution.replaced.items() if was}


def find_arrival(host: Host, versions: Mapping[str, str], handed: str = "") -> Arrival:
    """Return what comes when packages are installed; raises `EnginePackageError` where something would go.

    With what is staged no source is asked, nor with ``handed``, the name of what the controller has handed over. What
    grapnel itself holds may change; raises `OriginalsError`.
    """
    own = read_originals(host).held
    try:
        manager = find_manager(host)
        there = manager.installed(host, list(versions)) if versions else {}
        wanted = {
            name: version
            for name, version in versions.items()
            if name not in there or not there[name].is_whole or version not in ("", there[name].version)
        }
        if not wanted:
            return Arrival()
        staged, unstaged = _find_staged(host, manager, wanted)
        if staged is not None:
            found = Resolution(replaced=staged.replaced)
        elif handed:
            found = resolve_handed(host, manager, wanted, handed, WORK)
        else:
            found = find_source(manager.name).resolve(host, Request(wanted, loose=own))
        theirs = [name for name, was in found.replaced.items() if was and name not in own]
        held = sorted(manager.held(host, theirs))
    except PackageError as error:
        raise EnginePackageError(str(error)) from error
    except SourceError as error:
        raise EnginePackageError(f"{error}: {error.remedy}") from error
    require_none_gone(wanted, {**found.remove, **found.obsoleted})
    if held:
        raise EnginePackageError(
            f"{_named(wanted)} would change {', '.join(held)}, which is held, and nothing was changed: let it go first"
        )
    is_handed = bool(handed) if staged is None else staged.is_handed
    return Arrival(wanted, found, staged, unstaged, is_handed)


def _find_staged(host: Host, manager: PackageManager, wanted: Mapping[str, str]) -> tuple[EngineSet | None, str]:
    """Return what is staged for just these packages, or why nothing of it can be used."""
    try:
        found = read_set(host, manager.installed)
    except StagedError as error:
        return None, str(error)
    if found.wanted != wanted:
        return None, f"what was staged is {_named(found.wanted)}"
    return found, ""


def stage(host: Host, arrival: Arrival) -> str:
    """Get the files for an exchange, and those that lead back, and rehearse both; nothing that is installed changes.

    Returns what is wrong with the way back, "" where nothing is. A run that is killed leaves no set, and the next one
    starts over. Raises `EnginePackageError`.
    """
    staged = arrival.staged
    if staged is None:
        clear(host)
        try:
            staged = _stage(host, arrival)
        except PackageError as error:
            raise EnginePackageError(f"{_named(arrival.wanted)} cannot be staged: {error}") from error
        except SourceError as error:
            raise EnginePackageError(f"{_named(arrival.wanted)} cannot be staged: {error}: {error.remedy}") from error
        except OSError as error:
            raise _disk_error(error) from error
        finally:
            sweep(host)
    words = f"if {_named(arrival.wanted)} does not work here, the way back is not sure: {staged.caveat}"
    return words if staged.caveat else ""


def _stage(host: Host, arrival: Arrival) -> EngineSet:
    """Put a set together in the place of whatever is staged; raises `PackageError`, `SourceError`, OSError."""
    manager, found = find_manager(host), arrival.resolution
    host.path(WORK).mkdir(parents=True, mode=0o700)
    host.path(_NEW).mkdir(mode=0o700)
    there = take(host, arrival)
    rehearsal = manager.rehearse(host, there)
    require_none_gone(arrival.wanted, rehearsal.remove)
    if other := [name for name, version in arrival.wanted.items() if rehearsal.install.get(name) != version]:
        raise EnginePackageError(f"{', '.join(other)} would not come when it is rehearsed, and nothing was changed")
    back = way_back(host, arrival.former)
    staged = EngineSet(
        arrival.wanted,
        dict(found.replaced),
        _names(there),
        () if isinstance(back, str) else _names(back),
        back if isinstance(back, str) else _rehearse_back(host, manager, there, back, arrival.former),
        arrival.is_handed,
    )
    host.path(f"{_NEW}/{DESCRIPTION}").write_text(json.dumps(staged.document(), indent=1, sort_keys=True))
    seal(host, _NEW)
    host.path(_NEW).rename(host.path(STAGED))
    sync_folder(host.path(HOME))
    return staged


def _rehearse_back(
    host: Host, manager: PackageManager, there: Transaction, back: Transaction, former: Mapping[str, str]
) -> str:
    """Return what is wrong with the way back, on the machine as it will be."""
    try:
        step, step_back = (
            Step({name: file for file, (name, _) in manager.describe(host, way.files).items()}, ())
            for way in (there, back)
        )
        installed, removed = find_source(manager.name).rehearse_return(host, step, step_back, WORK)
    except PackageError as error:
        return str(error)
    changed = sorted(removed | (installed - former.keys()))
    return f"it would change {', '.join(changed)} as well" if changed else ""


def _names(way: Transaction) -> tuple[str, ...]:
    return tuple(file.rpartition("/")[2] for file in way.files)


def clear(host: Host) -> str:
    """Remove what is staged, and what killed runs have left; return what cannot be removed, and what helps."""
    remove(host.path(STAGED))
    engine = remove_trial(host, HOME)
    sweep(host)
    return engine and (
        f"{engine} does not answer, so what a trial that was killed may have left in it (grapnel's container `trial`, "
        f"its image) cannot be removed: start {engine}, or remove {HOME} to leave it there; then try again"
    )


def take(host: Host, arrival: Arrival) -> Transaction:
    """Get the files of what comes, downloaded or handed over; raises as `_fetch` does, and OSError."""
    if not arrival.is_handed:
        request = Request(arrival.wanted, loose=read_originals(host).held)
        return _fetch(host, request, arrival.resolution, THERE)
    folder = host.path(f"{_NEW}/{THERE}")
    folder.mkdir(parents=True, mode=0o700)
    for one in arrival.resolution.downloads:
        host.path(one.uri).replace(folder / one.name)
    return Transaction(tuple(f"{_NEW}/{THERE}/{one.name}" for one in arrival.resolution.downloads), (), WORK)


def way_back(host: Host, former: Mapping[str, str]) -> Transaction | str:
    """Return what leads back to the packages that are there, or why nothing does."""
    if not former:
        return "nothing of the engine was there before"
    manager = find_manager(host)
    if kept := find_kept(host, manager, former):
        folder = host.path(f"{_NEW}/{BACK}")
        folder.mkdir(parents=True, mode=0o700)
        for file in kept:
            shutil.copyfile(host.path(file), folder / file.rpartition("/")[2])
        return Transaction(tuple(f"{_NEW}/{BACK}/{file.rpartition('/')[2]}" for file in kept), (), WORK)
    request = Request(former, again=True)
    try:
        found = find_source(manager.name).resolve(host, request)
        return _fetch(host, request, found, BACK)
    except SourceError as error:
        return str(error)


def _fetch(host: Host, request: Request, found: Resolution, name: str) -> Transaction:
    """Download what a request comes to; raises `SourceError`, and `EnginePackageError` where the disk is too full."""
    folder = f"{_NEW}/{name}"
    host.path(folder).mkdir(parents=True, mode=0o700)
    _require_space(host, found.size_bytes)
    find_source(find_manager(host).name).fetch(host, request, found.downloads, folder, _DOWNLOAD_TIMEOUT_S)
    return Transaction(tuple(f"{folder}/{one.name}" for one in found.downloads), (), WORK)


def _require_space(host: Host, size_bytes: int) -> None:
    found = os.statvfs(host.path(HOME))
    free = found.f_bavail * found.f_frsize
    if free < size_bytes + _RESERVE_BYTES:
        raise EnginePackageError(
            f"{-(-size_bytes // _MIB)} MiB of packages do not fit below {HOME}, and nothing was changed: of "
            f"{free // _MIB} MiB free, {_RESERVE_BYTES // _MIB} MiB must stay free; free some space on that file system"
        )


def _disk_error(error: OSError) -> EnginePackageError:
    where = f"{error.filename}: " if error.filename else ""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = f"make room on the file system of {HOME}" if is_full else f"look at the disk of {HOME}"
    return EnginePackageError(f"{where}{error.strerror or error}, and nothing was changed: {remedy}")


def sweep(host: Host) -> None:
    """Remove what a run leaves beside what is staged; that something may be left in an engine stays noted."""
    for name in host.names(HOME):
        if name not in (STAGED.rpartition("/")[2], MARK):
            remove(host.path(f"{HOME}/{name}"))
    if not host.names(HOME) and host.path(HOME).exists():
        host.path(HOME).rmdir()


def require_none_gone(wanted: Iterable[str], gone: Iterable[str]) -> None:
    if gone := sorted(gone):
        raise EnginePackageError(
            f"{', '.join(wanted)} would take {printable(', '.join(gone))} off this machine, and nothing was changed: "
            "remove these first if nothing runs with them, or declare another runtime.source"
        )


def _named(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}".strip() for name, version in versions.items())
