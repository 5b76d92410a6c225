"""When a gate is open, and what its reason says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from provision.declaration.spec.model import Expect, Holds
from provision.rollout.gates.keeper import STALE, Heard, after_answer, after_failure, state_of, unheard
from provision.rollout.gates.prometheus import Samples
from tests.provision.gates.samples import gate

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
NOTHING = Samples(0)
FIRES = Samples(5, ("A{}", "B{}", "C{}"))
GATE = gate()


def heard(*answers: Samples | str) -> Heard:
    """Return what is known after answers, and failures, each a second after the other from noon on."""
    known = unheard(GATE)
    for number, each in enumerate(answers):
        now = NOON + number * SECOND
        known = after_failure(known, each) if isinstance(each, str) else after_answer(known, GATE, each, now)
    return known


def test_a_gate_is_closed_before_it_was_asked() -> None:
    state = state_of(unheard(GATE), GATE, NOON)
    assert (state.is_open, state.is_answered) == (False, False)
    assert state.as_reason == "gate alerts is closed: it is being asked for the first time"


def test_a_gate_that_was_never_closed_is_open_since_ever() -> None:
    state = state_of(heard(NOTHING, NOTHING), GATE, NOON)
    assert (state.is_open, state.open_since, state.reason) == (True, None, "")


def test_a_gate_says_what_closes_it_and_since_when_it_is_open_again() -> None:
    closed = state_of(heard(NOTHING, FIRES), GATE, NOON)
    assert (closed.is_open, closed.is_answered) == (False, True)
    assert closed.reason == "its query returns A{}, B{}, C{} and 2 more: waits until it returns nothing"
    again = state_of(heard(NOTHING, FIRES, NOTHING, NOTHING), GATE, NOON)
    assert (again.is_open, again.open_since) == (True, NOON + 2 * SECOND)


def test_one_failure_does_not_close_it_but_a_long_silence_does() -> None:
    known = heard(NOTHING, "connection refused")
    assert state_of(known, GATE, NOON + STALE).is_open
    late = state_of(known, GATE, NOON + STALE + SECOND)
    assert (late.is_open, late.is_answered) == (False, False)
    assert late.reason == "no answer since 2026-05-04 12:00:00 UTC of http://127.0.0.1:9 (connection refused)"


def test_a_gate_that_nobody_asks_any_more_closes() -> None:
    assert not state_of(heard(NOTHING), GATE, NOON + STALE + SECOND).is_open


def test_a_failure_before_the_first_answer_is_told() -> None:
    state = state_of(heard("connection refused"), GATE, NOON)
    assert state.reason == "no answer yet of http://127.0.0.1:9 (connection refused)"
    assert state_of(heard("connection refused", NOTHING), GATE, NOON).open_since == NOON + SECOND


def test_a_gate_that_was_silent_is_open_since_its_next_answer() -> None:
    late = NOON + STALE + 9 * SECOND
    again = state_of(after_answer(heard(NOTHING), GATE, NOTHING, late), GATE, late)
    assert (again.is_open, again.open_since) == (True, late)


def test_a_gate_may_expect_something() -> None:
    wanted = gate(expect=Expect.SOMETHING, holds=Holds.WAVES)
    some = state_of(after_answer(unheard(wanted), wanted, Samples(1, ("up",)), NOON), wanted, NOON)
    none = state_of(after_answer(unheard(wanted), wanted, NOTHING, NOON), wanted, NOON)
    assert (some.is_open, some.holds_nodes) == (True, False)
    assert (none.is_open, none.reason) == (False, "its query returns nothing: waits until it returns a sample")
