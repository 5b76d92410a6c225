"""Kubelet, engine and daemon restarted in every order under running pods: who has which GPU stays as it was."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from tests.e2e.manifests import STAY, container, pod
from tests.e2e.sight import UUID
from tests.e2e.stage import DAEMON, ENGINE, KUBELET
from tests.e2e.waiting import for_each, holds, wait_for
from tests.sampled import every_second

if TYPE_CHECKING:
    from tests.e2e.api import Identity
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

ORDERS = {" then ".join(order): order for order in permutations((KUBELET, ENGINE, DAEMON))}
RESIDENTS = 2
WAITING_S = 2.0


@dataclass(frozen=True)
class Residents:
    """Pods that survive all of it, and their initial state."""

    room: Room
    gpus: dict[str, frozenset[str]]
    identities: dict[str, dict[str, Identity]]

    def of(self, node: LabNode) -> list[str]:
        """Return the names of those on a node."""
        return [name for name in self.gpus if name.endswith(f"-{node.name}")]

    def free(self, node: LabNode) -> frozenset[str]:
        """Return the GPUs that nobody has."""
        return frozenset(node.uuids).difference(*(self.gpus[name] for name in self.of(node)))

    def assert_undisturbed(self, node: LabNode) -> None:
        """The same containers run, have the same GPUs in the kubelet's device manager, and can still use them."""
        for name in self.of(node):
            assert self.room.identities(name) == self.identities[name], self.room.evidence()
            assert node.given_to(self.room.name, name) == {"main": self.gpus[name]}
            listed = self.room.api.run_in(self.room.name, name, "main", ["nvidia-smi", "-L"])
            assert frozenset(UUID.findall(listed)) == self.gpus[name]


@pytest.fixture(scope="module")
def residents(shared_room: Room, lab_nodes: tuple[LabNode, ...]) -> Residents:
    """Two pods with a GPU each on every node."""
    names = {f"resident-{i}-{node.name}": node for node in lab_nodes for i in range(RESIDENTS)}
    shared_room.start(*(pod(name, container(script=STAY, gpus=1), node=node.name) for name, node in names.items()))
    shared_room.wait_running(names)
    gpus = {name: shared_room.sight(name).uuids for name in names}
    return Residents(shared_room, gpus, {name: shared_room.identities(name) for name in names})


# Each unit is the first one once, and each is restarted before and after each other one, in every run.
@pytest.mark.parametrize("order", every_second(ORDERS))
def test_restarts_change_nothing_for_running_pods(
    order: tuple[str, ...], residents: Residents, room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...]
) -> None:
    def restart(node: LabNode) -> None:
        for unit in order:
            node.unit("restart", unit)
        stage.wait_until_settled(node)

    for_each(lab_nodes, restart)

    room.start(*(pod(f"new-{node.name}", container(script=STAY, gpus=RESIDENTS), node=node.name) for node in lab_nodes))
    room.wait_running([f"new-{node.name}" for node in lab_nodes])
    for node in lab_nodes:
        residents.assert_undisturbed(node)
        assert room.sight(f"new-{node.name}").uuids == residents.free(node)
        assert node.given_to(room.name, f"new-{node.name}") == {"main": residents.free(node)}


def test_without_its_daemon_a_node_offers_nothing_until_it_is_back(
    residents: Residents, room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...]
) -> None:
    for_each(lab_nodes, lambda node: node.unit("stop", DAEMON))
    try:
        for node in lab_nodes:
            stage.wait_for_gpus(node.name, 0)
        names = [f"late-{node.name}" for node in lab_nodes]
        room.start(*(pod(f"late-{node.name}", container(gpus=1), node=node.name) for node in lab_nodes))
        assert holds(lambda: all(room.pod(name).status.phase == "Pending" for name in names), WAITING_S)
        for node in lab_nodes:
            residents.assert_undisturbed(node)
    finally:
        for_each(lab_nodes, lambda node: node.unit("start", DAEMON))

    for node in lab_nodes:
        stage.wait_until_settled(node)
        assert room.ended(f"late-{node.name}").sight().uuids < residents.free(node)
        residents.assert_undisturbed(node)


def test_a_kubelet_that_was_away_finds_its_pods_again(
    residents: Residents, stage: Stage, lab_nodes: tuple[LabNode, ...]
) -> None:
    """The daemon starts while there is no kubelet: its socket is there and answers nothing."""
    for node in lab_nodes:
        node.unit("stop", KUBELET)
        node.unit("restart", ENGINE, DAEMON)
    for node in lab_nodes:
        wait_for(f"{DAEMON} of {node.name} runs", lambda node=node: node.state(DAEMON) == "active")
        node.unit("start", KUBELET)

    for node in lab_nodes:
        stage.wait_until_settled(node)
        residents.assert_undisturbed(node)
