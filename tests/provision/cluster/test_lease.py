"""Two engines are kept apart, and one that was killed does not lock itself out."""

from __future__ import annotations

import threading

import pytest

from provision.cluster.kubernetes.lease import DEADLINE_S, DURATION_S, PROGRESS, Tenure, hold, holder_now
from provision.cluster.kubernetes.permissions import LEADER_NAME
from provision.rollout.errors import HeldError, LeaseLostError, UnreachableError
from tests.provision.cluster.fakes import Clock, LeaseServer


@pytest.fixture
def server() -> LeaseServer:
    return LeaseServer(Clock())


def tenure(server: LeaseServer, holder: str) -> Tenure:
    return Tenure(server.api(), holder, clock=server.clock)


def holder_of(server: LeaseServer) -> str:
    assert server.stored is not None
    return str(server.stored["spec"]["holderIdentity"])


def test_the_first_makes_it_and_the_second_is_told_who_and_since_when(server: LeaseServer) -> None:
    with hold(tenure(server, "ada@laptop")), pytest.raises(HeldError) as raised:
        tenure(server, "bob@ci").acquire()

    assert raised.value.message == "ada@laptop is changing nodes of cluster x since 2026-11-21 09:31:40 UTC"
    assert "kube-system/grapnel-upgrade runs out within 45 s" in raised.value.hint


def test_the_next_goes_on_at_once_when_it_is_given_back(server: LeaseServer) -> None:
    with hold(tenure(server, "ada")):
        pass

    assert holder_of(server) == ""
    tenure(server, "bob").acquire()
    assert holder_of(server) == "bob"


def test_the_same_holder_takes_its_own_over_at_once(server: LeaseServer) -> None:
    tenure(server, "ada").acquire()  # and is killed

    tenure(server, "ada").acquire()

    assert server.stored is not None
    assert server.stored["spec"]["leaseTransitions"] == 0


def test_another_waits_until_it_has_run_out(server: LeaseServer) -> None:
    tenure(server, "ada").acquire()  # and is killed
    server.clock.now += DURATION_S - 2
    with pytest.raises(HeldError):
        tenure(server, "bob").acquire()
    server.clock.now += 4

    tenure(server, "bob").acquire()

    assert holder_of(server) == "bob"
    assert server.stored is not None
    assert server.stored["spec"]["leaseTransitions"] == 1


def test_of_two_that_want_it_in_the_same_moment_one_gets_it(server: LeaseServer) -> None:
    quick, slow = tenure(server, "quick"), tenure(server, "slow")
    server.before = quick.acquire

    with pytest.raises(HeldError, match="quick is changing nodes"):
        slow.acquire()


def test_who_leads_a_controller_is_told_in_other_words(server: LeaseServer) -> None:
    leading = Tenure(server.api(), "controller-a", clock=server.clock, name=LEADER_NAME)
    leading.acquire()

    with pytest.raises(HeldError) as raised:
        Tenure(server.api(), "controller-b", clock=server.clock, name=LEADER_NAME).acquire()

    assert raised.value.message.startswith("controller-a is the leading controller of cluster x since ")
    assert "kube-system/grapnel-controller runs out within 45 s" in raised.value.hint
    assert server.stored is not None
    assert server.stored["metadata"]["name"] == LEADER_NAME


def test_who_has_it_now_is_nobody_once_it_has_run_out(server: LeaseServer) -> None:
    assert holder_now(server.api()) == ""
    tenure(server, "ada").acquire()

    assert holder_now(server.api()) == "ada"
    server.clock.now += DURATION_S + 2
    assert holder_now(server.api()) == ""


def test_renewing_keeps_it(server: LeaseServer) -> None:
    mine = tenure(server, "ada")
    mine.acquire()
    for _ in range(5):
        server.clock.now += 20
        mine.renew()
        mine.check()

    with pytest.raises(HeldError):
        tenure(server, "bob").acquire()


def test_who_was_away_too_long_stops_before_another_may_start(server: LeaseServer) -> None:
    mine = tenure(server, "ada")
    mine.acquire()
    server.clock.now += DEADLINE_S + 1

    with pytest.raises(LeaseLostError, match="could not be renewed for 36 s"):
        mine.check()

    assert DEADLINE_S < DURATION_S


def test_who_comes_back_to_find_another_stops(server: LeaseServer) -> None:
    mine = tenure(server, "ada")
    mine.acquire()
    server.clock.now += DURATION_S + 2
    tenure(server, "bob").acquire()

    mine.renew()

    with pytest.raises(LeaseLostError, match="is lost: bob took it"):
        mine.check()
    mine.release()
    assert holder_of(server) == "bob"


def test_another_process_of_the_same_name_is_noticed(server: LeaseServer) -> None:
    mine = tenure(server, "ada")
    mine.acquire()
    server.clock.now += 5
    tenure(server, "ada").acquire()

    mine.renew()

    with pytest.raises(LeaseLostError, match="another process of ada took it"):
        mine.check()


def test_a_lease_that_was_deleted_is_made_again(server: LeaseServer) -> None:
    mine = tenure(server, "ada")
    mine.acquire()
    server.stored = None

    mine.renew()

    mine.check()
    with pytest.raises(HeldError):
        tenure(server, "bob").acquire()


def test_a_lease_that_was_deleted_belongs_to_who_is_quicker(server: LeaseServer) -> None:
    mine = tenure(server, "ada")
    mine.acquire()
    server.stored = None
    tenure(server, "bob").acquire()

    mine.renew()

    with pytest.raises(LeaseLostError, match="bob took it"):
        mine.check()


def test_a_label_that_somebody_puts_on_it_is_no_loss(server: LeaseServer) -> None:
    mine = tenure(server, "ada")
    mine.acquire()
    server.touch()

    mine.renew()
    mine.renew()

    mine.check()


def test_a_server_that_is_away_for_a_while_is_no_loss(server: LeaseServer) -> None:
    mine = tenure(server, "ada")
    mine.acquire()
    server.is_down = True
    server.clock.now += 20
    with pytest.raises(UnreachableError):
        mine.renew()
    mine.check()
    server.is_down = False

    mine.renew()
    server.clock.now += 20

    mine.check()


def test_a_server_that_is_away_at_the_end_is_left_alone(server: LeaseServer) -> None:
    with hold(tenure(server, "ada")):
        server.is_down = True

    assert holder_of(server) == "ada"


def test_a_thread_renews_it_meanwhile(server: LeaseServer) -> None:
    renewed = threading.Event()

    with hold(tenure(server, "ada"), renew_s=0.01):
        server.before = renewed.set
        assert renewed.wait(timeout=10)


def test_what_is_published_is_carried_by_what_is_written_anyhow(server: LeaseServer) -> None:
    told = iter(["", "first", "second", "last"])
    holding = Tenure(server.api(), "ada", clock=server.clock, progress=lambda: next(told))
    seen = []
    for write in (holding.acquire, holding.renew, holding.renew, holding.release):
        write()
        assert server.stored is not None
        seen.append(server.stored["metadata"].get("annotations"))

    assert seen == [None, {PROGRESS: "first"}, {PROGRESS: "second"}, {PROGRESS: "last"}]
    assert holder_of(server) == ""
    tenure(server, "bob").acquire()
    assert "annotations" not in server.stored["metadata"], "what the run before said is over"
