"""Drivers are staged on every node before the first one leaves service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.cli.change.apply import apply_nodes
from provision.cli.change.stage import stage_fleet
from provision.planning.node_plan import Action, Disruption, NodePlan, Role, Roles, RuntimeVariables
from tests.provision.apply.fakes import (
    FakeFleet,
    FakeNode,
    cluster_of,
    context,
    item,
    plan_engine,
    plan_staged,
    scope_of,
)
from tests.provision.rollout.fakes import NEW

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from tests.provision.rollout.fakes import FakeCluster


ENGINE = RuntimeVariables(runtime_engine="containerd", runtime_service="containerd.service", runtime_restart=True)


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet({"n1": FakeNode(), "n2": FakeNode(["driver"]), "n3": FakeNode()})


def apply(fleet: FakeFleet, cluster: FakeCluster) -> int:
    scope = scope_of(cluster, driver={"version": NEW})
    return apply_nodes(context(fleet, plan_staged), scope, parallel=1, consent=True)


def stage(fleet: FakeFleet, cluster: FakeCluster) -> int:
    return stage_fleet(context(fleet, plan_staged), scope_of(cluster, driver={"version": NEW}), parallel=1)


def runs_on(fleet: FakeFleet, node: str) -> list[str]:
    return [playbook for playbook, nodes in fleet.runs if node in nodes]


def test_every_node_is_staged_before_the_first_one_leaves_service(fleet: FakeFleet) -> None:
    assert apply(fleet, cluster_of(fleet)) == 0
    playbooks = [playbook for playbook, _ in fleet.runs]
    assert playbooks[:4] == ["facts", "stage", "stage", "release"]
    assert playbooks.count("stage") == 2


def test_a_staged_node_takes_four_runs(fleet: FakeFleet) -> None:
    assert stage(fleet, cluster_of(fleet)) == 0
    fleet.runs.clear()
    assert apply(fleet, cluster_of(fleet)) == 0
    assert runs_on(fleet, "n1") == ["facts", "release", "apply", "resume"]


def test_a_node_whose_driver_cannot_be_staged_stays_in_service_and_the_others_go_on(
    fleet: FakeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.nodes["n1"].broken = "stage"
    cluster = cluster_of(fleet)
    assert apply(fleet, cluster) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "3 nodes: 1 unchanged, 1 converged, 1 failed" in output
    assert "no space left on /var" in output
    assert {node for node, _, _ in cluster.writes} == {"n3"}


def test_staging_changes_nothing_and_says_what_it_cost(fleet: FakeFleet, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = cluster_of(fleet)
    assert stage(fleet, cluster) == 0
    output = capsys.readouterr().out
    assert "135 MB, built with 566 s of CPU" in output
    assert "3 nodes: 1 unchanged, 2 staged" in output
    assert (cluster.writes, fleet.applied()) == ([], [])


def test_an_engine_is_staged_before_its_node_leaves_service(
    fleet: FakeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.nodes["n2"].packages.append("containerd")
    cluster = cluster_of(fleet)
    assert stage_fleet(context(fleet, plan_engine), scope_of(cluster), parallel=1) == 0
    assert (cluster.writes, fleet.applied()) == ([], [])
    said = capsys.readouterr().out
    assert "61 MB of its engine" in said
    assert "3 nodes: 1 unchanged, 2 staged" in said
    fleet.nodes["n3"].staged_engine = ""  # as if it had been removed since
    fleet.runs.clear()
    assert apply_nodes(context(fleet, plan_engine), scope_of(cluster), parallel=1, consent=True) == 0
    assert runs_on(fleet, "n1")[:3] == ["facts", "release", "apply"]
    assert runs_on(fleet, "n3")[:4] == ["facts", "stage", "release", "apply"]
    assert [playbook for playbook, _ in fleet.runs][:2] == ["facts", "stage"]


def test_a_node_whose_engine_cannot_be_staged_stays_in_service(
    fleet: FakeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.nodes["n1"].broken = "stage"
    cluster = cluster_of(fleet)
    assert apply_nodes(context(fleet, plan_engine), scope_of(cluster), parallel=1, consent=True) == 1
    assert "no space left on /var" in " ".join(capsys.readouterr().out.split())
    assert {node for node, _, _ in cluster.writes} == {"n2", "n3"}


def test_a_node_that_leaves_service_for_a_restart_alone_has_nothing_to_stage(
    fleet: FakeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was told as staged, as if something lay ready there."""

    def restarts(node: str, _facts: NodeFacts) -> NodePlan:
        restart = item("containerd.service", role=Role.RUNTIME, action=Action.RESTART, disruption=Disruption.DRAIN)
        return NodePlan(node=node, items=(restart,), roles=Roles(runtime=ENGINE))

    stage_fleet(context(fleet, restarts), scope_of(cluster_of(fleet)), parallel=1)

    assert "3 nodes: 3 waiting" in capsys.readouterr().out
    assert [playbook for playbook, _ in fleet.runs] == ["facts"]


def test_what_is_staged_already_is_left_alone(fleet: FakeFleet, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage(fleet, cluster_of(fleet)) == 0
    fleet.runs.clear()
    assert stage(fleet, cluster_of(fleet)) == 0
    assert [playbook for playbook, _ in fleet.runs] == ["facts"]
    assert "2 staged" in capsys.readouterr().out
