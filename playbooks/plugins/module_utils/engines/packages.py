"""Installs the package of an engine with the machine's package manager, or exchanges it for another version.

What it comes to is asked first, and nothing of others may go for it. Its files are downloaded and their signatures
checked, the transaction is rehearsed with just these, and then carried out. The files of what is exchanged are
downloaded before, so that an engine that does not work afterwards is given back without a network. One works that
starts containers as the former one did. Files that the controller has handed over take the place of the package
sources.

Packages are held where that is declared. What grapnel holds is among the originals, so that nothing is let go that
others hold.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.engines.handed import (
    find_kept,
    forget_kept,
    keep,
    resolve_handed,
)
from ansible_collections.grapnel.node.plugins.module_utils.engines.trial import (
    Seen,
    TrialError,
    find_lack,
    try_containers,
)
from ansible_collections.grapnel.node.plugins.module_utils.files.configuration import (
    ConfigurationError,
    Service,
    apply_changes,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import clear_restart, mark_restart, unit_state
from ansible_collections.grapnel.node.plugins.module_utils.packages.choose import find_manager
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Transaction
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Request, Resolution, SourceError
from ansible_collections.grapnel.node.plugins.module_utils.packages.sources import find_source
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import read_originals, remember_held

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host

SCRATCH = "/var/lib/grapnel/engine"
_DOWNLOAD_TIMEOUT_S = 900.0
_SYSTEMCTL_TIMEOUT_S = 120.0
_ANSWER_TIMEOUT_S = 60.0


class EnginePackageError(Exception):
    """An engine cannot be installed; the message says why and what helps, and what is there now."""


@dataclass(frozen=True)
class Arrival:
    """What installing packages comes to.

    ``wanted`` are not there yet, or not at their versions ("" for any), ``coming`` are all new ones, and ``former`` the
    versions of those that change. ``is_handed``: the files are on the machine, where the downloads say.
    """

    wanted: Mapping[str, str] = field(default_factory=dict)
    resolution: Resolution = field(default_factory=Resolution)
    is_handed: bool = False

    @property
    def coming(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, was in self.resolution.replaced.items() if not was))

    @property
    def former(self) -> dict[str, str]:
        return {name: was for name, was in self.resolution.replaced.items() if was}


def find_arrival(host: Host, versions: Mapping[str, str], handed: str = "") -> Arrival:
    """Return what comes when packages are installed; raises `EnginePackageError` where something would go.

    ``handed`` names what the controller has handed over, and no package source is asked then.
    """
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
        if handed:
            found = resolve_handed(host, manager, wanted, handed, SCRATCH)
        else:
            found = find_source(manager.name).resolve(host, Request(wanted))
        held = sorted(manager.held(host, [name for name, was in found.replaced.items() if was and name not in wanted]))
    except PackageError as error:
        raise EnginePackageError(str(error)) from error
    except SourceError as error:
        raise EnginePackageError(f"{error}: {error.remedy}") from error
    _require_none_gone(wanted, {**found.remove, **found.obsoleted})
    if held:
        raise EnginePackageError(
            f"{', '.join(wanted)} would change {', '.join(held)}, which is held, and nothing was changed: "
            "let it go first"
        )
    return Arrival(wanted, found, bool(handed))


def install(host: Host, arrival: Arrival, engine: str, unit: str, clock: Clock) -> None:
    """Install what was found, and see that an engine that ran works; raises `EnginePackageError`, OSError.

    A run that is killed is run again, and knows no way back to what was there before the first.
    """
    shutil.rmtree(host.path(SCRATCH), ignore_errors=True)
    try:
        _install(host, arrival, Service(unit, engine, True, True, _ANSWER_TIMEOUT_S), clock)
    except PackageError as error:
        raise EnginePackageError(str(error)) from error
    except SourceError as error:
        raise EnginePackageError(f"{error}: {error.remedy}") from error
    except TrialError as error:
        raise EnginePackageError(
            f"{error}; whether another version starts one could not be told, and nothing was changed: mend this first"
        ) from error
    finally:
        shutil.rmtree(host.path(SCRATCH), ignore_errors=True)
    if not arrival.is_handed:
        forget_kept(host)


def hold(host: Host, names: Collection[str]) -> None:
    """Hold packages that are installed and that nobody holds; raises `PackageError`, `OriginalsError`, OSError."""
    manager = find_manager(host)
    loose = sorted(manager.installed(host, names).keys() - manager.held(host, names)) if names else []
    if loose:
        remember_held(host, loose, held=True)
        manager.hold(host, loose)


def unhold(host: Host, names: Collection[str]) -> None:
    """Let packages go that grapnel holds, and no others; raises `PackageError`, `OriginalsError`, OSError."""
    ours = sorted({*names} & {*read_originals(host).held})
    if ours:
        manager = find_manager(host)
        manager.unhold(host, sorted(manager.held(host, ours)))
        remember_held(host, ours, held=False)


@contextmanager
def let_go(host: Host) -> Iterator[None]:
    """Have grapnel hold nothing of engines while packages are exchanged; raises `PackageError`, `OriginalsError`.

    Why an exchange failed is told, too, where they cannot be held again. A run that is killed leaves them so, and the
    next plan holds them again.
    """
    manager, ours = find_manager(host), read_originals(host).held
    held = sorted(manager.held(host, ours)) if ours else []
    manager.unhold(host, held)
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
        raise
    finally:
        try:
            hold(host, held)
        except PackageError as error:
            if failure is None:
                raise
            raise EnginePackageError(f"{failure}; {', '.join(held)} cannot be held again: {error}") from failure


def _install(host: Host, arrival: Arrival, service: Service, clock: Clock) -> None:
    manager, found = find_manager(host), arrival.resolution
    if not found.downloads:  # what a killed run has unpacked
        manager.repair(host, clock)
        return
    if arrival.is_handed:
        there = Transaction(tuple(one.uri for one in found.downloads), (), SCRATCH)
    else:
        there = _fetch(host, Request(arrival.wanted), found, "there")
    _require_none_gone(arrival.wanted, manager.rehearse(host, there).remove)
    if not (arrival.former and service.unit and unit_state(host, service.unit).is_active):
        manager.apply(host, there, clock)
    else:
        back = _way_back(host, arrival.former)
        _exchange(_Running(host, service, try_containers(host, service.engine, SCRATCH)), there, back, clock)
    if arrival.is_handed:
        keep(host, manager, there.files)


def _exchange(running: _Running, there: Transaction, back: Transaction | str, clock: Clock) -> None:
    host, manager, service = running.host, find_manager(running.host), running.service
    mark_restart(host, service.unit)  # a run that is killed leaves it to the next one
    try:
        manager.apply(host, there, clock)
        running.take_in()
    except PackageError as error:
        if error.is_unchanged:
            clear_restart(host, service.unit)
            raise
        raise EnginePackageError(_give_back(running, back, clock, str(error))) from error
    except (ConfigurationError, TrialError) as error:
        raise EnginePackageError(_give_back(running, back, clock, str(error))) from error


@dataclass(frozen=True)
class _Running:
    """An engine that runs, and what its containers had before its packages were exchanged."""

    host: Host
    service: Service
    before: Seen

    def take_in(self) -> None:
        """Restart it and see that it works as before; raises `ConfigurationError`, `TrialError`."""
        self.host.run(["systemctl", "daemon-reload"], _SYSTEMCTL_TIMEOUT_S)
        apply_changes(self.host, self.service, [], remembers=False)
        if lack := find_lack(self.before, try_containers(self.host, self.service.engine, SCRATCH)):
            raise TrialError(lack)


def _fetch(host: Host, request: Request, found: Resolution, name: str) -> Transaction:
    """Download what a request comes to; raises `SourceError`."""
    folder = f"{SCRATCH}/{name}"
    host.path(folder).mkdir(parents=True, mode=0o700)
    find_source(find_manager(host).name).fetch(host, request, found.downloads, folder, _DOWNLOAD_TIMEOUT_S)
    return Transaction(tuple(f"{folder}/{one.name}" for one in found.downloads), (), SCRATCH)


def _way_back(host: Host, former: Mapping[str, str]) -> Transaction | str:
    """Return what leads back to the packages that are there, or why nothing does."""
    if not former:
        return "nothing of the engine was there before"
    manager = find_manager(host)
    if kept := find_kept(host, manager, former):
        return Transaction(kept, (), SCRATCH)
    request = Request(former, again=True)
    try:
        found = find_source(manager.name).resolve(host, request)
        return _fetch(host, request, found, "back")
    except SourceError as error:
        return str(error)


def _give_back(running: _Running, back: Transaction | str, clock: Clock, failure: str) -> str:
    """Install the former packages again and return what became of the engine."""
    if isinstance(back, str):
        return f"{failure}; its former packages cannot be had: {back}"
    try:
        find_manager(running.host).apply(running.host, back, clock)
        running.take_in()
    except (PackageError, ConfigurationError, TrialError) as error:
        return f"{failure}; with its former packages: {error}"
    return f"{failure}; its former packages were put back, and {running.service.unit} works with them"


def _require_none_gone(wanted: Iterable[str], gone: Iterable[str]) -> None:
    if gone := sorted(gone):
        raise EnginePackageError(
            f"{', '.join(wanted)} would take {printable(', '.join(gone))} off this machine, and nothing was changed: "
            "remove these first if nothing runs with them, or declare another runtime.source"
        )
