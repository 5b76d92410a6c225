"""What a controller says of nodes is what they have, whatever anybody did meanwhile."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from provision.cluster.kubernetes.cluster import KubernetesCluster
from provision.cluster.kubernetes.nodes.marks import UPGRADE
from provision.cluster.kubernetes.nodes.node_view import DRIVER_READY
from provision.rollout.model import Phase, Record
from tests.provision.cluster.stage import GPU_RULES
from tests.provision.controller.fleet import NEW, OLD, World, driver
from tests.provision.rollout.fakes import NOON

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
AT_ONCE = {"soakMinutes": 0, "maxUnavailable": 1}


def brought_to_old(world: World, count: int) -> list[str]:
    """Have nodes that are as declared, with the old driver, and say so."""
    names = [world.join(driver(OLD)) for _number in range(count)]
    declare(world, OLD)
    with world.controller():
        world.wait_for("AsDeclared")
        world.wait(lambda: all(map(world.is_marked, names)), "they say so")
    return names


def declare(world: World, version: str, **more: object) -> None:
    world.declare(driver={"version": version}, rollout=AT_ONCE, **more)


def drivers(world: World, names: list[str]) -> list[set[str]]:
    return [set(world.machines.nodes[name].packages) for name in names]


@contextmanager
def stopped_in_swap(world: World, name: str) -> Iterator[None]:
    """Have the new driver declared; inside, that node stands in the middle of its swap, and goes on after it."""
    world.machines.stops.add(name)
    declare(world, NEW)
    world.wait(lambda: name in world.machines.stopped, f"{name} is being changed")
    yield
    world.machines.stops.clear()


def terminal(world: World, name: str, *records: Record) -> None:
    """Write on a Node what an engine on somebody's machine writes."""
    cluster = KubernetesCluster(world.api(), rules=GPU_RULES, machines={}, tenure=Tenure())
    for record in records:
        cluster.observe([name])
        cluster.write(name, record, cordoned=not record.phase.is_in_service)


def record(phase: Phase, **more: object) -> Record:
    given = {"target": NEW, "origin": OLD, "began": NOON, "since": NOON, **more}
    return Record(phase=phase, **given)  # type: ignore[arg-type]  # fields by name


class Tenure:
    """A hold on the lease that is never lost."""

    pause = None

    def check(self) -> None:
        """It is held."""

    def publish(self, standing: object) -> None:
        """Nobody listens."""


def test_a_declaration_that_is_taken_back_while_a_node_is_swapped_is_brought_about_again(world: World) -> None:
    """The node said that it was as declared, by what had been written before the change; it had the other driver."""
    names = brought_to_old(world, 1)
    with world.controller():
        with stopped_in_swap(world, names[0]):
            assert not world.is_marked(names[0])
            declare(world, OLD)
        assert world.wait_for("AsDeclared", timeout_s=120)["progress"] == "1/1"
        assert drivers(world, names) == [{driver(OLD)}]
        world.wait(lambda: world.is_marked(names[0]), "it says so")


def test_another_stack_with_the_earlier_declaration_finds_what_the_deleted_one_has_left(world: World) -> None:
    """It was as declared within seconds, and a node had the other driver."""
    names = brought_to_old(world, 2)
    with world.controller():
        with stopped_in_swap(world, names[1]):
            world.delete()
            let_go = '{"metadata": {"finalizers": null}}'  # by somebody who does not wait for the node
            world.stage.kubectl("patch", "gpustack", world.pool, "--type=merge", "-p", let_go)
            declare(world, OLD)
        world.wait(lambda: drivers(world, names) == [{driver(OLD)}] * 2, "they have the declared driver", 120)
        world.wait_for("AsDeclared", timeout_s=120)


