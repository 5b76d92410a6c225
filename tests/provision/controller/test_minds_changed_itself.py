"""Stacks that change while a node is upgraded: the table of docs/upgrade/control.md, on a real API server."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest

from provision.cluster.kubernetes.nodes.marks import UPGRADE
from provision.cluster.kubernetes.nodes.others import SKIP
from tests.provision.controller.fleet import NEW, OLD, World, driver, remove_stacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.provision.cluster.stage import Stage

pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
_NUMBERS = itertools.count(1)
NEWER = "570.10"
AT_ONCE = {"soakMinutes": 0, "maxUnavailable": 1, "drainTimeoutMinutes": 60}
STEPS = {"release": "release", "swap": "apply", "resume": "resume"}  # the playbook of each; verified by that of swap
BEFORE_SWAP = ("drain", "release")


@pytest.fixture
def world(stage: Stage) -> Iterator[World]:
    made = World(stage, f"minds-{next(_NUMBERS)}")
    yield made
    made.machines.stops.clear()
    for name in made.machines.nodes:
        stage.end_pod(f"train-{name}")
    remove_stacks(stage)


def phase_of(world: World, name: str) -> str:
    found: str = world.node(name)["metadata"].get("labels", {}).get(UPGRADE, "")
    return found


def begin(world: World, phase: str) -> tuple[str, str]:
    """Have an upgrade to NEW stand in a phase of its first node; return that one and another one that waits."""
    first, second = [world.join(driver(OLD)) for _number in range(2)]
    if phase == "drain":
        hold(world, first)
    else:
        world.machines.stops_in = STEPS[phase]
        world.machines.stops.add(first)
    world.declare(driver={"version": NEW}, rollout=AT_ONCE)
    world.wait(lambda: phase_of(world, first) == phase, f"{first} is in {phase}")
    if phase != "drain":
        world.wait(lambda: first in world.machines.stopped, f"its {phase} runs")
    return first, second


def hold(world: World, name: str) -> None:
    """Bind a pod with a GPU to a Node, which no kubelet ever ends."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"train-{name}"},
        "spec": {"nodeName": name, "containers": [{"name": "main", "image": "example.com/train", **limits}]},
    }
    world.stage.create(pod)


def go_on(world: World, name: str) -> None:
    """Let what the node waits for come to its end."""
    world.machines.stops.clear()
    world.stage.end_pod(f"train-{name}")


def is_heard(world: World) -> Callable[[], bool]:
    """Return what tells whether the controller has seen the present generation."""

    def seen() -> bool:
        found = world.stage.get("gpustack", world.pool)
        return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

    return seen


def applied(world: World, name: str) -> int:
    return world.asked("apply").count(name)


def events(world: World) -> list[str]:
    found = world.stage.get("events", "-n", "default", f"--field-selector=involvedObject.name={world.pool}")["items"]
    return [each["reason"] for each in found]


@pytest.mark.parametrize("phase", ["drain", *STEPS])
def test_the_driver_that_the_node_had_is_declared_again(world: World, phase: str) -> None:
    """It was upgraded to the one that had been withdrawn, and then taken back."""
    with world.controller():
        first, second = begin(world, phase)
        world.declare(driver={"version": OLD}, rollout=AT_ONCE)
        world.wait(is_heard(world), "it is heard")
        if phase == "drain":  # while the pod is still there
            world.wait(lambda: not world.is_out(first), "it is back in service")
        go_on(world, first)
        world.wait_for("AsDeclared")
        world.wait(lambda: world.is_marked(first), "it says so")
    assert world.machines.nodes[first].packages == world.machines.nodes[second].packages == [driver(OLD)]
    assert not world.is_out(first)
    assert applied(world, first) == {"drain": 0, "release": 0}.get(phase, 2)
    assert applied(world, second) == 0
    assert world.machines.together == set()
    assert "NodeFailed" not in events(world)


