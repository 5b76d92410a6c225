"""What a stack's rounds are told while they run, and what that means once it is over."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from provision.controller.decision.attempts import Attempts
from provision.controller.decision.choice import choose
from provision.controller.publication.board import Board
from provision.controller.rounds import lane as lanes
from provision.controller.rounds.apply import RoundResult
from provision.controller.rounds.lane import Lane, Told
from tests.provision.controller.samples import FINGERPRINT, seen
from tests.provision.stacks.samples import stack

if TYPE_CHECKING:
    import pytest


def test_a_round_knows_that_something_else_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """It forgot failures, and wrote the labels that were declared when it began."""
    ends = threading.Event()

    def carry_out(*_args: object, **_named: object) -> RoundResult:
        ends.wait()
        return RoundResult(())

    monkeypatch.setattr(lanes, "carry_out", carry_out)
    nothing: Any = None
    lane = Lane("pool", nothing, Board(), lambda _told: None, lambda _text: None, lambda: 0.0)
    try:
        lane.offer(choose(stack(), FINGERPRINT, {"n1": seen("n1")}, Attempts(), 0.0))
        (running,) = lane._running
        assert not running.instructions.is_outdated
        lane.offer(choose(stack(generation=2), FINGERPRINT, {"n1": seen("n1")}, Attempts(), 0.0))
        assert running.instructions.is_outdated
    finally:
        ends.set()
        lane.join()


def test_what_a_round_was_to_put_back_is_wanted_again_when_the_reason_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    ends, told = threading.Event(), list[Told]()

    def carry_out(*_args: object, **_named: object) -> RoundResult:
        ends.wait()
        return RoundResult(())

    monkeypatch.setattr(lanes, "carry_out", carry_out)
    nothing: Any = None
    lane = Lane("pool", nothing, Board(), told.append, lambda _text: None, lambda: 0.0)
    order = choose(stack(), FINGERPRINT, {"n1": seen("n1"), "n2": seen("n2")}, Attempts(), 0.0)
    lane.offer(order)
    (running,) = lane._running
    mine = running.order
    try:
        assert lane.wanted_again(mine) == frozenset()
        lane.ending = "the controller is being uninstalled"
        lane.offer(order)
        assert lane.wanted_again(mine) == frozenset(), "the reason holds"
        lane.ending = ""
        lane.offer(order)
        assert lane.wanted_again(mine) == {"n1", "n2"}
    finally:
        ends.set()
        lane.join()
    assert [each.order for each in told] == [mine]
    lane.ended(told[0])
    assert lane.wanted_again(mine) == frozenset()
