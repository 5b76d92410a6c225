"""Which Node is which machine."""

from __future__ import annotations

import pytest

from provision.cluster.model import NodeProblem
from provision.cluster.names import match_nodes
from tests.provision.cluster.samples import node

NODES = [
    node("n1"),
    node("n2"),
    node("gpu-07", **{"kubernetes.io/hostname": "gpu-07.rack"}),
    node("twin-a"),
    node("twin-b"),
]
SHARED = [node("a", **{"kubernetes.io/hostname": "same"}), node("b", **{"kubernetes.io/hostname": "same"})]


@pytest.mark.parametrize(
    ("name", "hostname", "expected"),
    [
        pytest.param("n1", "", "n1", id="by its name"),
        pytest.param("N1", "", "n1", id="whatever the case"),
        pytest.param("n1", "N1", "n1", id="by name and hostname"),
        pytest.param("first", "n2", "n2", id="by its hostname alone"),
        pytest.param("seven", "GPU-07.rack", "gpu-07", id="by the hostname that the kubelet gave"),
        pytest.param("n1", "n1.example.org", "n1", id="by name when no Node has the hostname"),
    ],
)
def test_a_machine_is_found(name: str, hostname: str, expected: str) -> None:
    found = match_nodes([name], {name: hostname}, NODES, "cluster x")[name]

    assert not isinstance(found, NodeProblem)
    assert found.metadata.name == expected


@pytest.mark.parametrize(
    ("names", "hostnames", "message"),
    [
        pytest.param(["n3"], {}, "n3 is not a node of cluster x", id="unknown"),
        pytest.param(["n3"], {"n3": "db1"}, "n3 (db1) is not a node of cluster x", id="hostname unknown too"),
        pytest.param([""], {}, " is not a node of cluster x", id="a name of nothing"),
        pytest.param(
            ["n1"],
            {"n1": "n2"},
            "n1 (n2) could be several nodes of cluster x: n1, n2",
            id="name and hostname are different nodes",
        ),
        pytest.param(
            ["one"], {"one": "same"}, "one (same) could be several nodes of cluster x: a, b", id="a hostname twice"
        ),
        pytest.param(
            ["n1", "first"],
            {"first": "n1"},
            "node n1 of cluster x has several names in the inventory: first, n1",
            id="two machines for one node",
        ),
    ],
)
def test_a_machine_is_not_guessed(names: list[str], hostnames: dict[str, str], message: str) -> None:
    found = match_nodes(names, hostnames, NODES + SHARED, "cluster x")

    problems = [found[name] for name in names]
    assert all(isinstance(each, NodeProblem) and each.message == message and each.hint for each in problems)


def test_others_are_found_beside_a_problem() -> None:
    found = match_nodes(["n1", "n9"], {}, NODES, "cluster x")

    assert not isinstance(found["n1"], NodeProblem)
    assert isinstance(found["n9"], NodeProblem)
