"""Keeps what becomes of a run on the disk: its record, and its journal.

Both are written before the next step begins. After a kill, the journal says how far a run had come.
"""

from __future__ import annotations

import calendar
import contextlib
import errno
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.record import reserve
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.journal import (
    BEGIN,
    DONE,
    FAILED,
    SKIPPED,
    Event,
    Journal,
    read_journal,
    remove_old_journals,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import (
    FINISHED,
    FORWARD,
    RunRecord,
    boot_id,
    write_run,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import StepError

if TYPE_CHECKING:
    from collections.abc import Collection

    from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import Node

RUN, FINISH = "run", "finish"
_FULL = (errno.ENOSPC, errno.EDQUOT)


class RunLog:
    """Record and journal of one run."""

    def __init__(self, node: Node, record: RunRecord) -> None:
        self.record = record
        self._host, self._clock = node.host, node.clock
        self._journal = Journal(node.host, record.run, node.clock)

    def begin(self) -> None:
        """Write down that the run goes on; raises OSError."""
        self.save()
        remove_old_journals(self._host)
        self._journal.write(RUN, BEGIN, f"{self.record.verb} {self.record.change}, {self.record.direction}")

    def update(self, **values: Any) -> None:
        """Change fields of the record, which counts once it is saved."""
        self.record = replace(self.record, **values)

    def save(self) -> None:
        """Write the record, on a disk that has become full with the room that was kept for it; raises OSError."""
        try:
            write_run(self._host, self.record)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            reserve.release(self._host)
            write_run(self._host, self.record)

    def note(self, step: str, state: str, detail: str = "") -> None:
        """Write an event down; raises `StepError`. On the way back a full disk is no reason to stop half-way."""
        try:
            self._journal.write(step, state, detail)
        except OSError as error:
            if self.record.direction == FORWARD:
                raise StepError(f"the journal cannot be written: {error.strerror or error}") from error

    def note_failure(self, step: str, problem: str) -> None:
        """Write down that a step failed, if that can be: what follows from it does not depend on this."""
        with contextlib.suppress(OSError):
            self._journal.write(step, FAILED, problem)

    def end(self, state: str, step: str, reason: str) -> RunRecord:
        """Write down how the run ended, and return its record; raises OSError."""
        self.update(state=state, step=step, reason=reason)
        with contextlib.suppress(OSError):  # the record is what counts
            self._journal.write(FINISH, DONE if state == FINISHED else FAILED, reason or state)
        self.save()
        with contextlib.suppress(OSError):
            reserve.release(self._host)
        return self.record

    def has_taken(self, step: str) -> bool:
        """Tell whether the run has begun a step in either direction, before a kill perhaps."""
        return bool(self._events(step))

    def was_cut_at(self, step: str) -> bool:
        """Tell whether the way forward was killed in the middle of a step, and none back has come to it since."""
        events = self._events(step)
        return bool(events) and (events[-1]["step"], events[-1]["state"]) == (step, BEGIN)

    def may_have_changed(self, but: Collection[str]) -> bool:
        """Tell whether a step, ``but`` for some, has changed the node before a kill: the killed one counts as well."""
        states: dict[str, set[str]] = {}
        for event in read_journal(self._host, self.record.run):
            states.setdefault(str(event["step"]), set()).add(str(event["state"]))
        return any(SKIPPED not in found for step, found in states.items() if step not in {*but, RUN, FINISH})

    def elapsed_s(self, step: str) -> float:
        """Measure the time since a step first began, 0 where nothing was changed; across a reboot by the wall clock."""
        events = self._events(step)
        if not events or not self.record.changed:
            return 0.0
        begin = events[0]
        if self.record.boot == boot_id(self._host):
            return round(self._clock.monotonic() - float(begin["monotonic_s"]), 3)
        return round(max(0.0, self._clock.now() - _seconds(str(begin["time"]))), 3)

    def _events(self, step: str) -> list[Event]:
        """Return what the journal has of a step, in both directions."""
        return [event for event in read_journal(self._host, self.record.run) if event["step"].endswith(step)]


def new_name(node: Node, subject: str) -> str:
    """Return a name that no run has had: it begins with the time."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(node.clock.now()))
    name, number = f"{stamp}-{subject}", 2
    while read_journal(node.host, name):
        name, number = f"{stamp}-{subject}-{number}", number + 1
    return name


def _seconds(stamp: str) -> float:
    return float(calendar.timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")))
