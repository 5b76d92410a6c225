"""Installs the package of an engine with the machine's package manager, and nothing that takes others away.

What it comes to is asked first. Its files are downloaded and their signatures checked, the transaction is rehearsed
with just these, and then carried out.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable
from ansible_collections.grapnel.node.plugins.module_utils.packages.choose import find_manager
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Transaction
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import Request, Resolution, SourceError
from ansible_collections.grapnel.node.plugins.module_utils.packages.sources import find_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host

SCRATCH = "/var/lib/grapnel/engine"
_DOWNLOAD_TIMEOUT_S = 900.0


class EnginePackageError(Exception):
    """An engine cannot be installed; the message says why and what helps."""


@dataclass(frozen=True)
class Arrival:
    """What installing packages comes to; ``wanted`` are not there to the end yet, ``coming`` are all new ones."""

    wanted: tuple[str, ...] = ()
    coming: tuple[str, ...] = ()
    resolution: Resolution = field(default_factory=Resolution)


def find_arrival(host: Host, names: Sequence[str]) -> Arrival:
    """Return what comes when packages are installed; raises `EnginePackageError` where something would go."""
    try:
        manager = find_manager(host)
        installed = manager.installed(host, names)
        wanted = tuple(name for name in names if name not in installed or not installed[name].is_whole)
        if not wanted:
            return Arrival()
        found = find_source(manager.name).resolve(host, _request(wanted))
    except PackageError as error:
        raise EnginePackageError(str(error)) from error
    except SourceError as error:
        raise EnginePackageError(f"{error}: {error.remedy}") from error
    _require_none_gone(wanted, {**found.remove, **found.obsoleted})
    return Arrival(wanted, tuple(sorted(name for name, was in found.replaced.items() if not was)), found)


def install(host: Host, arrival: Arrival, clock: Clock) -> None:
    """Install what was found; raises `EnginePackageError`, OSError. A run that is killed is run again."""
    place = host.path(SCRATCH)
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        _install(host, arrival, clock)
    except PackageError as error:
        raise EnginePackageError(str(error)) from error
    except SourceError as error:
        raise EnginePackageError(f"{error}: {error.remedy}") from error
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _install(host: Host, arrival: Arrival, clock: Clock) -> None:
    manager, downloads = find_manager(host), arrival.resolution.downloads
    if not downloads:  # what a killed run has unpacked
        manager.repair(host, clock)
        return
    find_source(manager.name).fetch(host, _request(arrival.wanted), downloads, SCRATCH, _DOWNLOAD_TIMEOUT_S)
    transaction = Transaction(tuple(f"{SCRATCH}/{one.name}" for one in downloads), (), SCRATCH)
    _require_none_gone(arrival.wanted, manager.rehearse(host, transaction).remove)
    manager.apply(host, transaction, clock)


def _request(names: Iterable[str]) -> Request:
    return Request(dict.fromkeys(names, ""))


def _require_none_gone(wanted: Iterable[str], gone: Iterable[str]) -> None:
    if gone := sorted(gone):
        raise EnginePackageError(
            f"{', '.join(wanted)} would take {printable(', '.join(gone))} off this machine, and nothing was changed: "
            "remove these first if nothing runs with them, or declare another runtime.source"
        )
