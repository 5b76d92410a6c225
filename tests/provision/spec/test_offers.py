"""Which resources nodes offer, and what is said of a quota of others."""

from __future__ import annotations

from typing import Any

import pytest

from provision.declaration.spec.model import Plugin, StackSpec
from provision.declaration.spec.rules.offers import judge_offers, offered
from provision.declaration.spec.rules.tenancy import OF_CLASS
from provision.declaration.spec.text.findings import dotted
from provision.declaration.spec.validate import convert

GPU = "nvidia.com/gpu"
DRA: dict[str, Any] = {"interface": "dra", "kubernetesApi": "/etc/kubernetes/kubelet.conf"}
SHARED: dict[str, Any] = {
    "sharing": {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 4}], "renameByDefault": True}}
}


def specs(*plugins: dict[str, Any], quota: dict[str, int] | None = None) -> list[StackSpec]:
    tenancy = {"tenants": [{"namespace": "a", "quota": quota or {}}]}
    driver = {"version": "550.163.01"}
    return [convert({"driver": driver, "plugin": each, "tenancy": tenancy}, StackSpec) for each in plugins]


@pytest.mark.parametrize(
    ("plugin", "names"),
    [
        pytest.param({}, {GPU}, id="whole GPUs"),
        pytest.param({"resource": "example.com/gpu"}, {"example.com/gpu"}, id="under another name"),
        pytest.param(
            {"resources": {"gpus": [{"pattern": "*H100*", "name": "h100"}, {"pattern": "*", "name": "gpu"}]}},
            {"nvidia.com/h100", GPU},
            id="by product",
        ),
        pytest.param(SHARED, {f"{GPU}.shared"}, id="all of them as shares"),
        pytest.param(
            {"sharing": {"mps": {"resources": [{"name": "gpu", "replicas": 4, "rename": "part", "devices": ["0"]}]}}},
            {GPU, "nvidia.com/part"},
            id="some of them as shares",
        ),
        pytest.param({"memoryUnits": [{}]}, {"aliyun.com/gpu-mem"}, id="units of memory"),
        pytest.param(
            {"migStrategy": "mixed", "resources": {"mig": [{"pattern": "1g.*", "name": "small"}]}},
            {GPU, "nvidia.com/small"},
            id="MIG devices under names of their own",
        ),
    ],
)
def test_offered(plugin: dict[str, Any], names: set[str]) -> None:
    assert offered(convert(plugin, Plugin)) == names


@pytest.mark.parametrize(
    ("plugins", "name", "said"),
    [
        pytest.param([{}], GPU, None, id="offered"),
        pytest.param([{}], "requests.nvidia.com/gpu", None, id="offered, as a quota calls it"),
        pytest.param([{}], "nvidia.com/gpuu", "error", id="a misspelt name"),
        pytest.param([{}], "nvidia.com/mig-1g.10gb", "error", id="MIG devices that are not offered"),
        pytest.param([{"migStrategy": "mixed"}], "nvidia.com/mig-1g.10gb", None, id="MIG devices"),
        pytest.param([{}, {"migStrategy": "mixed"}], "nvidia.com/mig-1g.10gb", None, id="MIG devices of some nodes"),
        pytest.param([SHARED], GPU, "error", id="whole GPUs where all are shared"),
        pytest.param([{}, SHARED], GPU, None, id="whole GPUs of some nodes"),
        pytest.param([{}], "amd.com/gpu", "warning", id="what another device plugin may offer"),
        pytest.param([{"deviceClasses": ["amd-gpu"]}], "amd.com/gpu", None, id="another device class"),
        pytest.param([{"enabled": False}], "nvidia.com/gpuu", None, id="nobody knows what another plugin offers"),
        pytest.param([DRA], f"gpu.nvidia.com{OF_CLASS}", None, id="what claims ask for"),
        pytest.param([{}, DRA], f"large.example.com{OF_CLASS}", None, id="a class of somebody's own"),
        pytest.param([{}], f"gpu.nvidia.com{OF_CLASS}", "warning", id="claims where no node of grapnel has them"),
        pytest.param([{}], "cpu", None, id="what every node has"),
    ],
)
def test_a_quota_of_what_no_node_offers(plugins: list[dict[str, Any]], name: str, said: str | None) -> None:
    fleet = specs(*plugins, quota={name: 1})
    found = [(each.severity.value, dotted(each.path)) for each in judge_offers(fleet[0].tenancy, fleet)]
    assert found == ([] if said is None else [(said, dotted(("tenancy", "tenants", 0, "quota", name)))])


@pytest.mark.parametrize(
    ("plugins", "quota", "paths"),
    [
        pytest.param([{}, DRA], {GPU: 2}, ["tenancy.tenants[0].quota"], id="of GPUs alone"),
        pytest.param([DRA], {f"requests.{GPU}": 2, "cpu": 4}, ["tenancy.tenants[0].quota"], id="as a quota calls it"),
        pytest.param([DRA], {GPU: 2, f"gpu.nvidia.com{OF_CLASS}": 2}, [], id="of both"),
        pytest.param([DRA], {"cpu": 4}, [], id="of no GPU"),
        pytest.param([{}], {GPU: 2}, [], id="where there are no claims"),
    ],
)
def test_a_quota_that_holds_nobody_with_claims_is_told(
    plugins: list[dict[str, Any]], quota: dict[str, int], paths: list[str]
) -> None:
    found = specs(*plugins, quota=quota)

    assert [dotted(each.path) for each in judge_offers(found[0].tenancy, found)] == paths
