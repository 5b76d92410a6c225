"""Stacks that are deleted, broken, or lose a node in the middle of a rollout: on a real API server."""

from __future__ import annotations

import json

import pytest

from provision.cluster.kubernetes.nodes.others import SKIP
from provision.controller.decision import leaving
from provision.controller.nodes import AS_DECLARED
from provision.controller.stacks.writer import FINALIZER
from tests.provision.controller.fleet import NEW, OLD, World, driver

pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
CLOSED = [{"first": "2020-01-01", "last": "2099-01-01"}]
AT_ONCE = {"soakMinutes": 0, "maxUnavailable": 1}


def finalizers(world: World) -> list[str]:
    found: list[str] = world.stage.get("gpustack", world.pool)["metadata"].get("finalizers", [])
    return found


def begin(world: World, count: int = 2) -> tuple[str, str]:
    """Have a rollout stand in the first swap of a node; return that one and another one that waits."""
    for _number in range(count):
        name = world.join(driver(OLD))
        world.machines.stops.add(name)
    world.machines.stops_in = "apply"
    world.declare(driver={"version": NEW}, rollout=AT_ONCE)
    world.wait(lambda: bool(world.machines.stopped), "a node is being changed")
    (first,) = world.machines.stopped
    return first, next(name for name in world.machines.nodes if name != first)


def test_a_stack_that_is_deleted_in_the_middle_brings_its_node_back_and_begins_no_other(world: World) -> None:
    """Its rollout was cut off, and the node stayed out of service with nobody to bring it back."""
    with world.controller():
        first, second = begin(world)
        assert finalizers(world) == [FINALIZER]
        world.delete()
        world.wait(lambda: world.status()["state"] == "Going", "it says so")
        world.wait(lambda: first in world.status()["message"], "it says what it waits for")
        world.machines.stops.clear()
        world.wait(lambda: not world.is_there("gpustack", world.pool), "it goes")
        assert not world.is_out(first)
        assert driver(NEW) in world.machines.nodes[first].packages
        assert world.machines.nodes[second].packages == [driver(OLD)]
        assert not world.is_out(second)


def test_the_next_leader_brings_back_the_node_of_a_stack_that_was_deleted(world: World) -> None:
    with world.controller():
        first, second = begin(world)
    assert world.is_out(first), "its controller has ended in the middle"
    world.delete()
    world.machines.stops.clear()
    with world.controller("controller-b"):
        world.wait(lambda: not world.is_there("gpustack", world.pool), "it goes")
    assert not world.is_out(first)
    assert world.machines.nodes[second].packages == [driver(OLD)]


def test_a_stack_goes_at_once_where_no_node_is_out_of_service(world: World) -> None:
    world.join(driver(OLD))
    world.declare(driver={"version": NEW}, rollout=AT_ONCE)
    with world.controller():
        world.wait_for("AsDeclared")
        world.wait(lambda: finalizers(world) == [], "nothing keeps it any more")
    world.stage.kubectl("delete", "gpustack", world.pool, "--timeout=10s")  # and there is no controller
    assert driver(NEW) in world.machines.nodes[f"{world.pool}-0"].packages


def test_a_stack_that_is_broken_in_the_middle_brings_its_node_back(world: World) -> None:
    """Its rollout was cut off."""
    with world.controller():
        first, second = begin(world)
        gate = {"name": "a", "prometheus": "https://p.example.com", "query": "up", "tokenFile": "/var/run/token"}
        world.declare(driver={"version": NEW}, rollout={**AT_ONCE, "gates": [gate]})
        world.wait_for("Refused")
        world.machines.stops.clear()
        world.wait(lambda: not world.is_out(first), "the node comes back")
        world.wait(lambda: finalizers(world) == [], "the round has ended")
        assert world.machines.nodes[second].packages == [driver(OLD)]


def test_a_node_that_goes_over_to_another_stack_has_one_engine_at_a_time(world: World) -> None:
    """Both stacks changed it at once."""
    with world.controller():
        first, second = begin(world)
        other = f"{world.pool}-b"
        selector = {"matchLabels": {"pool": other}}
        world.declare(other, nodeSelector=selector, driver={"version": "570.10"}, rollout=AT_ONCE)
        for name in (first, second):
            world.stage.kubectl("label", "node", name, f"pool={other}", "--overwrite")
        world.wait(lambda: any("left the stack" in each for each in world.said), "no further node begins")
        world.machines.stops.clear()
        world.wait_for("AsDeclared", other)
    assert world.machines.together == set()
    assert driver(NEW) not in world.machines.nodes[second].packages, "it had not begun there"
    for name in (first, second):
        assert driver("570.10") in world.machines.nodes[name].packages
        assert not world.is_out(name)


def test_a_node_that_leaves_its_stack_and_comes_back_holds_nobody_up(world: World) -> None:
    """The rollout was held when it left, and there was nothing that let it go on."""
    names = [world.join(driver(OLD)) for _number in range(2)]
    world.declare(driver={"version": NEW}, rollout={**AT_ONCE, "blackouts": CLOSED})
    with world.controller():
        world.wait(lambda: "blackout" in world.status().get("message", ""), "it waits for its window")
        world.stage.kubectl("label", "node", names[0], "pool=elsewhere", "--overwrite")
        world.wait(lambda: any("left the stack" in each for each in world.said), "the node has left")
        world.stage.kubectl("label", "node", names[0], f"pool={world.pool}", "--overwrite")
        world.wait(lambda: world.status()["nodes"]["total"] == 2, "it is back")
        world.wait(lambda: "blackout" in world.status()["message"], "the window is all that is waited for")


