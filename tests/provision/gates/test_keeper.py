"""Gates are asked beside the rollout, which never waits for them."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

import pytest

from provision.rollout.gates import GateKeeper, ask_once
from provision.rollout.gates.prometheus import Samples, UnansweredError
from tests.provision.gates.samples import gate

if TYPE_CHECKING:
    from provision.declaration.spec.model import QueryGate

DEADLINE_S = 60.0


class Told:
    """A monitoring system whose answers a test gives, one at a time."""

    def __init__(self) -> None:
        self.answers: queue.Queue[Samples | Exception] = queue.Queue()
        self.asked = threading.Semaphore(0)

    def ask(self, gate: QueryGate) -> Samples:
        assert gate.name
        self.asked.release()
        answer = self.answers.get(timeout=DEADLINE_S)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def answer(self, answer: Samples | Exception) -> None:
        """Give an answer, and return when it has been taken: the next one is asked for."""
        self.answers.put(answer)
        assert self.asked.acquire(timeout=DEADLINE_S)


@pytest.fixture
def told() -> Told:
    return Told()


def test_answers_are_taken_over_while_the_rollout_goes_on(told: Told) -> None:
    with GateKeeper([gate()], ask=told.ask, interval_s=0) as keeper:
        assert told.asked.acquire(timeout=DEADLINE_S)
        assert not keeper.states()[0].is_answered  # a question is on its way, and nobody waits for it
        told.answer(Samples(0))
        assert keeper.states()[0].is_open
        told.answer(Samples(1, ("GpuLost",)))
        assert keeper.states()[0].reason == "its query returns GpuLost: waits until it returns nothing"
        told.answer(UnansweredError("connection refused"))
        assert not keeper.states()[0].is_open
        told.answer(RuntimeError("a bug"))
        told.answer(Samples(0))
        assert keeper.states()[0].is_open
        assert keeper.states()[0].open_since is not None
    told.answers.put(Samples(0))


def test_gates_do_not_wait_for_each_other(told: Told) -> None:
    quick = threading.Event()

    def ask(gate: QueryGate) -> Samples:
        if gate.name == "slow":
            return told.ask(gate)
        quick.set()
        return Samples(0)

    with GateKeeper([gate(name="slow"), gate(name="quick")], ask=ask, interval_s=0) as keeper:
        assert quick.wait(DEADLINE_S)
        assert told.asked.acquire(timeout=DEADLINE_S)
        assert [state.name for state in keeper.states()] == ["slow", "quick"]
        assert not keeper.states()[0].is_open
    told.answers.put(Samples(0))


def test_a_plan_asks_each_once() -> None:
    def ask(gate: QueryGate) -> Samples:
        if gate.name == "gone":
            raise UnansweredError("connection refused")
        return Samples(0)

    states = ask_once([gate(), gate(name="gone")], ask=ask)
    assert [state.is_open for state in states] == [True, False]
    assert states[1].reason == "no answer yet of http://127.0.0.1:9 (connection refused)"
