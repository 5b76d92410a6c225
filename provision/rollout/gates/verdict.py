"""Says whether a gate is open, from what it was last asked and when. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Expect, Holds
from provision.rollout.interface.gates import GateState

if TYPE_CHECKING:
    from datetime import datetime

    from provision.declaration.spec.model import QueryGate
    from provision.rollout.gates.prometheus import Samples

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