def test_a_declaration_that_is_taken_back_reaches_no_further_node(world: World) -> None:
    """A change in place went on to every node that the round had begun with."""
    for _number in range(8):
        world.machines.stops.add(world.join())
    world.declare(driver={"version": NEW})
    with world.controller():
        world.wait(lambda: len(world.machines.stopped) == 4, "as many as there may be at once are being changed")
        world.declare(driver={"version": OLD})
        world.wait(lambda: world.status().get("observedGeneration") == 2, "it is seen")
        world.machines.stops.clear()
        world.wait_for("AsDeclared")
    touched = [name for name, former in world.machines.former.items() if driver(NEW) in former]
    assert len(touched) == 4, touched


def test_a_stack_that_is_to_be_removed_takes_everything_off_its_nodes(world: World) -> None:
    names = [world.join(driver(OLD)) for _number in range(2)]
    labels = {"labels": {"example.com/gpu": "yes"}}
    world.declare(driver={"version": OLD}, whenDeleted="Remove", node=labels, rollout=AT_ONCE)
    with world.controller():
        world.wait_for("AsDeclared")
        world.wait(lambda: all(world.is_marked(name) for name in names), "every Node says so")
        assert finalizers(world) == [FINALIZER]
        world.delete()
        world.wait(lambda: not world.is_there("gpustack", world.pool), "it goes")
    for name in names:
        assert world.machines.nodes[name].packages == []
        metadata = world.node(name)["metadata"]
        ours = [*metadata.get("annotations", {}), *metadata.get("labels", {})]
        assert not [key for key in ours if key.startswith(("grapnel.dev/", "example.com/gpu", "nvidia.com/"))], ours
        assert not world.is_out(name)
    assert world.machines.together == set()


def test_a_removal_says_which_node_it_waits_for_and_waits_for_none_that_has_gone(world: World) -> None:
    stuck, gone, skipped, fine = [world.join(driver(OLD)) for _number in range(4)]
    world.declare(driver={"version": OLD}, whenDeleted="Remove", rollout={**AT_ONCE, "maxUnavailable": 4})
    with world.controller():
        world.wait_for("AsDeclared")
        world.machines.stuck |= {stuck, gone}
        world.stage.kubectl("label", "node", skipped, f"{SKIP}=true")
        world.delete()
        told = lambda: {each["node"]: each["message"] for each in world.status().get("troubles", [])}  # noqa: E731
        world.wait(lambda: told().keys() == {stuck, gone}, "the two that fail are named")
        assert "the engine does not come back" in told()[stuck]
        assert "grapnel is taken off" in world.status()["message"]
        assert world.machines.nodes[fine].packages == []
        world.stage.kubectl("delete", "node", gone)
        world.machines.stuck.clear()
        world.wait(lambda: told().keys() == {stuck}, "one that has gone is not waited for")
        world.stage.kubectl("label", "node", stuck, f"{SKIP}=true")
        world.wait(lambda: not world.is_there("gpustack", world.pool), "and one that is skipped is let go")
    assert world.machines.nodes[skipped].packages == [driver(OLD)]


def test_a_removal_gives_up_on_a_node_whose_kubelet_has_been_silent_for_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = world.join(driver(OLD))
    world.declare(driver={"version": OLD}, whenDeleted="Remove")
    with world.controller():
        world.wait_for("AsDeclared")
        silence(world, name)
        world.delete()
        world.wait(lambda: "is not heard of" in world.status().get("message", ""), "it says what it waits for")
        monkeypatch.setattr(leaving, "PATIENCE_S", 1.0)
        world.stage.kubectl("label", "node", name, "changed=yes")
        world.wait(lambda: not world.is_there("gpustack", world.pool), "it goes")
    assert world.machines.nodes[name].packages == [driver(OLD)]


def test_nothing_is_tried_on_a_node_whose_kubelet_is_silent_until_it_is_heard_of(world: World) -> None:
    name = world.join()
    silence(world, name)
    other = world.join()
    world.declare(driver={"version": NEW})
    with world.controller():
        world.wait(lambda: world.is_marked(other), "the others are not held up")
        assert world.wait_for("Degraded")["troubles"][0]["message"].startswith("its kubelet is not heard of")
        assert name not in world.asked("facts")
        silence(world, name, status="True")
        world.wait_for("AsDeclared")
        assert AS_DECLARED in world.node(name)["metadata"]["annotations"]


def silence(world: World, name: str, status: str = "Unknown") -> None:
    """Say of a Node what the node controller says when its kubelet is not heard of, or that it is again."""
    patch = json.dumps({"status": {"conditions": [{"type": "Ready", "status": status}]}})
    world.stage.kubectl("patch", "node", name, "--subresource=status", "--type=strategic", "-p", patch)
