"""Lets an engine run in virtual time: steps are the simulated fleet's, and waiting makes time pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.rollout.steps.executor import Event, StepEnded

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from provision.rollout.model import Origin, Phase
    from provision.rollout.simulate.world import World
    from provision.rollout.step import StepOutcome

RENEW_S: Final = 10.0


def nothing() -> None:
    """Do nothing."""


class VirtualExecutor:
    """One engine's executor. ``alive`` is called as time passes in which the engine waits, at least every ``RENEW_S``.

    ``undoes``: the engine returns nodes to their former driver.

    After something has happened it waits for ``batch_s`` more, so that what happens at about the same time is decided
    about at once.
    """

    def __init__(
        self,
        world: World,
        cancel: threading.Event,
        *,
        batch_s: float = 0.0,
        alive: Callable[[], None] = nothing,
        undoes: bool = False,
    ) -> None:
        self._world, self._cancel, self._batch_s, self._alive = world, cancel, batch_s, alive
        self._undoes = undoes
        self._events: list[Event] = []
        self._is_woken = False

    def start(self, node: str, phase: Phase, back: Origin | None = None) -> None:
        """Begin the step of a phase."""
        self._world.begin_step(self, node, phase, back, undoes=self._undoes)

    def ended(self, node: str, phase: Phase, outcome: StepOutcome) -> None:
        """Have the engine told, as the world tells it."""
        self._events.append(StepEnded(node, phase, outcome))

    def wait(self, timeout_s: float, least_s: float = 0.0) -> list[Event]:
        """Return what has happened, letting time pass until something has."""
        if self._cancel.is_set():
            self._world.cancel(self)
        began_s = self._world.time.now_s
        if timeout_s:
            self._let_pass(timeout_s, until_woken=True)
            batch_s = self._batch_s if self._events or self._is_woken else 0.0
            rest_s = max(batch_s, began_s + least_s - self._world.time.now_s)
            if rest_s > 0:
                self._let_pass(rest_s, until_woken=False)
        self._is_woken = False
        events, self._events = self._events, []
        return events

    def _let_pass(self, seconds: float, *, until_woken: bool) -> None:
        time = self._world.time
        end_s = time.now_s + seconds
        while not (until_woken and (self._events or self._is_woken)):
            has_happened = time.step(min(end_s, time.now_s + RENEW_S))
            self._alive()
            if not has_happened and time.now_s >= end_s:
                return

    def wake(self) -> None:
        """End a wait: something is not as it was."""
        self._is_woken = True

    def close(self) -> None:
        """Return at once: what runs belongs to the world, and an engine closes when it has nothing to wait for."""
