"""Kills a process on a fake machine, at any moment.

A killed process can neither run a command nor reach a file: not even in its ``finally`` clauses, as with SIGKILL.
"""

from __future__ import annotations

from pathlib import Path


class KilledError(BaseException):
    """The process ends here."""


class Killer:
    """Counts the moments in which a process could be killed, and kills it at one of them.

    Commands and events of the journal are moments; with ``files`` every use of a file is one, too.
    """

    def __init__(self, at: int = -1, *, files: bool = False) -> None:
        self.at, self.count, self.files = at, 0, files

    def moment(self) -> None:
        """Be killed here, or go on; who was killed stays so."""
        if self.count == self.at:
            raise KilledError
        self.count += 1


class MortalRoot(type(Path())):  # type: ignore[misc] # the concrete class depends on the system
    """A root whose every use is a moment; ``killer`` is set after it was made."""

    killer: Killer

    def __truediv__(self, other: str) -> Path:
        if self.killer.files or self.killer.count == self.killer.at:
            self.killer.moment()
        return Path(str(self), other)
