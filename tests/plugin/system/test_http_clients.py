"""Who has to go when there is no room, or too much is held."""

from __future__ import annotations

import pytest

from plugin.system.http.clients import Clients, network_of


def full(*hosts: str) -> Clients[int]:
    clients: Clients[int] = Clients(len(hosts))
    for key, host in enumerate(hosts):
        assert clients.add(key, host) is None
    return clients


@pytest.mark.parametrize(
    ("hosts", "asked", "gone"),
    [
        pytest.param(["a", "a", "a"], [], 0, id="the oldest"),
        pytest.param(["a", "a", "a"], [0], 1, id="the oldest of those that have asked for nothing"),
        pytest.param(["a", "a", "a"], [0, 1, 2], 0, id="the oldest where all have asked"),
        pytest.param(["a", "b", "b"], [1, 2], 1, id="of the one that has most, although all of its have asked"),
        pytest.param(["a", "b", "c"], [0], 1, id="the oldest silent one where nobody has more than others"),
        pytest.param(["2001:db8::1", "a", "a", "2001:db8::2", "2001:db8::3"], [], 0, id="of the network that has most"),
    ],
)
def test_who_holds_most_goes_first(hosts: list[str], asked: list[int], gone: int) -> None:
    clients = full(*hosts)
    for key in asked:
        clients.asked(key)

    assert clients.add(99, "z") == gone
    assert set(clients.all()) == {*range(len(hosts)), 99} - {gone}


def test_who_went_leaves_room() -> None:
    clients = full("a", "a")
    clients.discard(0)
    clients.discard(0)

    assert clients.add(2, "a") is None
    assert len(clients) == 2


def test_a_network_is_what_one_machine_has() -> None:
    assert network_of("10.0.0.1") != network_of("10.0.0.2")
    assert network_of("2001:db8::1") == network_of("2001:db8:0:0:ffff::2")
    assert network_of("2001:db8::1") != network_of("2001:db8:0:1::1")
    assert network_of("fe80::1%eth0") == network_of("fe80::2%eth1")


def test_nobody_goes_while_there_is_room_for_bodies() -> None:
    clients: Clients[str] = Clients(2, 10)
    assert clients.hold("a", 5) == clients.hold("b", 5) == ()
    clients.discard("a")
    assert clients.hold("b", 5) == ()


def test_who_holds_most_goes_also_if_it_is_who_asks() -> None:
    clients: Clients[str] = Clients(4, 10)
    clients.add("large", "a")
    clients.hold("large", 7)
    assert clients.hold("small", 2) == ()
    assert clients.hold("small", 2) == ("large",)
    assert "large" not in clients
    assert clients.hold("new", 9) == ("new",)
    assert clients.hold("small", 6) == ()
    assert clients.hold("huge", 100) == ("huge",)


def test_as_many_go_as_it_takes() -> None:
    clients: Clients[int] = Clients(5, 10)
    for number in range(5):
        clients.hold(number, 2)
    assert clients.hold(5, 2) == (0,)
