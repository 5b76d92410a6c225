"""Who sees a GPU, and of the driver anything at all: exactly the container that was given one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.manifests import STAY, container, pod
from tests.e2e.visitors import ALL, ENTITLED, FORGERS, UNHANDLED, VISITORS

if TYPE_CHECKING:
    from tests.e2e.room import Room
    from tests.e2e.stage import Stage
    from tests.e2e.visits import Visits

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("title", ENTITLED)
def test_a_container_sees_the_gpus_that_it_was_given(title: str, visits: Visits) -> None:
    """With the real `nvidia-smi`. A privileged one sees every GPU of its host: that is what privileged means."""
    visitor = VISITORS[title]

    for visit in visits.of(title):
        sight = visit.sight
        assert sight.libraries, visit
        if not visitor.is_privileged:
            assert (len(sight.uuids), len(sight.gpu_nodes)) == (visitor.gpus, visitor.gpus), visit
        if sight.environment != "all":  # its author's, which comes last and counts for nothing
            assert set(sight.environment.split(",")) <= sight.uuids, visit


@pytest.mark.parametrize("title", FORGERS)
def test_a_container_that_was_given_nothing_sees_nothing(title: str, visits: Visits) -> None:
    for visit in visits.of(title):
        if VISITORS[title].is_privileged:
            assert visit.sight.has_no_driver_files, visit
        else:
            assert visit.sight.is_blind, visit


@pytest.mark.parametrize("title", UNHANDLED)
def test_without_the_runtime_class_there_is_the_device_alone(title: str, visits: Visits) -> None:
    for visit in visits.of(title):
        assert len(visit.sight.gpu_nodes) == VISITORS[title].gpus, visit
        assert visit.sight.has_no_driver_files, visit


def test_a_container_that_is_added_to_a_pod_with_a_gpu_sees_nothing(room: Room, stage: Stage) -> None:
    """Ephemeral containers (`kubectl debug`) ask for no resources, whatever their variables say."""
    names = [f"debugged-{node.name}" for node in stage.nodes]
    room.start(*(pod(f"debugged-{node.name}", container(script=STAY, gpus=1), node=node.name) for node in stage.nodes))
    room.wait_running(names)

    for name in names:
        room.api.add_container(room.name, name, container("debugger", STAY, env=ALL))

    for name in names:
        assert room.sight(name, "debugger").is_blind, name
        assert len(room.sight(name).uuids) == 1, name
