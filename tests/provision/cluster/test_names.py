"""Which Node is which machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.cluster.kubernetes.nodes.names import match_nodes
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.machine import Machine
from provision.rollout.interface.cluster import NodeProblem
from tests.provision.cluster.samples import node

WHERE = "cluster x"
ID1, ID2, ID7 = "1" * 32, "2" * 32, "7" * 32
NODES = [
    node("n1", "10.0.0.1", "fd00::1", machine_id=ID1),
    node("n2", "10.0.0.2", machine_id=ID2),
    node("gpu-07", "10.0.0.7", machine_id=ID7),
    node("nat-a", "192.0.2.1"),
    node("nat-b", "192.0.2.1"),
    node("silent"),
    node("clone-a", "10.0.1.1", machine_id="c" * 32),
    node("clone-b", "10.0.1.2", machine_id="c" * 32),
]


def machine(*addresses: str, hostname: str = "", machine_id: str = "") -> Machine:
    return Machine(addresses=frozenset(addresses), hostname=hostname, machine_id=machine_id)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        pytest.param("n1", machine(), "n1", id="by its name, where nothing else is known"),
        pytest.param("N1", machine(), "n1", id="whatever the case"),
        pytest.param("n1", machine("10.0.0.1"), "n1", id="by name and address"),
        pytest.param("n1", machine("fd00:0::1"), "n1", id="by name and another spelling of the address"),
        pytest.param(
            "n1", machine("10.0.0.1", hostname="n2", machine_id=ID2), "n1", id="by name and address, whatever it says"
        ),
        pytest.param("n1", machine("172.16.0.1"), "n1", id="by name, reached over a network that no Node names"),
        pytest.param(
            "n1", machine("172.16.0.1", hostname="n1.example.org", machine_id=ID1), "n1", id="by name and machine id"
        ),
        pytest.param("n1", machine("127.0.0.1"), "n1", id="by name, through a forwarded port"),
        pytest.param("silent", machine("172.16.0.9", hostname="x", machine_id=ID7), "silent", id="by name alone"),
        pytest.param("nat-b", machine("192.0.2.1"), "nat-b", id="by name, at an address that it shares"),
        pytest.param(
            "n1", machine("10.0.0.2", machine_id=ID1), "n1", id="by name and machine id, whoever claims its address"
        ),
        pytest.param("seven", machine("10.0.0.7"), "gpu-07", id="by its address"),
        pytest.param(
            "seven", machine("10.0.0.7", hostname="seven", machine_id=ID7), "gpu-07", id="by address and machine id"
        ),
        pytest.param(
            "seven",
            machine("10.0.0.7", machine_id="uninitialized"),
            "gpu-07",
            id="by address, without a machine id yet",
        ),
    ],
)
def test_a_machine_is_found(name: str, known: Machine, expected: str) -> None:
    found = match_nodes([name], {name: known}, NODES, WHERE)[name]

    assert isinstance(found, Node)
    assert found.metadata.name == expected


@pytest.mark.parametrize(
    ("name", "known", "message"),
    [
        pytest.param("n3", machine(), "n3 is not a node of cluster x", id="unknown"),
        pytest.param("", machine(), " is not a node of cluster x", id="a name of nothing"),
        pytest.param("n3", machine("10.9.9.9"), "n3 is not a node of cluster x", id="at an unknown address"),
        pytest.param("n3", machine(hostname="db1"), "n3 (db1) is not a node of cluster x", id="hostname unknown too"),
        pytest.param(
            "first",
            machine("10.9.9.9", hostname="n2", machine_id=ID2),
            "first (n2) is not a node of cluster x",
            id="that only says which Node it is",
        ),
        pytest.param(
            "n1",
            machine("10.0.0.2", hostname="n2", machine_id=ID2),
            "n1 is node n1 of cluster x by its name, and node n2 by its address 10.0.0.2",
            id="name and address are different nodes",
        ),
        pytest.param(
            "n1",
            machine("10.0.0.2", hostname="n1"),
            "n1 is node n1 of cluster x by its name, and node n2 by its address 10.0.0.2",
            id="a hostname settles nothing",
        ),
        pytest.param(
            "n1",
            machine(hostname="n2"),
            "n1 seems to be node n1 of cluster x, but calls itself n2",
            id="by name, with another node's hostname",
        ),
        pytest.param(
            "n1",
            machine("172.16.0.1", machine_id=ID2),
            f"n1 seems to be node n1 of cluster x, but has machine id {ID2}, not {ID1}",
            id="by name, with another machine id",
        ),
        pytest.param(
            "seven",
            machine("10.0.0.7", machine_id=ID2),
            f"seven seems to be node gpu-07 of cluster x, but has machine id {ID2}, not {ID7}",
            id="by address, with another machine id",
        ),
        pytest.param(
            "seven",
            machine("10.0.0.7", hostname="n2", machine_id=ID7),
            "seven seems to be node gpu-07 of cluster x, but calls itself n2",
            id="by address, with another's hostname",
        ),
        pytest.param(
            "one",
            machine("10.0.1.1", machine_id="c" * 32),
            "one seems to be node clone-a of cluster x, but has the machine id of nodes clone-a, clone-b",
            id="by address, with a machine id that two nodes have",
        ),
        pytest.param(
            "one", machine("192.0.2.1"), "one could be several nodes of cluster x: nat-a, nat-b", id="an address twice"
        ),
    ],
)
def test_a_machine_is_not_guessed(name: str, known: Machine, message: str) -> None:
    found = match_nodes([name], {name: known}, NODES, WHERE)[name]

    assert isinstance(found, NodeProblem)
    assert found.message == message
    assert found.hint


def test_two_names_for_one_node_are_both_refused() -> None:
    found = match_nodes(["n1", "first"], {"first": machine("10.0.0.1")}, NODES, WHERE)

    for each in found.values():
        assert isinstance(each, NodeProblem)
        assert each.message == "node n1 of cluster x has several names in the inventory: first, n1"


def test_a_machine_that_claims_anothers_hostname_loses_its_own_node_alone() -> None:
    liar, honest = machine(hostname="n2", machine_id=ID2), machine("10.0.0.2", hostname="n2", machine_id=ID2)

    found = match_nodes(["n1", "n2"], {"n1": liar, "n2": honest}, NODES, WHERE)

    assert isinstance(found["n1"], NodeProblem)
    assert isinstance(found["n2"], Node)


def test_a_node_that_claims_anothers_address_and_id_takes_nothing() -> None:
    thief = node("thief", "10.0.0.1", "10.0.0.2", "172.16.0.3", machine_id=ID2)
    machines = {
        "n1": machine("10.0.0.1", machine_id=ID1),
        "n2": machine("172.16.0.3", machine_id=ID2),
        "seven": machine("10.0.0.7", machine_id=ID7),
    }

    found = match_nodes(machines, machines, [thief, *NODES], WHERE)

    assert [each.metadata.name for each in found.values() if isinstance(each, Node)] == ["n1", "n2", "gpu-07"]


def test_a_node_cannot_claim_addresses_that_many_machines_have() -> None:
    thief = node("thief", "127.0.0.1", "0.0.0.0", "fe80::1", "::1")  # noqa: S104 - an address that is claimed

    found = match_nodes(["first"], {"first": machine("127.0.0.1", "fe80::1")}, [thief], WHERE)

    assert isinstance(found["first"], NodeProblem)


words = st.sampled_from(["", "n1", "n2", "N2", "gpu-07", "thief", "x"])
ids = st.sampled_from(["", ID1, ID2, ID7, "8" * 32])
anywhere = st.frozensets(st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.7", "10.0.0.8", "172.16.0.1", "192.0.2.1"]))
HONEST = {
    "n1": machine("10.0.0.1", hostname="n1", machine_id=ID1),
    "n2": machine("172.16.0.2", hostname="n2", machine_id=ID2),
    "seven": machine("10.0.0.7", hostname="seven", machine_id=ID7),
    "liar": machine("10.0.0.8", hostname="liar", machine_id="8" * 32),
}
FLEET = [*NODES[:3], node("liar", "10.0.0.8", machine_id="8" * 32)]


def names_of(found: dict[str, Node | NodeProblem]) -> dict[str, str]:
    return {name: each.metadata.name if isinstance(each, Node) else "" for name, each in found.items()}


@given(victim=st.sampled_from(sorted(HONEST)), hostname=words, machine_id=ids)
def test_what_a_machine_says_changes_no_others_match(victim: str, hostname: str, machine_id: str) -> None:
    lies = replace(HONEST[victim], hostname=hostname, machine_id=machine_id)
    before = names_of(match_nodes(HONEST, HONEST, FLEET, WHERE))
    after = names_of(match_nodes(HONEST, HONEST | {victim: lies}, FLEET, WHERE))

    assert {**after, victim: ""} == {**before, victim: ""}
    assert after[victim] in ("", before[victim]), "and wins no Node by it"


@given(addresses=anywhere, machine_id=ids, label=words, hostname=words, own_id=ids)
def test_what_a_node_says_changes_no_match_of_a_machine_that_is_named_as_its_node(
    addresses: frozenset[str], machine_id: str, label: str, hostname: str, own_id: str
) -> None:
    hostile = node("liar", *addresses, machine_id=machine_id, **{"kubernetes.io/hostname": label})
    machines = HONEST | {"liar": replace(HONEST["liar"], hostname=hostname, machine_id=own_id)}

    found = names_of(match_nodes(machines, machines, [*FLEET[:3], hostile], WHERE))

    assert (found["n1"], found["n2"]) == ("n1", "n2")
    assert found["seven"] in ("gpu-07", ""), "one that is found by its address may be in doubt, and is nobody else's"
    assert found["liar"] in ("liar", "")


def test_others_are_found_beside_a_problem() -> None:
    found = match_nodes(["n1", "n9"], {}, NODES, WHERE)

    assert not isinstance(found["n1"], NodeProblem)
    assert isinstance(found["n9"], NodeProblem)
