"""What a declaration of tenants becomes, before any cluster has seen it."""

from __future__ import annotations

from typing import Any

from provision.declaration.spec.model import Tenancy
from provision.declaration.spec.validate import convert
from provision.planning.render.kueue import render_kueue
from provision.planning.render.tenancy import render_tenancy

GPU = "nvidia.com/gpu"


def rendered(**section: Any) -> dict[str, Any]:
    """Return the content of each object, by its kind and name."""
    tenancy = convert(section, Tenancy)
    objects = [*render_tenancy(tenancy), *render_kueue(tenancy)]
    return {f"{each.kind.kind} {each.namespace}/{each.name}": each.content for each in objects}


def test_namespaces_alone_make_nothing() -> None:
    assert rendered(namespaces=["training"], tenants=[{"namespace": "training"}]) == {}


def test_devices_are_counted_by_their_requests_and_what_kubernetes_knows_by_its_name() -> None:
    by_claims = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
    quota = {GPU: 8, "requests.nvidia.com/mig-1g.10gb": 7, "cpu": "64", "limits.memory": "1Ti", "count/jobs.batch": 5}
    quota[by_claims] = 6
    found = rendered(tenants=[{"namespace": "a", "quota": quota}])
    assert found["ResourceQuota a/grapnel"]["spec"]["hard"] == {
        "count/jobs.batch": "5",
        "cpu": "64",
        by_claims: "6",
        "limits.memory": "1Ti",
        f"requests.{GPU}": "8",
        "requests.nvidia.com/mig-1g.10gb": "7",
    }


def test_a_class_has_a_quota_of_its_own() -> None:
    found = rendered(tenants=[{"namespace": "a", "byPriority": {"urgent": {"pods": 4}}}])
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["urgent"]}
    expected = {"hard": {"pods": "4"}, "scopeSelector": {"matchExpressions": [scope]}}
    assert found == {"ResourceQuota a/grapnel-urgent": {"spec": expected}}


def test_a_maximum_of_devices_is_no_default() -> None:
    """Without it, Kubernetes gives the maximum to every container that asks for none."""
    containers = {"max": {GPU: 8, "cpu": "16"}, "default": {"memory": "4Gi"}, "defaultRequest": {"cpu": 1}}
    (limits,) = rendered(tenants=[{"namespace": "a", "containers": containers}])["LimitRange a/grapnel"]["spec"][
        "limits"
    ]
    assert limits == {
        "type": "Container",
        "default": {"memory": "4Gi", GPU: "0"},
        "defaultRequest": {"cpu": "1", GPU: "0"},
        "max": {"cpu": "16", GPU: "8"},
    }


def test_a_default_of_devices_that_is_declared_is_kept() -> None:
    containers = {"max": {GPU: 8}, "default": {GPU: 1}}
    (limits,) = rendered(tenants=[{"namespace": "a", "containers": containers}])["LimitRange a/grapnel"]["spec"][
        "limits"
    ]
    assert (limits["default"], "defaultRequest" in limits) == ({GPU: "1"}, False)


def test_every_flavor_of_a_queue_has_a_quota_of_all_that_it_covers() -> None:
    quotas = [{"flavor": "h100", "resources": {GPU: 8, "cpu": "64"}}, {"flavor": "a100", "resources": {GPU: 4}}]
    found = rendered(kueue={"queues": [{"name": "q", "quotas": quotas}]})
    (group,) = found["ClusterQueue /q"]["spec"]["resourceGroups"]
    assert group["coveredResources"] == ["cpu", GPU]
    assert [[each["nominalQuota"] for each in flavor["resources"]] for flavor in group["flavors"]] == [
        ["64", "8"],
        ["0", "4"],
    ]


def test_a_queue_that_no_namespace_names_is_for_none() -> None:
    """An empty selector would be every namespace."""
    quotas = [{"flavor": "h100", "resources": {GPU: 8}}]
    found = rendered(kueue={"queues": [{"name": "q", "quotas": quotas}]})
    (rule,) = found["ClusterQueue /q"]["spec"]["namespaceSelector"]["matchExpressions"]
    assert rule == {"key": "kubernetes.io/metadata.name", "operator": "DoesNotExist"}


def test_cohorts_are_those_of_queues_and_their_parents() -> None:
    quotas = [{"flavor": "h100", "resources": {GPU: 8}}]
    found = rendered(
        kueue={
            "cohorts": [{"name": "team", "parent": "site"}],
            "queues": [
                {"name": "q", "cohort": "team", "quotas": quotas},
                {"name": "r", "cohort": "x", "quotas": quotas},
            ],
        }
    )
    cohorts = {name: each["spec"] for name, each in found.items() if name.startswith("Cohort")}
    assert cohorts == {"Cohort /site": {}, "Cohort /team": {"parentName": "site"}, "Cohort /x": {}}
