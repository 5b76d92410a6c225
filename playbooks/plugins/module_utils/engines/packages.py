"""Installs the package of an engine with the machine's package manager, or exchanges it for another version.

The signatures of its files are checked, the transaction is rehearsed with just these, and then carried out. An engine
that does not work afterwards is given back by the files of its former packages; one works that starts containers as
the former one did.

Packages are held where that is declared. What grapnel holds is among the originals, so that nothing is let go that
others hold.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.folder import remove
from ansible_collections.grapnel.node.plugins.module_utils.engines.handed import forget_kept, keep
from ansible_collections.grapnel.node.plugins.module_utils.engines.staged import HOME, STAGED, WORK
from ansible_collections.grapnel.node.plugins.module_utils.engines.staging import (
    EnginePackageError,
    require_none_gone,
    sweep,
    take,
    way_back,
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
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import clear_restart, mark_restart, unit_state
from ansible_collections.grapnel.node.plugins.module_utils.packages.choose import find_manager
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import SourceError
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import read_originals, remember_held

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.engines.staging import Arrival
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import Transaction

_SYSTEMCTL_TIMEOUT_S = 120.0
_ANSWER_TIMEOUT_S = 60.0


def install(host: Host, arrival: Arrival, engine: str, unit: str, clock: Clock) -> None:
    """Install what was found, and see that an engine that ran works; raises `EnginePackageError`, OSError.

    A run that is killed is run again, and knows no way back to what was there before the first. What was staged stays
    for another try where it failed.
    """
    sweep(host)
    try:
        _install(host, arrival, Service(unit, engine, True, True, _ANSWER_TIMEOUT_S), clock)
        remove(host.path(STAGED))
    except PackageError as error:
        raise EnginePackageError(str(error)) from error
    except SourceError as error:
        raise EnginePackageError(f"{error}: {error.remedy}") from error
    except TrialError as error:
        raise EnginePackageError(
            f"{error}; whether another version starts one could not be told, and nothing was changed: mend this first"
        ) from error
    finally:
        sweep(host)
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
    manager = find_manager(host)
    if arrival.staged is None and not arrival.resolution.downloads:  # what a killed run has unpacked
        manager.repair(host, clock)
        return
    host.path(WORK).mkdir(parents=True, exist_ok=True, mode=0o700)
    there = take(host, arrival) if arrival.staged is None else arrival.staged.way_there
    require_none_gone(arrival.wanted, manager.rehearse(host, there).remove)
    if not (arrival.former and service.unit and unit_state(host, service.unit).is_active):
        manager.apply(host, there, clock)
    else:
        back = way_back(host, arrival.former) if arrival.staged is None else arrival.staged.way_back
        _exchange(_Running(host, service, try_containers(host, service.engine, HOME)), there, back, clock)
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
    except (ConfigurationError, TrialError, OSError) as error:  # OSError: of a full disk, at any step
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
        if lack := find_lack(self.before, try_containers(self.host, self.service.engine, HOME)):
            raise TrialError(lack)


def _give_back(running: _Running, back: Transaction | str, clock: Clock, failure: str) -> str:
    """Install the former packages again and return what became of the engine."""
    if isinstance(back, str):
        return f"{failure}; its former packages cannot be had: {back}"
    try:
        find_manager(running.host).apply(running.host, back, clock)
        running.take_in()
    except (PackageError, ConfigurationError, TrialError, OSError) as error:
        return f"{failure}; with its former packages: {error}"
    return f"{failure}; its former packages were put back, and {running.service.unit} works with them"
