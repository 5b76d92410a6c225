"""MIG devices on a real Kubernetes, by both strategies: each pod has its own, and the nodes of no other."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab import podresources
from lab.nodes import mig
from lab.nvml import models
from lab.nvml import state as nvml_state
from tests.e2e.parts import WHOLE, asks, settings, wait_allocatable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lab.nvml.machine import Gpu, Machine
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

FIRST_GPU = 16  # the minor number of the substitute for /dev/nvidia0
LOOK = """
for node in $(find /dev/nvidia[0-9]* /dev/nvidia-caps -type c 2>/dev/null); do stat -c 'node %n %t:%T' $node; done
echo looked
trap 'exit 0' TERM
while :; do sleep 3600 & wait; done
"""


@contextmanager
def cut(node: LabNode, layout: Mapping[int, Sequence[str]]) -> Iterator[None]:
    """Have GPUs cut into MIG devices, by index."""
    before = gpus(node)

    def change(machine: Machine) -> Machine:
        for gpu, profiles in layout.items():
            machine = models.with_mig(machine, gpu, list(profiles))
        return machine

    node.change_gpus(change)
    mig.show_capabilities(node.node, nvml_state.read(node.node.nvml_library))
    try:
        yield
    finally:
        node.change_gpus(lambda machine: replace(machine, gpus=before))
        mig.hide_capabilities(node.node)


def gpus(node: LabNode) -> tuple[Gpu, ...]:
    return nvml_state.read(node.node.nvml_library).gpus


def strategy(name: str) -> dict[str, object]:
    return {"version": "v1", "flags": {"migStrategy": name}}


def nodes_of(node: LabNode, uuid: str) -> dict[str, str]:
    """Return the nodes that a container with a GPU or a MIG device has to have, with their numbers."""
    for gpu in gpus(node):
        own = {f"/dev/nvidia{gpu.minor_number}": gpu.minor_number + FIRST_GPU}
        if gpu.uuid == uuid:
            return numbered(own)
        for each in gpu.migs:
            if each.uuid == uuid:
                minors = mig.capabilities(gpu.minor_number, each).values()
                return numbered({**own, **{f"{mig.FOLDER}/nvidia-cap{minor}": minor for minor in minors}})
    raise AssertionError(uuid)


def numbered(minors: Mapping[str, int]) -> dict[str, str]:
    return {path: f"{mig.MAJOR:x}:{minor:x}" for path, minor in minors.items()}


def seen(room: Room, name: str) -> dict[str, str]:
    words = (line.split() for line in room.whole_log(name).splitlines())
    return {word[1]: word[2] for word in words if word[0] == "node"}


def run_each(room: Room, node: LabNode, asked: Mapping[str, str]) -> dict[str, str]:
    """Run a pod for each resource, hold it to what it was given, and return that by the pod's name."""
    room.start(*(asks(name, node, resource, script=LOOK) for name, resource in asked.items()))
    room.wait_running(asked)
    given = {}
    for name, resource in asked.items():
        found = podresources.allocated(node.node.root, resource)
        (given[name],) = next(each.devices for each in found if (each.namespace, each.pod) == (room.name, name))
        assert seen(room, name) == nodes_of(node, given[name]), name
    assert len(set(given.values())) == len(given)
    return given


def test_mixed_pods_have_a_device_of_the_profile_that_they_asked_for(
    room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...]
) -> None:
    node = lab_nodes[0]
    layout = {0: ["3g.20gb", "2g.10gb", "1g.5gb"], 1: ["3g.20gb", "1g.5gb"]}
    asked = {"three-1": "3g.20gb", "three-2": "3g.20gb", "two": "2g.10gb", "one-1": "1g.5gb", "one-2": "1g.5gb"}
    resources = {name: f"nvidia.com/mig-{profile}" for name, profile in asked.items()}
    offered = Counter(resources.values())
    with cut(node, layout), settings(node, strategy("mixed")):
        wait_allocatable(stage, node, {**offered, WHOLE: len(node.uuids) - len(layout)})
        given = run_each(room, node, {**resources, "whole": WHOLE})
        profiles = {each.uuid: each.profile for gpu in gpus(node) for each in gpu.migs}
        assert {name: profiles[given[name]] for name in asked} == asked
        assert given["whole"] in node.uuids[len(layout) :]
        room.clear()
    wait_allocatable(stage, node, {**dict.fromkeys(offered, 0), WHOLE: len(node.uuids)})


def test_single_every_device_counts_as_a_gpu(room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...]) -> None:
    node = lab_nodes[0]
    layout = {index: ["3g.20gb", "3g.20gb"] for index in range(len(node.uuids))}
    with cut(node, layout), settings(node, strategy("single")):
        wait_allocatable(stage, node, {WHOLE: 2 * len(node.uuids)})
        run_each(room, node, {f"pod-{number}": WHOLE for number in range(3)})
        room.clear()
    wait_allocatable(stage, node, {WHOLE: len(node.uuids)})
