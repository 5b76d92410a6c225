"""Makes the packages of declared runfiles, each file once in a command, whatever the number of nodes that want it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.planning.planner.drivers.runfile import choose_packages
from provision.planning.supply.bundle.handover import HandedFile
from provision.planning.supply.runfile.errors import RunfileError
from provision.planning.supply.runfile.store import RunfileStore

if TYPE_CHECKING:
    from pathlib import Path

    from provision.declaration.spec.model import Driver, Runfile
    from provision.planning.driver_change import DriverChange
    from provision.planning.supply.runfile.store import Converted


@dataclass(frozen=True)
class Runfiles:
    """The runfiles of a command; what is wrong with one is found once, and said for each node."""

    cache: Path
    _known: dict[Runfile, Converted | RunfileError] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def files(self, change: DriverChange, declared: Driver) -> tuple[HandedFile, ...]:
        """Return the files that a node is handed for a change; raises `RunfileError`. May be called on any thread."""
        if declared.runfile is None:
            return ()

        converted = self._converted(declared.runfile)
        return tuple(
            HandedFile(converted.path(package), f"packages/{package.file}", package.sha256)
            for package in choose_packages(change, declared, converted)
        )

    def _converted(self, runfile: Runfile) -> Converted:
        with self._turn:
            if runfile not in self._known:
                try:
                    self._known[runfile] = RunfileStore(self.cache).convert(runfile)
                except RunfileError as error:
                    self._known[runfile] = error
            known = self._known[runfile]
        if isinstance(known, RunfileError):
            raise RunfileError(known.message, hint=known.hint)
        return known
