"""Nodes that a controller returns to their former driver since somebody has asked for it, on a real API server."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from provision.cli import main
from provision.controller.nodes import FAILED
from tests.provision.controller.fleet import NEW, OLD, World, driver, remove_stacks
from tests.provision.controller.machines import Machines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.provision.cluster.stage import Stage

pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
_NUMBERS = itertools.count(1)
AT_ONCE = {"soakMinutes": 0, "maxUnavailable": 1}
NEWER = "570.10"


@pytest.fixture
def world(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    made = World(stage, f"back-{next(_NUMBERS)}", Machines({}, remember=True))
    yield made
    made.machines.stops.clear()
    remove_stacks(stage)
    stage.kubectl("delete", "nodes", "-l", f"pool={made.pool}")


def tell(world: World, verb: str, *words: str) -> int:
    """Have a verb of grapnel say something to the controller."""
    return main([verb, *words, "--kubeconfig", str(world.stage.control_plane.kubeconfig)])


def record(world: World, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(world.node(name)["metadata"]["annotations"].get("grapnel.dev/upgrade", "{}"))
    return found


def upgraded(world: World, count: int) -> list[str]:
    """Declare a fleet as it is to be, and have it upgraded by a controller that runs; return its nodes."""
    names = [world.join(driver(OLD)) for _number in range(count)]
    world.declare(driver={"version": NEW}, rollout={**AT_ONCE, "maxUnavailable": count})
    world.wait_for("AsDeclared")
    world.wait(lambda: all(world.is_marked(name) for name in names), "every Node says so")
    return names


def troubles(world: World) -> dict[str, str]:
    return {each["node"]: each["message"] for each in world.status().get("troubles", [])}


def test_a_node_goes_back_and_is_left_so_until_somebody_asks_for_another_try(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    with world.controller():
        first, second = upgraded(world, 2)
        assert tell(world, "rollback", first, "--yes") == 0
        assert f"{first}: is taken out of service and returned to the driver before ({OLD})" in capsys.readouterr().out
        status = world.wait_for("Degraded")
        assert world.machines.nodes[first].packages == [driver(OLD)]
        assert not world.is_out(first)
        assert (record(world, first)["phase"], record(world, first)["origin"]) == ("returned", OLD)
        assert "backFor" not in record(world, first)
        assert "asked for it (`grapnel rollback`)" in troubles(world)[first]
        assert (status["nodes"]["failed"], status["nodes"]["asDeclared"]) == (1, 1)
        assert tell(world, "rollback", first, "--yes") == 0
        assert "has its former driver already" in capsys.readouterr().out
    released = world.asked("release").count(first)
    with world.controller("controller-b"):  # a new leader knows it from the Node
        world.wait_for("Degraded")
        assert world.asked("release").count(first) == released
        assert tell(world, "retry", first) == 0
        world.wait_for("AsDeclared")
        assert world.machines.nodes[first].packages == [driver(NEW)]
    assert world.machines.nodes[second].packages == [driver(NEW)]
    assert world.machines.together == set()


def test_another_declaration_takes_a_node_along_that_went_back(world: World) -> None:
    with world.controller():
        (name,) = upgraded(world, 1)
        tell(world, "rollback", name, "--yes")
        world.wait_for("Degraded")
        world.declare(driver={"version": NEWER}, rollout=AT_ONCE)
        world.wait_for("AsDeclared")
        assert driver(NEWER) in world.machines.nodes[name].packages


def test_who_comes_next_goes_on_with_it(world: World) -> None:
    with world.controller():
        (name,) = upgraded(world, 1)
        world.machines.stops.add(name)
        world.machines.stopped.clear()
        tell(world, "rollback", name, "--yes")
        world.wait(lambda: name in world.machines.stopped, "it is under way")
    assert record(world, name)["backFor"]
    world.machines.stops.clear()
    with world.controller("controller-b"):
        world.wait_for("Degraded")
        assert record(world, name)["phase"] == "returned"
    assert world.machines.nodes[name].packages == [driver(OLD)]
    assert world.machines.returned == [name]


def test_a_rollout_makes_way_for_it_and_goes_on(world: World) -> None:
    with world.controller():
        first, second = upgraded(world, 2)
        closed = {"blackouts": [{"first": "2020-01-01", "last": "2099-01-01"}]}
        world.declare(driver={"version": NEW}, rollout={**AT_ONCE, **closed})
        world.wait_for("AsDeclared")
        third = world.join(driver(OLD))
        world.wait(lambda: "blackout" in world.status().get("message", ""), "the rollout waits for its window")
        tell(world, "rollback", first, "--yes")
        world.wait(lambda: record(world, first).get("phase") == "returned", "it goes back in spite of the blackout")
        world.wait(lambda: "blackout" in troubles(world).get(third, ""), "the rollout waits again")
        world.declare(driver={"version": NEW}, rollout=AT_ONCE)
        world.wait(lambda: driver(NEW) in world.machines.nodes[third].packages, "and holds nobody up")
    assert world.machines.nodes[first].packages == [driver(OLD)]
    assert world.machines.nodes[second].packages == [driver(NEW)]
    assert world.machines.together == set()


def test_a_pause_of_before_does_not_hold_it_up(world: World) -> None:
    with world.controller():
        (name,) = upgraded(world, 1)
        tell(world, "pause")
        try:
            tell(world, "rollback", name, "--yes")
            world.wait(lambda: record(world, name).get("phase") == "returned", "it goes back")
        finally:
            tell(world, "resume")
    assert world.machines.nodes[name].packages == [driver(OLD)]


def test_what_cannot_go_back_says_why_until_somebody_takes_it_back(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    with world.controller():
        (name,) = upgraded(world, 1)
        world.machines.former[name].clear()
        tell(world, "rollback", name, "--yes")
        world.wait(lambda: "there is nothing to go back to" in troubles(world).get(name, ""), "it says why")
        assert f"`grapnel retry {name}` takes that back" in troubles(world)[name]
        capsys.readouterr()
        assert tell(world, "retry", name) == 0
        assert f"{name}: does not go back to its former driver" in capsys.readouterr().out
        world.wait_for("AsDeclared")
    assert world.machines.nodes[name].packages == [driver(NEW)]
    assert not world.is_out(name)


def test_a_node_that_fails_on_its_way_is_left_so(world: World) -> None:
    with world.controller():
        (name,) = upgraded(world, 1)
        world.machines.nodes[name].broken = "verify"
        tell(world, "rollback", name, "--yes")
        world.wait(lambda: record(world, name).get("phase") == "failed", "it has failed")
        world.wait(lambda: world.status().get("state") == "Degraded", "its stack says so")
        assert FAILED in world.node(name)["metadata"]["annotations"]
        assert world.is_out(name)
        released = len(world.asked("release"))
        world.machines.nodes[name].broken = ""
        tell(world, "rollback", name, "--yes")
        world.wait(lambda: record(world, name).get("phase") == "returned", "it is asked for again")
    assert len(world.asked("release")) >= released
    assert world.machines.nodes[name].packages == [driver(OLD)]


def test_who_is_on_call_may_ask_for_it_and_nobody_is_asked_without_a_controller(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    with world.controller():
        (name,) = upgraded(world, 1)
        assert tell(world, "rollback", "--yes") == 2
        assert "no Node is named" in capsys.readouterr().err
    assert tell(world, "rollback", name, "--yes") == 2
    assert "has no controller that leads" in capsys.readouterr().err
    assert "backFor" not in record(world, name)
