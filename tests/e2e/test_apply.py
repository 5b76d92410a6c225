"""`grapnel apply` on busy nodes: without changes it does nothing, and its restarts disturb no pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.manifests import HANDLER, STAY, container, pod
from tests.e2e.stage import ENGINE
from tests.e2e.waiting import for_each
from tests.journey.conftest import fingerprint

if TYPE_CHECKING:
    from tests.e2e.api import Identity
    from tests.e2e.operator import Operator
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

DROP_INS = {"containerd": "etc/containerd/conf.d/99-nvidia.toml", "crio": "etc/crio/crio.conf.d/99-nvidia.conf"}


@pytest.fixture
def workers(room: Room, lab_nodes: tuple[LabNode, ...]) -> dict[str, dict[str, Identity]]:
    """A pod with a GPU on every node: its containers' identities, by the pod's name."""
    names = [f"worker-{node.name}" for node in lab_nodes]
    room.start(*(pod(f"worker-{node.name}", container(script=STAY, gpus=1), node=node.name) for node in lab_nodes))
    room.wait_running(names)
    return {name: room.identities(name) for name in names}


def test_a_second_apply_changes_nothing(
    workers: dict[str, dict[str, Identity]], room: Room, lab_nodes: tuple[LabNode, ...], operator: Operator
) -> None:
    before = for_each(lab_nodes, lambda node: fingerprint(node.node))

    operator.converge()

    assert for_each(lab_nodes, lambda node: fingerprint(node.node)) == before
    assert {name: room.identities(name) for name in workers} == workers


def test_an_engine_that_apply_restarts_keeps_its_pods(
    workers: dict[str, dict[str, Identity]],
    room: Room,
    stage: Stage,
    lab_nodes: tuple[LabNode, ...],
    operator: Operator,
) -> None:
    started = {node.name: node.started(ENGINE) for node in lab_nodes}
    drop_ins = {node.name: node.node.root.joinpath(DROP_INS[node.engine]) for node in lab_nodes}
    texts = {name: path.read_text() for name, path in drop_ins.items()}
    for path in drop_ins.values():
        path.unlink()

    operator.converge()

    assert {name: path.read_text() for name, path in drop_ins.items()} == texts
    for node in lab_nodes:
        assert node.started(ENGINE) != started[node.name]
        stage.wait_until_settled(node)
    ended = room.run(*(pod(f"new-{node.name}", container(gpus=1), node=node.name) for node in lab_nodes))
    assert {name: len(each.sight().uuids) for name, each in ended.items()} == dict.fromkeys(ended, 1)
    assert {name: room.identities(name) for name in workers} == workers
    assert stage.api.has_runtime_class(HANDLER)