@pytest.mark.parametrize("phase", ["drain", *STEPS])
def test_another_driver_is_declared(world: World, phase: str) -> None:
    with world.controller():
        first, second = begin(world, phase)
        world.declare(driver={"version": NEWER}, rollout=AT_ONCE)
        world.wait(is_heard(world), "it is heard")
        go_on(world, first)
        world.wait_for("AsDeclared")
    for name in (first, second):
        assert world.machines.nodes[name].packages == [driver(NEWER)]
        assert not world.is_out(name)
    assert applied(world, first) == (1 if phase in BEFORE_SWAP else 2)
    assert world.machines.together == set()
    assert not {"NodeFailed", "RolloutStopped"}.intersection(events(world))
    assert not [each for each in world.said if "paused" in each], "nobody has paused anything"


@pytest.mark.parametrize("phase", ["drain", "release", "swap"])
def test_the_policy_of_the_stack_is_changed(world: World, phase: str) -> None:
    """It counted for the next node at the earliest."""
    with world.controller():
        first, second = begin(world, phase)
        world.declare(driver={"version": NEW}, rollout={**AT_ONCE, "drain": {"daemonSets": "evict"}})
        world.wait(is_heard(world), "it is heard")
        if phase == "drain":
            world.wait(lambda: "grapnel.dev/upgrade" in world.taints(first), "it counts for the node")
        go_on(world, first)
        world.wait_for("AsDeclared")
    assert [applied(world, name) for name in (first, second)] == [1, 1]
    assert world.taints(first) == []
    assert world.machines.together == set()


@pytest.mark.parametrize("phase", ["drain", *STEPS])
@pytest.mark.parametrize("how", ["deleted", "left", "skipped"])
def test_the_node_is_not_to_be_changed_any_more(world: World, phase: str, how: str) -> None:
    """It was upgraded to what nobody declared any more."""
    with world.controller():
        first, _second = begin(world, phase)
        if how == "deleted":
            world.delete()
        elif how == "left":
            world.stage.kubectl("label", "node", first, "pool=elsewhere", "--overwrite")
        else:
            world.stage.kubectl("label", "node", first, f"{SKIP}=true")
        if phase == "drain":
            world.wait(lambda: not world.is_out(first), "it is back in service, and its pod stays")
        if how == "left":
            world.wait(lambda: any("left the stack" in each for each in world.said), "it is heard")
        elif how == "deleted":
            world.wait(lambda: phase == "drain" or world.status().get("state") == "Going", "it is heard")
        go_on(world, first)
        world.wait(lambda: phase_of(world, first) in ("", "done"), "it has come to its end")
        world.wait(lambda: not world.is_out(first), "it is back in service")
        if how == "deleted":
            world.wait(lambda: not world.is_there("gpustack", world.pool), "the stack goes")
    has = OLD if phase in BEFORE_SWAP else NEW
    assert world.machines.nodes[first].packages == [driver(has)]
    assert applied(world, first) == (0 if phase in BEFORE_SWAP else 1)
    if phase == "release":
        assert [each for each in world.machines.nodes[first].verbs if each != "release"] == ["verify", "resume"]


def test_a_rollout_that_is_handed_over_has_neither_stopped_nor_ended(world: World) -> None:
    with world.controller():
        first, _second = begin(world, "swap")
        world.declare(driver={"version": NEW}, rollout={**AT_ONCE, "maxParallel": 2})
        world.wait(is_heard(world), "it is heard")
        assert world.status()["state"] == "Changing"
        message = json.dumps(world.status())
        assert "resume" not in message, message
        go_on(world, first)
        world.wait_for("AsDeclared")
        world.wait(lambda: "RolloutEnded" in events(world), "the last one ends")
    assert "RolloutStopped" not in events(world)
    assert events(world).count("RolloutEnded") == 1
    assert applied(world, first) == 1, "a step that runs is not interrupted"
