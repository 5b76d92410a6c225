"""Who has to go when there is no room, and whose time is over."""

from __future__ import annotations

import pytest

from provision.base.serving.server import Clients, network_of


def full(*hosts: str) -> Clients[int]:
    clients: Clients[int] = Clients(len(hosts))
    for number, host in enumerate(hosts):
        assert clients.add(number, host, 10.0) is None
    return clients


def test_the_oldest_goes_of_the_network_that_holds_most() -> None:
    clients = full("10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3")

    assert clients.add(9, "10.0.0.4", 10.0) == 1
    assert (1 in clients, 9 in clients, len(clients)) == (False, True, 4)


def test_who_has_asked_stays_longer() -> None:
    clients = full("10.0.0.1", "10.0.0.1", "10.0.0.1")
    clients.asked(0, None)

    assert [clients.add(number, "10.0.0.1", 10.0) for number in (7, 8)] == [1, 2]


def test_who_is_late_is_told_and_a_stream_never_is() -> None:
    clients = full("10.0.0.1", "10.0.0.2", "10.0.0.3")
    clients.asked(0, None)
    clients.asked(1, 30.0)

    assert clients.late(20.0) == [2]
    assert clients.late(40.0) == [1, 2]


def test_another_key_is_the_same_client() -> None:
    clients = full("10.0.0.1")

    assert clients.rename(0, 5)
    assert clients.late(20.0) == [5]
    assert not clients.rename(0, 6), "he had to go meanwhile"
    assert 6 not in clients


@pytest.mark.parametrize(
    ("host", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
    ],
)
def test_what_one_machine_has_at_its_disposal(host: str, other: str, *, same: bool) -> None:
    assert (network_of(host) == network_of(other)) == same
