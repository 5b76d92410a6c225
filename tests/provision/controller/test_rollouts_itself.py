"""Rollouts of a controller in which something else happens as well: nodes leave, come back and reboot, servers end."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from lab.cluster.components import API_SERVER
from provision.controller.nodes import FAILED
from provision.controller.rounds import lane
from tests.provision.controller.fleet import NEW, OLD, World, driver

if TYPE_CHECKING:
    from tests.provision.cluster.stage import Stage

pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
AT_ONCE = {"soakMinutes": 0, "maxUnavailable": 1}


def begin(world: World, count: int) -> tuple[str, list[str]]:
    """Have a rollout stand in the first swap of a node; return that one and the others."""
    names = [world.join(driver(OLD)) for _number in range(count)]
    world.machines.stops.update(names)
    world.machines.stops_in = "apply"
    world.declare(driver={"version": NEW}, rollout=AT_ONCE)
    world.wait(lambda: bool(world.machines.stopped), "a node is being changed")
    (first,) = world.machines.stopped
    return first, [name for name in names if name != first]


def failures(world: World) -> set[str]:
    """Return the nodes whose failure an Event of the stack tells."""
    selector = f"--field-selector=reason=NodeFailed,involvedObject.name={world.pool}"
    events = world.stage.get("events", "-n", "default", selector)["items"]
    return {each["message"].partition(":")[0] for each in events}


def released(world: World, name: str) -> int:
    return world.asked("release").count(name)


def test_nodes_that_leave_in_the_middle_are_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others waited for one that was out of service as long as for one that is lost."""
    monkeypatch.setattr(lane, "GONE_S", 2.0)
    with world.controller():
        first, (second, third) = begin(world, 3)
        world.stage.kubectl("delete", "node", first, second)
        world.machines.stops.clear()
        assert world.wait_for("AsDeclared")["progress"] == "1/1"
    assert driver(NEW) in world.machines.nodes[third].packages
    assert released(world, second) == 0


def test_a_node_that_is_registered_again_in_the_middle_is_brought_to_its_declaration(world: World) -> None:
    with world.controller():
        first, (second,) = begin(world, 2)
        former = world.node(first)
        world.stage.kubectl("delete", "node", first)
        fresh = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": first, "labels": {"pool": world.pool}}}
        world.stage.kubectl("create", "-f", "-", data={**fresh, "status": former["status"]})
        world.machines.stops.clear()
        assert world.wait_for("AsDeclared")["progress"] == "2/2"
        world.wait(lambda: world.is_marked(first), "it says so")
    for name in (first, second):
        assert not world.is_out(name)
        assert driver(NEW) in world.machines.nodes[name].packages
    assert world.machines.together == set()


def test_a_node_that_reboots_in_the_middle_is_upgraded_once(world: World) -> None:
    with world.controller():
        first, (second,) = begin(world, 2)
        boot = json.dumps({"status": {"nodeInfo": {"bootID": "another"}}})
        world.stage.kubectl("patch", "node", first, "--subresource=status", "--type=merge", "-p", boot)
        world.machines.stops.clear()
        assert world.wait_for("AsDeclared")["progress"] == "2/2"
    assert (released(world, first), released(world, second)) == (1, 1)


def test_a_failed_canary_stops_the_rollout_and_goes_back(world: World) -> None:
    first, second = [world.join(driver(OLD)) for _number in range(2)]
    world.machines.nodes[first].broken = world.machines.nodes[second].broken = driver(NEW)
    waves: list[dict[str, object]] = [{"hosts": [first]}, {}]
    world.declare(driver={"version": NEW}, rollout={**AT_ONCE, "waves": waves})
    with world.controller():
        world.wait(lambda: FAILED in world.node(first)["metadata"]["annotations"], "it is known to have failed")
        world.wait(lambda: first in [each["node"] for each in world.status().get("troubles", [])], "and named")
        assert world.machines.nodes[second].packages == [driver(OLD)]
        assert released(world, second) == 0
        status = world.wait_for("Degraded")
        assert (status["nodes"]["failed"], status["nodes"]["waiting"]) == (1, 1)
        why = {each["node"]: each["message"] for each in status["troubles"]}
        assert list(why) == [first, second]
        assert why[second].startswith(f"stopped: {first} failed in swap")
        assert status["message"].startswith(f"0 of 2 nodes as declared, {first} failed: ")
        world.wait(lambda: bool(failures(world)), "an Event says so")
        assert failures(world) == {first}
        tried = released(world, first)
        world.declare(driver={"version": OLD}, rollout=AT_ONCE)  # a person takes it back
        world.wait_for("AsDeclared")
        assert not world.is_out(first)
    assert tried == 1


def test_an_api_server_that_restarts_in_the_middle_costs_the_controller_nothing(world: World, stage: Stage) -> None:
    """It ended, and what ran on nodes with it, when a watch had been broken for ten seconds; and so did who waited."""
    with world.controller(), world.controller("standby"):
        begin(world, 2)
        (server,) = [each for each in stage.control_plane.status() if each.name == API_SERVER]
        os.kill(server.pid, signal.SIGKILL)
        stage.control_plane.wait_ready()
        world.machines.stops.clear()
        world.wait_for("AsDeclared")
    assert world.machines.together == set()


def test_two_stacks_for_two_pools_go_on_beside_one_another(world: World) -> None:
    begun, waiting = world.join(driver(OLD)), World(world.stage, f"{world.pool}-b", world.machines, world.said)
    closed = {"blackouts": [{"first": "2020-01-01", "last": "2099-01-01"}]}
    other = waiting.join(driver(OLD))
    waiting.declare(driver={"version": NEW}, rollout=closed)
    with world.controller():
        waiting.wait_for("Waiting")
        world.declare(driver={"version": NEW}, rollout=AT_ONCE)
        world.wait_for("AsDeclared")
        assert waiting.status()["state"] == "Waiting"
    assert driver(NEW) in world.machines.nodes[begun].packages
    assert world.machines.nodes[other].packages == [driver(OLD)]
