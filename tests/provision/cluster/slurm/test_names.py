"""Which node of Slurm is which machine of the inventory."""

from __future__ import annotations

import pytest

from provision.cluster.machine import Machine
from provision.cluster.schedulers.slurm.answers import SlurmNode
from provision.cluster.schedulers.slurm.client import match_slurm_nodes
from provision.rollout.interface.cluster import NodeProblem


def node(name: str, host: str, address: str) -> SlurmNode:
    return SlurmNode(name=name, hostname=host, address=address, states=frozenset({"IDLE"}))


NODES = {
    each.name: each
    for each in (
        node("gpu01", "gpu01", "10.0.0.1"),
        node("gpu02", "rack1-2", "10.0.0.2"),
        node("gpu03", "rack1-3", "rack1-3"),
        node("a", "twin", "10.0.0.8"),
        node("b", "twin", "10.0.0.9"),
    )
}


@pytest.mark.parametrize(
    ("name", "address", "found"),
    [
        pytest.param("gpu01", "", "gpu01", id="by its NodeName"),
        pytest.param("gpu01.hpc.example.com", "", "gpu01", id="by the first label of its name"),
        pytest.param("rack1-2", "", "gpu02", id="by its NodeHostname"),
        pytest.param("compute-7", "10.0.0.2", "gpu02", id="by its address"),
        pytest.param("compute-8", "rack1-3", "gpu03", id="by a name as address"),
        pytest.param("gpu01", "192.0.2.7", "gpu01", id="reached by an address that Slurm does not know"),
        pytest.param("twin", "10.0.0.9", "b", id="several of a host name, one of the address"),
        pytest.param("twin", "", "several nodes that it may be: a, b", id="several of a host name"),
        pytest.param("gpu01", "10.0.0.2", "by its name it is node gpu01 of Slurm, by its address gpu02", id="two"),
        pytest.param("gpu09", "192.0.2.7", "no node of that name or address", id="none"),
    ],
)
def test_a_machine_is_found_by_name_and_address(name: str, address: str, found: str) -> None:
    machines = {name: Machine(addresses=frozenset({address} - {""}))}

    matched = match_slurm_nodes([name], machines, NODES, "Slurm")[name]

    assert found in matched.message if isinstance(matched, NodeProblem) else matched.name == found


def test_two_machines_are_not_one_node() -> None:
    matched = match_slurm_nodes(["gpu02", "rack1-2", "gpu01"], {}, NODES, "Slurm")

    for name in ("gpu02", "rack1-2"):
        problem = matched[name]
        assert isinstance(problem, NodeProblem)
        assert problem.message == "node gpu02 of Slurm would be gpu02 and rack1-2 of the inventory"
    assert matched["gpu01"] == NODES["gpu01"]
