"""The controller has the lease of those who change nodes while rounds run, and lets others have it while none does."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from provision.cluster.kubernetes.lease import DURATION_S, Tenure
from provision.cluster.requests import LeasePauses
from provision.controller.rounds.work import LOOK_S, Work
from provision.rollout.errors import LeaseLostError
from tests.provision.cluster.fakes import Clock, LeaseServer


@dataclass
class Desk:
    """A lease, and a controller that may lead no more."""

    server: LeaseServer = field(default_factory=lambda: LeaseServer(Clock()))
    said: list[str] = field(default_factory=list)
    is_leading: bool = True

    def work(self) -> Work:
        return Work(
            self.server.api(),
            "controller-a",
            lead=self._lead,
            progress=str,
            say=self.said.append,
            clock=self.server.clock,
        )

    def _lead(self) -> None:
        if not self.is_leading:
            raise LeaseLostError("it leads no more")

    @property
    def holder(self) -> str:
        assert self.server.stored is not None
        return str(self.server.stored["spec"]["holderIdentity"])

    def terminal(self) -> Tenure:
        return Tenure(self.server.api(), "ada@laptop/1", clock=self.server.clock)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_it_is_taken_once_and_given_back(desk: Desk) -> None:
    work = desk.work()

    assert work.take()
    assert work.take()
    work.check()
    assert desk.holder == "controller-a"
    work.give_back()

    assert desk.holder == ""
    desk.terminal().acquire()


def test_while_somebody_else_is_at_work_nothing_begins_and_it_is_said_who(desk: Desk) -> None:
    terminal, work = desk.terminal(), desk.work()
    terminal.acquire()

    assert not work.take()
    assert work.in_the_way.startswith("ada@laptop/1 is changing nodes of cluster x since ")
    terminal.release()
    assert not work.take(), "it is asked now and then, and not at every turn"
    desk.server.clock.now += LOOK_S

    assert work.take()
    assert work.in_the_way == ""
    assert len(desk.said) == 1
    work.give_back()


def test_who_was_killed_at_a_terminal_is_waited_for_until_the_lease_has_run_out(desk: Desk) -> None:
    desk.terminal().acquire()
    work = desk.work()
    assert not work.take()
    desk.server.clock.now += DURATION_S + 2

    assert work.take()
    work.give_back()


def test_without_the_lease_and_without_leading_nothing_may_be_changed(desk: Desk) -> None:
    work = desk.work()
    with pytest.raises(LeaseLostError, match="was given back"):
        work.check()
    assert work.take()
    desk.is_leading = False

    with pytest.raises(LeaseLostError, match="it leads no more"):
        work.check()
    work.give_back()


def test_a_pause_reaches_it_with_and_without_the_lease(desk: Desk) -> None:
    place, work = LeasePauses(desk.server.api()), desk.work()
    place.pause("ada", "looking into it")
    assert work.take()
    assert is_paused(work)
    work.give_back()
    assert is_paused(work), "what was known stays known"
    place.resume()
    desk.server.clock.now += LOOK_S

    work.look()

    assert not is_paused(work)
    place.pause("ada", "again")
    work.look()
    assert not is_paused(work), "not at every turn"


def is_paused(work: Work) -> bool:
    return work.pause is not None


def test_an_api_server_that_does_not_answer_lets_nothing_begin(desk: Desk) -> None:
    work = desk.work()
    desk.server.is_down = True

    assert not work.take()
    assert "does not answer" in work.in_the_way
    work.look()
    desk.server.is_down = False
    desk.server.clock.now += LOOK_S
    assert work.take()
    work.give_back()
