"""Somebody at a terminal beside a controller: each waits for the other, on a real API server."""

from __future__ import annotations

import itertools
import json
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from provision.cli import main
from provision.cluster.kubernetes import cluster, lease
from provision.cluster.kubernetes.cluster import KubernetesCluster
from provision.cluster.kubernetes.permissions import LEADER_NAME, LEASE_NAME, LEASE_NAMESPACE
from provision.controller import loop
from provision.controller.rounds import work
from provision.rollout.errors import HeldError
from tests.provision.cluster.stage import GPU_RULES, path_of
from tests.provision.controller.fleet import NEW, OLD, World, driver, remove_stacks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.provision.cluster.stage import Stage

pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
_NUMBERS = itertools.count(1)
AT_ONCE = {"soakMinutes": 0, "maxUnavailable": 1}
ADA = "ada@laptop/1"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds a lease, or waits for one, looks at it twice a second, and not every five or ten."""
    for module in (cluster, loop, work):
        monkeypatch.setattr(module, "hold", partial(lease.hold, renew_s=0.5))
    monkeypatch.setattr(loop, "RENEW_S", 0.5)
    monkeypatch.setattr(work, "LOOK_S", 0.5)


@pytest.fixture
def world(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    made = World(stage, f"terminal-{next(_NUMBERS)}")
    yield made
    made.machines.stops.clear()
    remove_stacks(stage)
    stage.kubectl("delete", "nodes", "-l", f"pool={made.pool}")


def holder(world: World, name: str = LEASE_NAME) -> str:
    """Return who has a lease, empty for nobody."""
    found = world.stage.control_plane.api.get(path_of("lease", name, LEASE_NAMESPACE)) or {}
    return str(found.get("spec", {}).get("holderIdentity", ""))


@contextmanager
def at_work(world: World) -> Iterator[None]:
    """Have an apply at a terminal be at work while inside."""
    with KubernetesCluster(world.api(), rules=GPU_RULES, machines={}).lease(ADA):
        yield


def message(world: World) -> str:
    return str(world.status().get("message", ""))


def test_an_idle_controller_keeps_nobody_from_work_and_waits_for_whoever_is_at_it(world: World) -> None:
    """It held the lease for as long as it led, so that `grapnel apply` and `rollback` were refused for good."""
    name = world.join(driver(OLD))
    world.declare(driver={"version": OLD})
    with world.controller():
        world.wait_for("AsDeclared")
        world.wait(lambda: holder(world) == "", "it has given the lease back")
        assert holder(world, LEADER_NAME) == "controller-a"
        with at_work(world):
            world.declare(driver={"version": NEW}, rollout=AT_ONCE)
            world.wait(lambda: f"{ADA} is changing nodes" in message(world), "it says who is at work")
            assert "goes on when that has ended" in message(world)
            assert world.status()["state"] == "Waiting"
            assert world.asked("release") == []
        world.wait_for("AsDeclared")
        assert world.asked("release") == [name]
        world.wait(lambda: holder(world) == "", "and has given it back again")


def test_while_rounds_run_nobody_else_begins(world: World) -> None:
    name = world.join(driver(OLD))
    world.machines.stops.add(name)
    world.declare(driver={"version": NEW}, rollout=AT_ONCE)
    with world.controller():
        world.wait(lambda: bool(world.machines.stopped), "the node is being changed")
        with pytest.raises(HeldError, match="controller-a is changing nodes"), at_work(world):
            pass
        world.machines.stops.clear()
        world.wait_for("AsDeclared")


def test_rounds_end_at_once_when_somebody_has_taken_their_lease(world: World) -> None:
    name = world.join(driver(OLD))
    world.machines.stops.add(name)
    world.declare(driver={"version": NEW}, rollout=AT_ONCE)
    with world.controller() as controller:
        world.wait(lambda: bool(world.machines.stopped), "the node is being changed")
        take = json.dumps({"spec": {"holderIdentity": ADA}})
        world.stage.kubectl("patch", "lease", LEASE_NAME, "-n", LEASE_NAMESPACE, "--type=merge", "-p", take)
        world.wait(lambda: controller.counts.rounds == 0, "what it did on the node has ended")
        assert holder(world) == ADA
        assert holder(world, LEADER_NAME) == "controller-a", "it leads all the same"
        world.machines.stops.clear()
        give = json.dumps({"spec": {"holderIdentity": ""}})
        world.stage.kubectl("patch", "lease", LEASE_NAME, "-n", LEASE_NAMESPACE, "--type=merge", "-p", give)
        world.wait_for("AsDeclared")
    assert world.machines.together == set()


def test_of_two_replicas_one_leads_and_the_other_one_follows_it(world: World) -> None:
    name = world.join(driver(OLD))
    world.declare(driver={"version": OLD})
    with world.controller("controller-b") as second:
        with world.controller() as first:
            world.wait(lambda: first.counts.is_leader or second.counts.is_leader, "one leads")
            world.wait_for("AsDeclared")
            assert {first.counts.is_leader, second.counts.is_leader} == {True, False}
        world.wait(lambda: second.counts.is_leader, "the other one leads")
        world.declare(driver={"version": NEW}, rollout=AT_ONCE)
        world.wait_for("AsDeclared")
    assert world.asked("release") == [name]


def test_a_controller_of_before_that_holds_the_lease_for_good_is_waited_for(world: World) -> None:
    """A rolling update of the Deployment: the former version gives the lease back when it ends."""
    name = world.join(driver(OLD))
    world.declare(driver={"version": NEW}, rollout=AT_ONCE)
    ended = threading.Event()

    def former() -> None:
        with KubernetesCluster(world.api(), rules=GPU_RULES, machines={}).lease("controller-of-before"):
            ended.wait(120)

    thread = threading.Thread(target=former, name="former")
    thread.start()
    try:
        world.wait(lambda: holder(world) == "controller-of-before", "it holds the lease")
        with world.controller():
            world.wait(lambda: "controller-of-before is changing nodes" in message(world), "it is waited for")
            assert world.asked("facts") == []
            ended.set()
            world.wait_for("AsDeclared")
    finally:
        ended.set()
        thread.join()
    assert world.asked("release") == [name]


def test_retry_says_that_the_controller_tries_it_again(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """It said that the next `grapnel apply` did, and nothing was asked of anybody."""
    name = world.join(driver(OLD))
    world.machines.nodes[name].broken = driver(NEW)
    world.declare(driver={"version": NEW}, rollout=AT_ONCE)
    config = str(world.stage.control_plane.kubeconfig)
    with world.controller():
        world.wait_for("Degraded")
        world.wait(lambda: holder(world) == "", "it is idle")
        main(["status", "--kubeconfig", config, name])
        said = " ".join(capsys.readouterr().out.split())
        assert f"then `grapnel retry {name} --kubeconfig " in said
        assert "not tried again by itself" in said
        assert "controller-a is the leading controller" in said
        world.machines.nodes[name].broken = ""
        assert main(["retry", name, "--kubeconfig", config]) == 0
        assert "is tried again by the controller (controller-a)" in capsys.readouterr().out
        world.wait_for("AsDeclared")
