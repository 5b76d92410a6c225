"""`plan` and `apply` of quotas, priorities and queues, beside nodes that need nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from provision.cli.change.apply import apply_nodes
from provision.cli.foresee.plan import show_plans
from provision.rollout.errors import ClusterError
from provision.rollout.interface.tenancy import NO_KUBERNETES, TenancyChange, TenancyOrder
from tests.provision.apply.fakes import FakeFleet, FakeNode, cluster_of, context, plan_drain, scope_of
from tests.provision.rollout.fakes import NEW, FakeCluster

MADE = "ResourceQuota training/grapnel is created: nvidia.com/gpu 2"
THEIRS = "PriorityClass urgent is there already, and is not grapnel's: kubectl-create made it"
TENANCY: dict[str, object] = {"tenants": [{"namespace": "training", "quota": {"nvidia.com/gpu": 2}}]}


@dataclass
class Tenants(FakeCluster):
    """A cluster in which one quota is missing."""

    changes: tuple[str, ...] = (MADE,)
    problems: tuple[str, ...] = ()
    orders: list[TenancyOrder] = field(default_factory=list)
    failure: ClusterError | None = None

    def compare_tenancy(self, order: TenancyOrder) -> TenancyChange:
        return TenancyChange(order=order, changes=self.changes, problems=self.problems)

    def set_tenancy(self, order: TenancyOrder) -> TenancyChange:
        if self.failure is not None:
            raise self.failure
        self.orders.append(order)
        return self.compare_tenancy(order)


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet({"n1": FakeNode(["driver"])})


@pytest.fixture
def cluster(fleet: FakeFleet) -> Tenants:
    return Tenants(cluster_of(fleet).nodes, classes=["nvidia"])


def apply(fleet: FakeFleet, cluster: FakeCluster, *, check: bool = False) -> int:
    scope = scope_of(cluster, driver={"version": NEW}, tenancy=TENANCY)
    return apply_nodes(context(fleet, plan_drain, check=check), scope, parallel=1, consent=True)


def plan(fleet: FakeFleet, cluster: FakeCluster, *, as_json: bool = False, **sections: Any) -> int:
    scope = scope_of(cluster, driver={"version": NEW}, **sections)
    return show_plans(context(fleet, plan_drain), scope, as_json=as_json, tell_changes=True)


def test_a_plan_says_what_tenants_get_and_what_stands_in_the_way(
    fleet: FakeFleet, cluster: Tenants, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.problems = (THEIRS,)
    assert plan(fleet, cluster, tenancy=TENANCY) == 3
    output = " ".join(capsys.readouterr().out.split())
    assert f"tenancy (cluster test): {MADE}" in output
    assert THEIRS in output
    assert cluster.orders == []
    plan(fleet, cluster, as_json=True, tenancy=TENANCY)
    assert json.loads(capsys.readouterr().out)["rollout"]["tenancy"] == {"changes": [MADE], "problems": [THEIRS]}


def test_apply_makes_it_though_no_node_needs_anything(
    fleet: FakeFleet, cluster: Tenants, capsys: pytest.CaptureFixture[str]
) -> None:
    assert apply(fleet, cluster) == 0
    assert [each.tenancy.tenants[0].quota for each in cluster.orders] == [{"nvidia.com/gpu": 2}]
    assert MADE in " ".join(capsys.readouterr().out.split())


def test_apply_ends_with_1_where_something_stands_in_the_way_and_does_the_rest(
    fleet: FakeFleet, cluster: Tenants, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.problems = (THEIRS,)
    assert apply(fleet, cluster) == 1
    assert len(cluster.orders) == 1
    assert THEIRS in " ".join(capsys.readouterr().err.split())


def test_nodes_are_done_where_the_cluster_refuses(
    fleet: FakeFleet, cluster: Tenants, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.nodes["n1"].packages.clear()
    cluster.failure = ClusterError("cluster test does not answer")
    assert apply(fleet, cluster) == 1
    assert fleet.applied() == ["n1"]
    assert "cluster test does not answer" in capsys.readouterr().err


def test_in_check_mode_nothing_is_made(fleet: FakeFleet, cluster: Tenants) -> None:
    apply(fleet, cluster, check=True)
    assert cluster.orders == []


def test_without_kubernetes_it_is_told(fleet: FakeFleet, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = cluster_of(fleet)
    assert plan(fleet, cluster, tenancy=TENANCY) == 0
    assert NO_KUBERNETES in " ".join(capsys.readouterr().out.split())
    plan(fleet, cluster, tenancy={"namespaces": ["training"]})
    assert NO_KUBERNETES not in " ".join(capsys.readouterr().out.split())
