"""Asks gates again and again on threads of their own, so that no rollout waits for a monitoring system's answer."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self

from provision.rollout.gates.errors import UnansweredError
from provision.rollout.gates.prometheus import ask
from provision.rollout.gates.verdict import after_answer, after_failure, state_of, unheard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from provision.declaration.spec.model import QueryGate
    from provision.rollout.gates.prometheus import Samples
    from provision.rollout.gates.verdict import Heard
    from provision.rollout.interface.gates import GateState

    Ask = Callable[[QueryGate], Samples]
    Clock = Callable[[], datetime]

INTERVAL_S: Final = 15.0  # between two asks of a gate: as often as most alerts are evaluated, or more


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _ask(gate: QueryGate) -> Samples:
    return ask(gate)


class GateKeeper:
    """Knows the gates of a rollout while inside `with`. Threads end with it, or after the ask that they are at."""

    def __init__(
        self, gates: Sequence[QueryGate], *, ask: Ask = _ask, clock: Clock = _utc_now, interval_s: float = INTERVAL_S
    ) -> None:
        self._gates, self._ask, self._clock, self._interval_s = tuple(gates), ask, clock, interval_s
        self._heard = {gate.name: unheard(gate) for gate in self._gates}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        # They never keep a process that is to end: a gate has no state that could be lost.
        self._threads = [
            threading.Thread(target=self._keep, args=(gate,), name=f"gate {gate.name}", daemon=True)
            for gate in self._gates
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()

    def states(self) -> tuple[GateState, ...]:
        """Return what is known of each gate now."""
        with self._lock:
            heard = dict(self._heard)
        now = self._clock()
        return tuple(state_of(heard[gate.name], gate, now) for gate in self._gates)

    def _keep(self, gate: QueryGate) -> None:
        while not self._ended.is_set():
            after = _asked(gate, self._ask, self._clock)
            with self._lock:
                self._heard[gate.name] = after(self._heard[gate.name])
            self._ended.wait(self._interval_s)


def ask_once(gates: Sequence[QueryGate], *, ask: Ask = _ask, clock: Clock = _utc_now) -> tuple[GateState, ...]:
    """Return the gates as they are now, having asked each of them once."""
    return tuple(state_of(_asked(gate, ask, clock)(unheard(gate)), gate, clock()) for gate in gates)


def _asked(gate: QueryGate, ask: Ask, clock: Clock) -> Callable[[Heard], Heard]:
    """Ask, and return what that does to what was known. What goes wrong ends no thread: the gate is closed then."""
    try:
        samples = ask(gate)
    except UnansweredError as error:
        failure = str(error)
    except Exception as error:  # noqa: BLE001 - a gate that cannot be asked is closed, whatever the cause
        failure = f"asking failed: {type(error).__name__}"
    else:
        return lambda heard: after_answer(heard, gate, samples, clock())
    return lambda heard: after_failure(heard, failure)
