"""Runs the steps of nodes beside the engine, and lets it wait for what happens meanwhile.

The engine neither starts a thread nor lets time pass but through an `Executor`: with one that has a clock of its own,
the same engine runs in virtual time.
"""

from __future__ import annotations

import queue
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from provision.apply.follow import failure_of
from provision.rollout.interface.progress import RolloutProgress
from provision.rollout.step import StepOutcome

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from datetime import datetime

    from provision.rollout.model import Origin, Phase
    from provision.rollout.step import Steps


@dataclass(frozen=True, slots=True)
class StepEnded:
    """The step of a phase has come to its end."""

    node: str
    phase: Phase
    outcome: StepOutcome


Event = RolloutProgress | StepEnded


class Executor(Protocol):
    """Carries steps out while the engine goes on. Only `wake` may be called by other threads."""

    def start(self, node: str, phase: Phase, back: Origin | None = None) -> None:
        """Begin the step of a phase, or of one of the way ``back``, and return at once; its end is an event."""

    def wait(self, timeout_s: float, least_s: float = 0.0) -> list[Event]:
        """Return what has happened since the last call, in order; if nothing has, wait for it, but no longer than that.

        With 0, return at once; never before ``least_s`` have passed.
        """

    def wake(self) -> None:
        """End the wait that is under way, or the next one: there is something new to observe."""

    def close(self) -> None:
        """Return when no step runs any more."""


class ThreadExecutor:
    """Runs each step on a thread of its own, of which there are at most ``workers``; ``cancel`` ends them."""

    def __init__(self, steps: Steps, cancel: threading.Event, workers: int) -> None:
        self._steps, self._cancel = steps, cancel
        self._pool = ThreadPoolExecutor(max_workers=max(1, workers), thread_name_prefix="step")
        # Not a SimpleQueue: of CPython, its get waits for ever if its thread does not run for as long as its timeout.
        self._events: queue.Queue[Event | BaseException | None] = queue.Queue()

    def start(self, node: str, phase: Phase, back: Origin | None = None) -> None:
        """Begin the step of a phase."""
        self._pool.submit(self._run, node, phase, back)

    def wait(self, timeout_s: float, least_s: float = 0.0) -> list[Event]:
        """Return what has happened, and wait for something if nothing has; raise what ends a whole process."""
        events: list[Event] = []
        least = time.monotonic() + least_s
        try:
            event = self._events.get(timeout=timeout_s) if timeout_s else self._events.get_nowait()
            while True:
                if isinstance(event, BaseException):
                    raise event
                if event is not None:
                    events.append(event)
                left_s = least - time.monotonic()
                event = self._events.get(timeout=left_s) if left_s > 0 else self._events.get_nowait()
        except queue.Empty:
            return events

    def wake(self) -> None:
        """End a wait."""
        self._events.put(None)

    def close(self) -> None:
        """Wait for the steps that run."""
        self._pool.shutdown()

    def _run(self, node: str, phase: Phase, back: Origin | None) -> None:
        way = {} if back is None else {"back": back}
        try:
            outcome = self._steps.run(node, phase, self._events.put, self._cancel, **way)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is about this node and no other
            outcome = StepOutcome(failure=failure_of(error, f"running {phase} on {node}"))
        except BaseException as error:  # noqa: BLE001 - raised again where the engine waits
            self._events.put(error)
            return
        self._events.put(StepEnded(node, phase, outcome))


# Says how soon the engine looks again: at once after something happened, but only so often.

SOON_S: Final = 0.25
BURST: Final = 20  # turns that may follow one another at once: a node goes through all its phases without waiting


def pauses(longest_s: float) -> Iterator[float]:
    """Yield how long to wait before observing again while nothing moves: what was just started may soon be done."""
    pause_s = min(SOON_S, longest_s)
    while True:
        yield pause_s
        pause_s = min(4 * pause_s, longest_s)


class Pace:
    """Allows one turn every ``SOON_S``, or ``longest_s``, and saves up to ``BURST`` of those that were not taken."""

    def __init__(self, now: datetime, longest_s: float = SOON_S) -> None:
        self._last, self._saved, self._each_s = now, float(BURST), min(SOON_S, longest_s)

    def rest_s(self, now: datetime) -> float:
        """Count a turn; return how long the next one has to wait. A clock that was put back earns nothing."""
        earned = max(timedelta(0), now - self._last).total_seconds() / self._each_s
        self._last, self._saved = now, min(float(BURST), self._saved + earned)
        if self._saved >= 1:
            self._saved -= 1
            return 0.0
        missing, self._saved = 1 - self._saved, 0.0
        self._last = now + timedelta(seconds=missing * self._each_s)
        return missing * self._each_s
