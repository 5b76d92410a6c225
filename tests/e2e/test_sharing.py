"""Which container has which GPU: exactly what the kubelet allocated, and pods without a free GPU wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.manifests import STAY, container, pod
from tests.e2e.waiting import holds, wait_for

if TYPE_CHECKING:
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

TOO_MANY = 2
WAITING_S = 2.0


def test_every_container_has_the_gpus_that_the_kubelet_gave_it(room: Room, lab_nodes: tuple[LabNode, ...]) -> None:
    for node in lab_nodes:
        one, other = (container(name, STAY, gpus=1) for name in ("one", "other"))
        room.start(pod(f"pair-{node.name}", one, other, node=node.name))
        room.start(pod(f"single-{node.name}", container("one", STAY, gpus=2), node=node.name))
    names = [f"{kind}-{node.name}" for node in lab_nodes for kind in ("pair", "single")]
    room.wait_running(names)

    for node in lab_nodes:
        seen = [
            (name, given, room.sight(name, where).uuids)
            for name in (f"pair-{node.name}", f"single-{node.name}")
            for where, given in node.given_to(room.name, name).items()
        ]
        assert [uuids for _, _, uuids in seen] == [given for _, given, _ in seen]
        assert sorted(uuid for _, _, uuids in seen for uuid in uuids) == sorted(node.uuids)


def test_init_and_app_container_share_their_gpu(room: Room, stage: Stage) -> None:
    pods = [
        pod(f"both-{node.name}", container(gpus=1), init=[container("first", gpus=1)], node=node.name)
        for node in stage.nodes
    ]

    for name, ended in room.run(*pods).items():
        first, main = ended.sight("first").uuids, ended.sight("main").uuids
        assert len(main) == 1, (name, ended.logs)
        assert first == main, (name, ended.logs)


def test_an_app_container_has_nothing_of_its_init_containers_gpu(room: Room, stage: Stage) -> None:
    pods = [
        pod(f"init-{node.name}", container(), init=[container("first", gpus=1)], node=node.name) for node in stage.nodes
    ]

    for name, ended in room.run(*pods).items():
        assert len(ended.sight("first").uuids) == 1, (name, ended.logs)
        assert ended.sight("main").is_blind, (name, ended.logs)


def test_no_two_pods_share_and_those_without_a_gpu_wait(room: Room, stage: Stage) -> None:
    offered = {node.name: stage.api.allocatable(node.name) for node in stage.nodes}
    for node, gpus in offered.items():
        room.start(*(pod(f"p{i}-{node}", container(script=STAY, gpus=1), node=node) for i in range(gpus + TOO_MANY)))

    for node, gpus in offered.items():
        crowd = Crowd(room, f"-{node}")
        crowd.wait_for(gpus)
        before = crowd.gpus()
        assert sorted(before.values()) == sorted(set(before.values())), before
        assert len(crowd.waiting()) == TOO_MANY
        assert holds(lambda crowd=crowd: len(crowd.running()) == gpus, WAITING_S)  # noqa: B023 - used at once

        gone = dict(sorted(before.items())[:TOO_MANY])
        for name in gone:
            stage.api.delete_pod(room.name, name)
        wait_for("the others run", lambda crowd=crowd: not crowd.waiting(), evidence=room.evidence)
        crowd.wait_for(gpus)
        newcomers = {name: uuid for name, uuid in crowd.gpus().items() if name not in before}
        assert sorted(newcomers.values()) == sorted(gone.values()), room.evidence()


class Crowd:
    """The pods of one node that want a GPU each."""

    def __init__(self, room: Room, suffix: str) -> None:
        self._room = room
        self._suffix = suffix

    def in_phase(self, phase: str) -> list[str]:
        """Return the names of those in a phase, without those that are leaving."""
        pods = self._room.api.pods(self._room.name)
        mine = (each for each in pods if each.metadata.name.endswith(self._suffix))
        return sorted(
            each.metadata.name
            for each in mine
            if each.status.phase == phase and each.metadata.deletion_timestamp is None
        )

    def running(self) -> list[str]:
        return self.in_phase("Running")

    def waiting(self) -> list[str]:
        return self.in_phase("Pending")

    def wait_for(self, count: int) -> None:
        wait_for(
            f"{count} pods of {self._suffix} run",
            lambda: len(self.running()) == count,
            evidence=self._room.evidence,
        )

    def gpus(self) -> dict[str, str]:
        """Return the one GPU of every pod that runs."""
        found = {}
        for name in self.running():
            (found[name],) = self._room.sight(name).uuids
        return found
