"""Kills a process on a fake machine, at any moment.

A killed process can neither run a command nor reach a file: not even in its ``finally`` clauses, as with SIGKILL.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CALLS = ("chmod", "chown", "link", "mkdir", "remove", "rename", "rmdir", "symlink", "truncate", "utime")
CHANGES = frozenset(f"os.{call}" for call in CALLS)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Changes:
    """Counts what this process changes of files."""

    def __init__(self) -> None:
        self.count = 0
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: Sequence[object]) -> None:
        if event in CHANGES or (event == "open" and isinstance(flags := arguments[2], int) and flags & WRITES):
            self.count += 1


_changes = Changes()


class KilledError(BaseException):
    """The process ends here."""


class Killer:
    """Counts the moments in which a process could be killed, and kills it at one of them.

    Commands and events of the journal are moments; with ``files`` every use of a file after a change of one is, too:
    before the next change, all that a kill leaves is the same.
    """

    def __init__(self, at: int = -1, *, files: bool = False) -> None:
        self.at, self.count, self.files = at, 0, files
        self.seen = _changes.count

    def use(self) -> None:
        """Tell of a use of a file."""
        has_changed, self.seen = self.seen != _changes.count, _changes.count
        if self.count == self.at or (self.files and has_changed):
            self.moment()

    def moment(self) -> None:
        """Be killed here, or go on; who was killed stays so."""
        if self.count == self.at:
            raise KilledError
        self.count += 1


class MortalRoot(type(Path())):  # type: ignore[misc] # the concrete class depends on the system
    """A root whose uses may be moments; ``killer`` is set after it was made."""

    killer: Killer

    def __truediv__(self, other: str) -> Path:
        self.killer.use()
        return Path(str(self), other)
