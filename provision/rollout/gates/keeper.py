"""Asks gates again and again on threads of their own, so that no rollout waits for a monitoring system's answer."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Self

from provision.declaration.spec.model import Expect, Holds
from provision.rollout.gates.prometheus import UnansweredError, ask
from provision.rollout.interface.gates import GateState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from provision.declaration.spec.model import QueryGate
    from provision.rollout.gates.prometheus import Samples

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


# Says whether a gate is open, from what it was last asked and when.

STALE: Final = timedelta(seconds=90)  # some asks may fail; what was said before that is not believed any more


@dataclass(frozen=True, slots=True)
class Heard:
    """What is known of a gate: its last answer, when that came, and why there was none since."""

    state: GateState
    answered: datetime | None = None
    failure: str = ""


def unheard(gate: QueryGate) -> Heard:
    """Return what is known of a gate that was not asked yet: it is closed."""
    holds_nodes = gate.holds is Holds.NODES
    return Heard(GateState(name=gate.name, is_open=False, reason=_ASKED, is_answered=False, holds_nodes=holds_nodes))


_ASKED: Final = "it is being asked for the first time"


def after_answer(heard: Heard, gate: QueryGate, samples: Samples, now: datetime) -> Heard:
    """Return what is known after an answer."""
    reason = _why_closed(gate, samples)
    before = _believed(heard, now)
    was_closed = not before.is_open and (heard.answered is not None or bool(heard.failure))
    state = replace(before, is_open=not reason, reason=reason, is_answered=True)
    return Heard(replace(state, open_since=now) if state.is_open and was_closed else state, now)


def after_failure(heard: Heard, failure: str) -> Heard:
    """Return what is known after an ask without an answer; the one before still counts, for a while."""
    return replace(heard, failure=failure)


def state_of(heard: Heard, gate: QueryGate, now: datetime) -> GateState:
    """Return the gate as it is to be taken now."""
    state = _believed(heard, now)
    if state is heard.state and (heard.answered is not None or not heard.failure):
        return state
    since = "yet" if heard.answered is None else f"since {heard.answered:%Y-%m-%d %H:%M:%S} UTC"
    why = f" ({heard.failure})" if heard.failure else ""
    return replace(state, reason=f"no answer {since} of {gate.prometheus}{why}")


def _believed(heard: Heard, now: datetime) -> GateState:
    if heard.answered is None or now - heard.answered <= STALE:
        return heard.state
    return replace(heard.state, is_open=False, is_answered=False)


def _why_closed(gate: QueryGate, samples: Samples) -> str:
    if gate.expect is Expect.SOMETHING:
        return "" if samples.count else "its query returns nothing: waits until it returns a sample"
    if not samples.count:
        return ""
    more = f" and {samples.count - len(samples.shown)} more" if samples.count > len(samples.shown) else ""
    return f"its query returns {', '.join(samples.shown)}{more}: waits until it returns nothing"
