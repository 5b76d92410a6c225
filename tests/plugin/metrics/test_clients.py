"""Who has to go when there is no room."""

from __future__ import annotations

import pytest

from plugin.publication.metrics.serving.clients import Clients, network_of


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
