"""Rules across keys, one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from provision.declaration.spec.model import StackSpec
from provision.declaration.spec.rules.every import judge
from provision.declaration.spec.text.findings import Severity, dotted
from provision.declaration.spec.validate import convert

VERSION = {"driver": {"version": "550.163.01"}}
DRA: dict[str, Any] = {"interface": "dra", "kubernetesApi": "/etc/kubernetes/kubelet.conf"}
POD: dict[str, Any] = {"interface": "dra", "daemon": "daemonset"}
SHARED: dict[str, Any] = {"resources": [{"name": "nvidia.com/gpu", "replicas": 2}]}


def remarks(**sections: dict[str, Any]) -> list[tuple[str, str]]:
    """Return severity and key of each remark about a declaration that is fine but for these sections."""
    spec = convert({**VERSION, **sections}, StackSpec)
    return [(each.severity.value, dotted(each.path)) for each in judge(spec)]


def test_the_shortest_declaration_is_beyond_doubt() -> None:
    assert remarks() == []


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        pytest.param({"driver": {}}, ("error", "driver.version"), id="an enabled driver needs a version"),
        pytest.param(
            {"driver": {"enabled": False, "kernelModule": "open"}},
            ("warning", "driver.kernelModule"),
            id="a module of a driver that is left alone",
        ),
        pytest.param({"runtime": {"engine": "podman"}}, ("error", "runtime.entitlement"), id="podman knows no kubelet"),
        pytest.param(
            {"plugin": {"enabled": False}}, ("warning", "runtime.entitlement"), id="nobody allocates for the kubelet"
        ),
        pytest.param(
            {"runtime": {"entitlement": "env"}}, ("warning", "runtime.entitlement"), id="images help themselves"
        ),
        pytest.param(
            {"plugin": {"resource": "kubernetes.io/gpu"}}, ("error", "plugin.resource"), id="Kubernetes' own domain"
        ),
        pytest.param({"plugin": {"interface": "dra"}}, ("error", "plugin.interface"), id="claims that nobody reads"),
        pytest.param(
            {"plugin": DRA | {"interface": "both"}}, ("error", "plugin.claims"), id="a division that names no GPU"
        ),
        pytest.param(
            {"plugin": {"interface": "both", "claims": ["1"]}},
            ("error", "plugin.interface"),
            id="some that nobody reads",
        ),
        pytest.param(
            {"plugin": DRA | {"claims": ["1"]}}, ("warning", "plugin.claims"), id="some where claims have all of them"
        ),
        pytest.param(
            {"plugin": DRA | {"interface": "both", "claims": ["1"], "dynamicMig": True}},
            ("error", "plugin.dynamicMig"),
            id="MIG devices for claims beside the device plugin's",
        ),
        pytest.param(
            {"plugin": POD | {"dynamicMig": True}}, ("error", "plugin.dynamicMig"), id="nodes that a pod cannot make"
        ),
        pytest.param(
            {"plugin": POD | {"computeDomains": True}},
            ("error", "plugin.computeDomains"),
            id="a service that a pod cannot ask",
        ),
        pytest.param(
            {"plugin": {"computeDomains": True}},
            ("error", "plugin.computeDomains"),
            id="channels of domains by the device plugin",
        ),
        pytest.param(
            {"plugin": DRA, "runtime": {"engine": "docker"}},
            ("error", "plugin.interface"),
            id="an engine that is handed no device by its name",
        ),
        pytest.param(
            {"plugin": DRA | {"resources": {"gpus": [{"pattern": "*", "name": "a"}]}}},
            ("warning", "plugin.resources"),
            id="names that no claim goes by",
        ),
        pytest.param(
            {
                "node": {
                    "taints": [{"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoExecute", "value": "b"}]
                }
            },
            ("error", "node.taints[1]"),
            id="one taint twice",
        ),
        pytest.param(
            {"rollout": {"maxUnavailable": 2, "maxParallel": 3}}, ("warning", "rollout.maxParallel"), id="idle hands"
        ),
        pytest.param(
            {"rollout": {"waves": [{"soakMinutes": 5}, {}]}},
            ("error", "rollout.waves[0]"),
            id="a first wave that takes everything",
        ),
        pytest.param(
            {"rollout": {"waves": [{"size": 1}, {"size": 1}]}},
            ("error", "rollout.waves[1]"),
            id="waves that leave nodes out",
        ),
        pytest.param(
            {"rollout": {"waves": [{"size": "60%"}, {"size": "40%"}, {}]}},
            ("error", "rollout.waves"),
            id="waves that leave none for the last",
        ),
        pytest.param(
            {"rollout": {"waves": [{"hosts": ["n1"]}, {"hosts": ["n1"]}, {}]}},
            ("error", "rollout.waves[1]"),
            id="a host in two waves",
        ),
        pytest.param(
            {"rollout": {"waves": [{"groups": ["a"]}, {"groups": ["a"]}, {}]}},
            ("error", "rollout.waves[1]"),
            id="a group in two waves",
        ),
        pytest.param(
            {"rollout": {"waves": [{"name": "a", "size": 1}, {"name": "a"}]}},
            ("error", "rollout.waves[1]"),
            id="two waves of one name",
        ),
        pytest.param({"runtime": {"source": "docker"}}, ("error", "runtime.repository"), id="a source without its key"),
        pytest.param(
            {
                "driver": {"enabled": False, "source": "bundle", "repository": {"folder": "/srv/site.bundle"}},
                "runtime": {"source": "docker"},
            },
            ("error", "runtime.repository"),
            id="a source without its key, beside a bundle that is not opened",
        ),
        pytest.param(
            {"rollout": {"waves": [{"size": 1}, {"gate": "hold"}]}},
            ("warning", "rollout.waves[1]"),
            id="a gate that nobody goes through",
        ),
    ],
)
def test_each_rule_names_the_key_to_change(sections: dict[str, Any], expected: tuple[str, str]) -> None:
    assert expected in remarks(**sections)


@pytest.mark.parametrize(
    "sections",
    [
        pytest.param({"driver": {"enabled": False}}, id="a driver that is left alone needs no version"),
        pytest.param(
            {"runtime": {"entitlement": "env"}, "plugin": {"enabled": False}}, id="a trusted machine without kubelet"
        ),
        pytest.param({"plugin": {"resource": "notkubernetes.io/gpu"}}, id="a domain that only ends alike"),
        pytest.param({"plugin": DRA, "runtime": {"engine": "crio"}}, id="claims, with what they need"),
        pytest.param({"plugin": DRA | {"migStrategy": "mixed"}}, id="claims of MIG devices"),
        pytest.param({"plugin": POD}, id="claims that a pod serves by its account"),
        pytest.param({"plugin": {"daemon": "daemonset", "configs": {"a": {}}}}, id="a label that a pod hears of"),
        pytest.param({"plugin": DRA | {"sharing": {"mps": SHARED}}}, id="claims of shares"),
        pytest.param(
            {
                "plugin": DRA
                | {"resources": {"gpus": [{"pattern": "*", "name": "gpu"}]}, "sharing": {"timeSlicing": SHARED}}
            },
            id="names by which devices are shared",
        ),
        pytest.param({"rollout": {"soakMinutes": 5, "drainTimeoutMinutes": 60}}, id="a patient rollout"),
        pytest.param(
            {
                "rollout": {
                    "waves": [{"groups": ["a"], "size": 1, "gate": "hold"}, {"groups": ["a"]}, {"size": "50%"}, {}]
                }
            },
            id="some of a group, then the rest of it, then halves of what is left",
        ),
        pytest.param({"tenancy": {"namespaces": ["a"]}}, id="tenants"),
        pytest.param(
            {
                "driver": {**VERSION["driver"], "source": "bundle", "repository": {"folder": "/srv/site.bundle"}},
                "runtime": {"source": "docker"},
            },
            id="an engine that comes in the driver's bundle",
        ),
    ],
)
def test_what_looks_odd_and_is_fine(sections: dict[str, Any]) -> None:
    assert remarks(**sections) == []


def test_one_key_may_have_taints_of_several_effects() -> None:
    taints = [{"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoSchedule"}]
    spec = convert({**VERSION, "node": {"taints": taints}}, StackSpec)
    assert not [each for each in judge(spec) if each.severity is Severity.ERROR]
