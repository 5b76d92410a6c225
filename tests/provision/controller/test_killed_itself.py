"""A leader is killed at each of its writes, and the other replica goes on: on a real API server."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from typing import TYPE_CHECKING

import pytest

from provision.cluster.kubernetes.permissions import LEADER_NAME, LEASE_NAME, LEASE_NAMESPACE
from provision.controller.nodes import AS_DECLARED, FAILED
from tests.provision.controller.fleet import NEW, OLD, World, driver, remove_stacks
from tests.provision.controller.mortal import MortalSender
from tests.sampled import every_second

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.cluster.kubernetes.api.client import Sender
    from tests.provision.cluster.stage import Stage

pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
_NUMBERS = itertools.count(1)
AT_ONCE = {"soakMinutes": 0, "maxUnavailable": 1}
WRITES = range(1, 12)  # of one node's upgrade: its phases, its mark, and the finalizer of its stack twice


@pytest.fixture
def stage_alone(stage: Stage) -> Iterator[Stage]:
    yield stage
    remove_stacks(stage)


def live_and_die(world: World, last: int, name: str, key: str) -> bool:
    """Lead until the ``last`` write, or until it is over; return whether it was killed."""
    senders: list[MortalSender] = []

    def mortal(sender: Sender) -> MortalSender:
        senders.append(MortalSender(sender, last))
        return senders[-1]

    world.wrap = mortal
    found = world.make_controller("first")
    world.wrap = lambda sender: sender

    def run() -> None:
        with contextlib.suppress(Exception):
            found.run()

    thread = threading.Thread(target=run, name="mortal")
    thread.start()
    world.wait(lambda: senders[0].is_dead.is_set() or is_quiet(world, name, key), "it is killed, or it is over")
    found.stop()
    thread.join(60)
    assert not thread.is_alive()
    return senders[0].is_dead.is_set()


def go_on(world: World, name: str, key: str) -> None:
    """Have another replica lead until it is over."""
    let_the_lease_run_out(world.stage)
    with world.controller("second"):
        world.wait_for("AsDeclared" if key == AS_DECLARED else "Degraded")
        world.wait(lambda: is_quiet(world, name, key), "it ends although its leader was killed")


def let_the_lease_run_out(stage: Stage) -> None:
    """Have nobody hold the leases, as in 45 seconds."""
    patch = json.dumps({"spec": {"holderIdentity": ""}})
    for name in (LEADER_NAME, LEASE_NAME):
        stage.kubectl("patch", "lease", name, "-n", LEASE_NAMESPACE, "--type=merge", "-p", patch)


def written_on(world: World, name: str) -> dict[str, str]:
    found: dict[str, str] = world.node(name)["metadata"].get("annotations", {})
    return found


def is_quiet(world: World, name: str, key: str) -> bool:
    """Tell whether a Node says what became of it, and nothing keeps its stack."""
    stack = world.stage.get("gpustack", world.pool)
    return key in written_on(world, name) and not stack["metadata"].get("finalizers")


@pytest.mark.parametrize("last", every_second(WRITES))
def test_an_upgrade_comes_to_its_end_wherever_its_leader_is_killed(stage_alone: Stage, last: int) -> None:
    world = World(stage_alone, f"killed-{next(_NUMBERS)}")
    name = world.join(driver(OLD))
    world.declare(driver={"version": NEW}, rollout=AT_ONCE)
    if live_and_die(world, last, name, AS_DECLARED):
        go_on(world, name, AS_DECLARED)
    assert not world.is_out(name)
    assert world.node(name)["spec"].get("taints", []) == []
    assert world.machines.nodes[name].packages == [driver(NEW)]
    assert world.asked("apply") == [name], "it is exchanged once"
    assert world.machines.together == set()


@pytest.mark.parametrize("last", every_second(WRITES))
def test_a_node_that_fails_is_left_alone_wherever_its_leader_is_killed(stage_alone: Stage, last: int) -> None:
    """It was drained and tried again by each leader that came after one that had not got to say so."""
    world = World(stage_alone, f"killed-{next(_NUMBERS)}")
    name = world.join(driver(OLD))
    world.machines.nodes[name].broken = driver(NEW)
    world.declare(driver={"version": NEW}, rollout=AT_ONCE)
    was_killed = live_and_die(world, last, name, FAILED)
    was_over = phase(world, name) in {"failed", "returned"}
    released = len(world.asked("release"))
    if was_killed:
        go_on(world, name, FAILED)
    assert world.status()["state"] == "Degraded"
    assert not was_over or len(world.asked("release")) == released
    assert world.machines.together == set()


def phase(world: World, name: str) -> str:
    """Return how far the upgrade of a node is, empty where none has begun."""
    record = written_on(world, name).get("grapnel.dev/upgrade")
    return "" if record is None else str(json.loads(record)["phase"])
