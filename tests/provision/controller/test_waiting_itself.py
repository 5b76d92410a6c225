"""Nodes that a round has left waiting go on as soon as what they wait for is over, on a real API server.

They were looked at again after half an hour.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from provision.cli import main
from tests.provision.controller.fleet import NEW, OLD, World, driver, remove_stacks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.provision.cluster.stage import Stage

pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
_NUMBERS = itertools.count(1)
AT_ONCE = {"soakMinutes": 0, "maxUnavailable": 1}


@pytest.fixture
def world(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    made = World(stage, f"waiting-{next(_NUMBERS)}")
    yield made
    made.machines.stops.clear()
    remove_stacks(stage)
    stage.kubectl("delete", "nodes", "-l", f"pool={made.pool}")


def tell(world: World, verb: str, *nodes: str) -> None:
    """Have a verb of grapnel say something to the controller."""
    config = str(world.stage.control_plane.kubeconfig)
    assert main([verb, *nodes, "--kubeconfig", config]) == 0


def stopped(world: World, count: int) -> tuple[str, list[str]]:
    """Have a rollout stop at its first node; return that one and the others, which wait."""
    first, *others = [world.join(driver(OLD)) for _number in range(count)]
    world.machines.nodes[first].broken = driver(NEW)
    world.declare(driver={"version": NEW}, rollout=AT_ONCE)
    nodes = world.wait_for("Degraded")["nodes"]
    world.wait(lambda: world.status()["nodes"].get("waiting") == count - 1, "the others wait")
    assert nodes["failed"] == 1
    assert all(world.machines.nodes[name].packages == [driver(OLD)] for name in others)
    return first, others


def test_a_retry_that_succeeds_lets_the_others_go_on(world: World) -> None:
    with world.controller():
        first, others = stopped(world, 3)
        looked = [world.asked("facts").count(name) for name in others]
        world.machines.nodes[first].broken = ""
        tell(world, "retry", first)
        world.wait_for("AsDeclared")
        assert [world.asked("release").count(name) for name in others] == [1, 1]
        assert looked == [1, 1]
    assert driver(NEW) in world.machines.nodes[first].packages


def test_a_retry_that_fails_again_asks_nothing_of_the_others(world: World) -> None:
    with world.controller():
        first, (second,) = stopped(world, 2)
        asked, before = len(world.machines.runs), world.status()["nodes"]
        tell(world, "retry", first)
        world.wait(lambda: world.said.count(f"{world.pool}: {first}: returned") == 2, "it fails again")
        world.wait(lambda: world.status()["nodes"] == before, "both stand as before")
        assert second not in [name for _playbook, names in world.machines.runs[asked:] for name in names]
        assert (before["failed"], before["waiting"]) == (1, 1)


def test_more_failures_that_are_allowed_let_the_others_go_on(world: World) -> None:
    with world.controller():
        _first, (second,) = stopped(world, 2)
        world.declare(driver={"version": NEW}, rollout={**AT_ONCE, "maxFailures": 1})
        world.wait(lambda: driver(NEW) in world.machines.nodes[second].packages, "the other one is upgraded")


def test_a_failed_node_that_leaves_the_cluster_holds_nobody(world: World) -> None:
    with world.controller():
        first, (second,) = stopped(world, 2)
        world.stage.kubectl("delete", "node", first)
        world.wait_for("AsDeclared")
        assert driver(NEW) in world.machines.nodes[second].packages


def test_nodes_go_on_when_it_is_resumed(world: World) -> None:
    name = world.join(driver(OLD))
    world.declare(driver={"version": OLD})
    with world.controller():
        world.wait_for("AsDeclared")
    tell(world, "pause")
    world.declare(driver={"version": NEW}, rollout=AT_ONCE)
    with world.controller("controller-b"):
        world.wait(lambda: "paused by" in world.status().get("message", ""), "it says what it waits for")
        assert world.asked("release") == []
        tell(world, "resume")
        world.wait_for("AsDeclared")
        assert world.asked("release") == [name]


def test_nodes_go_on_when_another_one_takes_pods_again(world: World) -> None:
    cordoned, other = world.join(driver(NEW)), world.join(driver(OLD))
    world.stage.kubectl("cordon", cordoned)
    world.declare(driver={"version": NEW}, rollout=AT_ONCE)
    with world.controller():
        world.wait(lambda: f"{cordoned} is cordoned" in world.status().get("message", ""), "it names what it waits for")
        assert world.asked("release") == []
        world.stage.kubectl("uncordon", cordoned)
        world.wait_for("AsDeclared")
        assert world.asked("release") == [other]


def test_an_uncordon_is_noticed_at_once_whatever_was_waited_for_before(world: World) -> None:
    """Each round before it, such as one for a stack that was changed, had doubled the time until it was noticed."""
    cordoned, other = world.join(driver(NEW)), world.join(driver(OLD))
    world.stage.kubectl("cordon", cordoned)
    with world.controller():
        for number in range(1, 5):
            world.declare(driver={"version": NEW}, rollout={**AT_ONCE, "drainTimeoutMinutes": number})
            world.wait(lambda: world.asked("facts").count(other) == number, "it is looked at again")  # noqa: B023
            world.wait(lambda: f"{cordoned} is cordoned" in world.status().get("message", ""), "it waits again")
        world.stage.kubectl("uncordon", cordoned)
        world.wait_for("AsDeclared")
        assert world.asked("release") == [other]


def test_nodes_go_on_when_one_that_was_upgraded_while_it_was_cordoned_takes_pods_again(world: World) -> None:
    cordoned, other = world.join(driver(OLD)), world.join(driver(OLD))
    world.stage.kubectl("cordon", cordoned)
    with world.controller():
        world.declare(driver={"version": NEW}, rollout=AT_ONCE)
        world.wait(lambda: f"{cordoned} is cordoned" in world.status().get("message", ""), "it names what it waits for")
        assert world.asked("release") == [cordoned]
        assert world.is_out(cordoned)
        world.stage.kubectl("uncordon", cordoned)
        world.wait_for("AsDeclared")
        assert world.asked("release") == [cordoned, other]


def test_an_uncordon_while_a_rollout_is_at_another_node_is_noticed_when_that_is_done(world: World) -> None:
    first, cordoned, last = world.join(driver(OLD)), world.join(driver(NEW)), world.join(driver(OLD))
    world.machines.stops.add(first)
    with world.controller():
        world.declare(driver={"version": NEW}, rollout=AT_ONCE)
        world.wait(lambda: first in world.machines.stopped, "it is out of service")
        world.stage.kubectl("cordon", cordoned)
        world.stage.kubectl("uncordon", cordoned)
        world.machines.stops.clear()
        world.wait_for("AsDeclared")
        assert world.asked("release") == [first, last]
