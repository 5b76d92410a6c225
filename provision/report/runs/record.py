"""Writes a run down while it goes on. A disk that is full ends the record, and never the run."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Final, Protocol

from provision.apply.model import NodeFinished
from provision.base.errors import os_reason
from provision.report.runs.events import Cut, Ended, StepBegan, StepEnded, encode
from provision.report.runs.translate import Translation, node_ended, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from provision.apply.model import Assessment, Failure, NodeResult
    from provision.report.runs.events import RunEvent
    from provision.rollout.interface.progress import RolloutObserver, RolloutProgress

MAX_BYTES: Final = 64 * 1024 * 1024  # of steps; results are a few hundred bytes for each node
_DETAILS: Final = (StepBegan, StepEnded)


def utc_now() -> datetime:
    """Return this moment."""
    return datetime.now(UTC)


class Record(Protocol):
    """Takes note of a run: `RunRecord`, or `Unrecorded`."""

    def observing(self, observe: RolloutObserver) -> RolloutObserver:
        """Return an observer that notes what it hears, and then tells ``observe``."""

    def planned(self, answers: Mapping[str, Assessment | Failure]) -> None:
        """Note what is to be done."""

    def results(self, results: Iterable[NodeResult]) -> None:
        """Note how the nodes ended."""

    def declined(self) -> None:
        """Note that a person did not want it."""


class Unrecorded:
    """Takes no note."""

    def observing(self, observe: RolloutObserver) -> RolloutObserver:
        """Return the observer."""
        return observe

    def planned(self, answers: Mapping[str, Assessment | Failure]) -> None:
        """Take no note."""

    def results(self, results: Iterable[NodeResult]) -> None:
        """Take no note."""

    def declined(self) -> None:
        """Take no note."""


class RunRecord:
    """Writes events to ``file`` as they come, and keeps all but the steps in memory.

    What is kept is enough for a document where the file could not be written. Observers are called on one thread at a
    time; the lock is for the thread that ends a run.
    """

    def __init__(
        self,
        file: IO[bytes] | None,
        *,
        clock: Callable[[], datetime] = utc_now,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._file, self._clock, self._left = file, clock, max_bytes
        self._translation = Translation(clock)
        self._is_declined = False
        self._seen: dict[str, NodeResult] = {}
        self._turn = threading.Lock()
        self.kept: list[RunEvent] = []
        self.trouble = ""

    def note(self, event: RunEvent) -> None:
        """Write an event down."""
        with self._turn:
            if not isinstance(event, _DETAILS):
                self.kept.append(event)
            self._write(event)

    def _write(self, event: RunEvent) -> None:
        if self._file is None or (self._left <= 0 and isinstance(event, _DETAILS)):
            return
        line = encode(event)
        is_last = 0 < self._left <= len(line)
        self._left -= len(line)
        try:
            self._file.write(line)
            if is_last:
                self._file.write(encode(Cut(time=self._clock())))
        except OSError as error:
            self.trouble = f"the run is not written down any more: {os_reason(error)}"
            self._file = None

    def observing(self, observe: RolloutObserver) -> RolloutObserver:
        """Return an observer that notes what it hears, and then tells ``observe``."""

        def both(progress: RolloutProgress) -> None:
            if isinstance(progress, NodeFinished):
                self._seen[progress.result.node] = progress.result
            if (event := self._translation.of(progress)) is not None:
                self.note(event)
            observe(progress)

        return both

    def planned(self, answers: Mapping[str, Assessment | Failure]) -> None:
        """Note what is to be done, equal plans once."""
        for event in planned(answers, self._clock()):
            self.note(event)

    def results(self, results: Iterable[NodeResult]) -> None:
        """Note how the nodes ended, unless that was heard already; it replaces what was heard of a node before."""
        for result in results:
            if self._seen.get(result.node) != result:
                self.note(node_ended(result, self._clock()))

    def declined(self) -> None:
        """Note that a person did not want it."""
        self._is_declined = True

    def end(self, exit_code: int, *, error: str = "", hint: str = "") -> None:
        """Note how the run ended."""
        self.note(Ended(time=self._clock(), exit_code=exit_code, declined=self._is_declined, error=error, hint=hint))