def test_a_terminal_that_changes_a_node_while_there_is_no_controller_is_not_overlooked(world: World) -> None:
    """An upgrade from somebody's machine had left what the controller had written, which was believed."""
    (name,) = names = brought_to_old(world, 1)
    terminal(world, name, record(Phase.CORDON), record(Phase.DONE))
    world.machines.nodes[name].packages[:] = [driver(NEW)]
    assert not world.is_marked(name)
    with world.controller():
        world.wait(lambda: drivers(world, names) == [{driver(OLD)}], "it has the declared driver again", 120)
        world.wait(lambda: world.is_marked(name), "it says so")


def report(world: World, node: str, version: str) -> None:
    """Have the node's daemon say which driver answers, at least a second after what it and a record have said."""
    said = {each["type"]: each for each in world.node(node)["status"]["conditions"]}.get(DRIVER_READY, {})
    last = datetime.fromisoformat(said.get("lastHeartbeatTime", NOON.isoformat()))
    now = (max(datetime.now(UTC), last) + timedelta(seconds=1)).isoformat(timespec="seconds")
    condition = {"type": DRIVER_READY, "status": "True", "reason": "DriverAnswers", "lastHeartbeatTime": now}
    patch = {"status": {"conditions": [{**condition, "message": f"driver {version} answers"}]}}
    world.stage.kubectl("patch", "node", node, "--subresource=status", "--patch", json.dumps(patch))


def test_what_a_daemon_said_before_an_upgrade_says_nothing_after_it(world: World) -> None:
    """Its labels and conditions had stayed, since it may not speak to the API any more; the stack waited for ever."""
    (name,) = names = brought_to_old(world, 1)
    report(world, name, OLD)
    world.stage.kubectl("label", "node", name, f"nvidia.com/cuda.driver-version.full={OLD}")
    with world.controller():
        world.wait_for("AsDeclared")
        declare(world, NEW)
        world.wait(lambda: drivers(world, names) == [{driver(NEW)}], "it has the declared driver", 120)
        world.wait_for("AsDeclared")


def test_a_node_that_reports_another_driver_is_looked_at_again(world: World) -> None:
    (name,) = names = brought_to_old(world, 1)
    with world.controller():
        world.wait_for("AsDeclared")
        world.machines.nodes[name].packages[:] = [driver(NEW)]
        report(world, name, NEW)
        world.wait(lambda: drivers(world, names) == [{driver(OLD)}], "it has the declared driver again", 120)
        world.wait_for("AsDeclared")  # what the daemon has said was before that

        def says_so_again() -> bool:
            report(world, name, NEW)
            status = world.status()
            return status["state"] == "Waiting" and NEW in status["message"]

        world.wait(says_so_again, "what it says after it was looked at again is told")
        report(world, name, OLD)
        world.wait_for("AsDeclared")


def test_a_failed_node_that_is_as_declared_again_comes_back_into_service(world: World) -> None:
    """It was as declared, cordoned and without GPUs: nothing differed on it."""
    (name,) = names = brought_to_old(world, 1)
    terminal(world, name, record(Phase.CORDON), record(Phase.FAILED, failed_in=Phase.RELEASE, reason="a pod stays"))
    with world.controller():
        world.wait(lambda: world.is_marked(name), "it says that it is as declared", 120)
        assert drivers(world, names) == [{driver(OLD)}]
        assert not world.is_out(name)


def test_a_failure_ends_with_the_declaration_that_it_was_about(world: World) -> None:
    """It stayed for ever, and kept the node from the next rollout to the same driver."""
    (name,) = names = brought_to_old(world, 1)
    terminal(world, name, record(Phase.CORDON), record(Phase.RETURNED, failed_in=Phase.SWAP, reason="it broke"))
    with world.controller():
        world.wait(lambda: world.is_marked(name), "it says that it is as declared", 120)
        assert UPGRADE not in world.node(name)["metadata"]["annotations"]
        assert UPGRADE not in world.node(name)["metadata"]["labels"]
        declare(world, NEW)
        world.wait_for("AsDeclared", timeout_s=120)
        assert drivers(world, names) == [{driver(NEW)}]
