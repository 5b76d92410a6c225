"""The controller on a real API server: Nodes join, drivers change, people intervene, and processes are killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.machine.errors import CommandError
from provision.controller.nodes import NOT_READY
from tests.provision.cluster.stage import wait_until
from tests.provision.cluster.test_access import user
from tests.provision.controller.fleet import NEW, OLD, World, driver

if TYPE_CHECKING:
    from tests.provision.cluster.stage import Stage

pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[3]
CLOSED = {"blackouts": [{"first": "2020-01-01", "last": "2099-01-01"}]}


def test_nodes_become_what_their_stack_declares(world: World) -> None:
    nodes = [world.join() for _number in range(3)]
    world.declare(driver={"version": NEW})
    with world.controller():
        status = world.wait_for("AsDeclared")
        assert status["progress"] == "3/3"
        wait_until(lambda: all(world.is_marked(name) for name in nodes), "every Node says so")
        assert sorted(world.asked("apply")) == sorted(nodes)
        looked = len(world.machines.runs)
        later = world.join()
        wait_until(lambda: world.is_marked(later), "a node that joins later is as declared")
        assert {name for _playbook, names in world.machines.runs[looked:] for name in names} == {later}
    assert all(driver(NEW) in machine.packages for machine in world.machines.nodes.values())


def test_a_stack_says_whether_the_controller_runs_on_one_of_its_nodes(world: World) -> None:
    name = world.join()
    world.declare(driver={"version": NEW})

    def apart() -> dict[str, str]:
        found = {each["type"]: each for each in world.status().get("conditions", ())}
        condition: dict[str, str] = found.get("ControllerApart", {})
        return condition

    with world.controller(node=name):
        wait_until(lambda: apart().get("status") == "False", "it says so")
        assert apart()["message"].startswith(f"the controller runs on {name}, ")
        world.wait_for("AsDeclared")
    with world.controller("controller-b", node="elsewhere"):
        wait_until(lambda: apart().get("status") == "True", "the next leader runs elsewhere")
    with world.controller("controller-c"):
        wait_until(lambda: not apart(), "nobody knows where this one runs")


def test_a_node_that_joins_keeps_its_taint_until_it_is_as_declared(world: World) -> None:
    name = world.join(is_new=True)
    world.declare(driver={"version": NEW}, rollout=CLOSED)
    with world.controller():
        wait_until(lambda: world.is_marked(name), "it is provisioned, whatever the windows are")
        assert NOT_READY not in world.taints(name)
        world.wait_for("AsDeclared")


def test_a_driver_is_changed_node_by_node(world: World) -> None:
    nodes = [world.join(driver(OLD)) for _number in range(3)]
    world.declare(driver={"version": OLD})
    with world.controller():
        world.wait_for("AsDeclared")
        world.declare(driver={"version": NEW}, rollout={"soakMinutes": 0})
        world.wait_for("AsDeclared")
        assert sorted(world.asked("release")) == sorted(nodes)
    for name in nodes:
        assert not world.node(name)["spec"].get("unschedulable", False)
        assert driver(NEW) in world.machines.nodes[name].packages


def test_a_node_that_fails_is_said_and_not_tried_again_by_itself(world: World) -> None:
    bad = world.join(driver(OLD))
    world.machines.nodes[bad].broken = driver(NEW)
    world.declare(driver={"version": NEW}, rollout={"soakMinutes": 0})
    with world.controller():
        status = world.wait_for("Degraded")
        assert status["nodes"]["failed"] == 1
        assert f"cannot install {driver(NEW)}" in status["troubles"][0]["message"]
        tried = len(world.asked("apply"))
    with world.controller("controller-b"):  # a new leader knows it from the Node
        world.wait_for("Degraded")
        assert len(world.asked("apply")) == tried
        world.machines.nodes[bad].broken = ""
        world.declare(driver={"version": NEW}, rollout={"soakMinutes": 0}, plugin={"metricsAddress": "0.0.0.0:9400"})
        world.wait_for("AsDeclared")


def test_a_node_that_two_stacks_select_is_left_alone(world: World) -> None:
    name = world.join()
    world.declare(driver={"version": NEW})
    world.declare(f"{world.pool}-b", driver={"version": OLD})
    with world.controller():
        status = world.wait_for("Degraded")
        assert f"{world.pool}-b" in status["troubles"][0]["message"]
        assert world.asked("apply") == []
        world.stage.kubectl("delete", "gpustack", f"{world.pool}-b")
        world.wait_for("AsDeclared")
        assert world.asked("apply") == [name]


def test_a_declaration_that_changes_half_way_is_taken_up(world: World) -> None:
    for _number in range(2):
        world.join(driver(OLD))
    world.declare(driver={"version": NEW}, rollout=CLOSED)
    with world.controller():
        status = world.wait_for("Waiting")
        assert "blackout" in status["message"]
        world.declare(driver={"version": NEW}, rollout={"soakMinutes": 0})
        world.wait_for("AsDeclared")


def test_a_node_that_joins_does_not_wait_for_a_rollout_that_waits(world: World) -> None:
    world.join(driver(OLD))
    world.declare(driver={"version": NEW}, rollout=CLOSED)
    with world.controller():
        world.wait_for("Waiting")
        fresh = world.join(is_new=True)
        wait_until(lambda: world.is_marked(fresh), "it is provisioned beside the rollout")
        assert NOT_READY not in world.taints(fresh)
        world.stage.kubectl("delete", "gpustack", world.pool)


def test_a_stack_that_cannot_be_used_says_why(world: World) -> None:
    world.join()
    gate = {"name": "a", "prometheus": "https://p.example.com", "query": "up", "tokenFile": "/var/run/token"}
    world.declare(driver={"version": NEW}, rollout={"gates": [gate]})
    with world.controller():
        status = world.wait_for("Refused")
        assert "/var/run/token" in status["message"]
        accepted = {each["type"]: each["status"] for each in status["conditions"]}
        assert accepted["Accepted"] == "False"
        assert world.machines.runs == []


def test_who_waits_for_the_lease_goes_on_where_the_leader_was(world: World) -> None:
    name = world.join(driver(OLD))
    world.declare(driver={"version": OLD})
    with world.controller():
        world.wait_for("AsDeclared")
    looked = len(world.machines.runs)
    world.declare(driver={"version": NEW}, rollout={"soakMinutes": 0})
    with world.controller("controller-b"):
        world.wait_for("AsDeclared")
    assert {node for _playbook, names in world.machines.runs[looked:] for node in names} == {name}


def test_its_permissions_are_enough_and_one_that_is_missing_is_named(world: World, stage: Stage) -> None:
    for name in ("operator", "telling", "controller"):
        stage.kubectl("apply", "-f", str(ROOT / f"deploy/rbac/{name}.yaml"))
    token = stage.kubectl("create", "token", "grapnel-controller", "-n", "grapnel-system").strip()
    world.kubeconfig = user(stage, "controller", token)
    name = world.join(driver(OLD))
    world.declare(driver={"version": NEW}, rollout={"soakMinutes": 0}, node={"labels": {"example.com/pool": "a"}})
    with world.controller():
        world.wait_for("AsDeclared")
    assert world.node(name)["metadata"]["labels"]["example.com/pool"] == "a"
    assert not [each for each in world.said if "may not" in each], world.said
    for verb, what in (("get", "secrets"), ("create", "pods"), ("delete", "nodes"), ("update", "gpustacks")):
        asked = ("auth", "can-i", verb, what, "--as=system:serviceaccount:grapnel-system:grapnel-controller")
        with pytest.raises(CommandError):
            stage.kubectl(*asked, "-n", "grapnel-system")
    rule = '[{"op":"remove","path":"/rules/1"}]'
    stage.kubectl("patch", "clusterrole", "grapnel-controller", "--type=json", "-p", rule)
    world.declare(driver={"version": NEW}, rollout={"maxParallel": 2})
    with world.controller("controller-b"):
        wait_until(lambda: any("may not patch gpustacks/status" in each for each in world.said), "it is named")


def test_what_is_as_declared_costs_nothing_when_a_new_leader_comes(world: World) -> None:
    nodes = [world.join() for _number in range(3)]
    world.declare(driver={"version": NEW})
    with world.controller():
        world.wait_for("AsDeclared")
        wait_until(lambda: all(world.is_marked(name) for name in nodes), "every Node says so")
    looked = len(world.machines.runs)
    with world.controller("controller-b") as second:
        wait_until(lambda: second.counts.turns > 0, "it has looked")
        world.wait_for("AsDeclared")
    assert world.machines.runs[looked:] == []
