"""Addresses of hosts, as the resolver of this machine knows them."""

from __future__ import annotations

from provision.declaration.fleet.resolve import resolve


def test_an_address_stands_for_itself() -> None:
    assert resolve(["10.0.0.1", "[FD00::1]", "fd00:0::2"]) == {
        "10.0.0.1": frozenset({"10.0.0.1"}),
        "[FD00::1]": frozenset({"fd00::1"}),
        "fd00:0::2": frozenset({"fd00::2"}),
    }


def test_a_name_has_the_addresses_that_the_resolver_knows() -> None:
    found = resolve(["localhost", "not..a..name", ""])

    assert found["localhost"] & {"127.0.0.1", "::1"}
    assert found["not..a..name"] == frozenset()
    assert "" not in found


def test_no_time_means_no_address_and_no_error() -> None:
    assert resolve(["localhost", "10.0.0.1"], timeout_s=-1)["10.0.0.1"] == frozenset({"10.0.0.1"})
