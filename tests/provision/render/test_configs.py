"""The configuration of hook and daemon says what was declared, in the words of their contracts."""

from __future__ import annotations

import json

from provision.planning.render.hook_config import render_hook_config
from provision.planning.render.node_config import render_node_config
from tests.provision.samples import make_stack


def test_the_hook_learns_who_entitles_and_what_the_node_has() -> None:
    stack = make_stack(driver={"capabilities": ["video", "compute"]}, runtime={"entitlement": "env"})

    assert json.loads(render_hook_config(stack)) == {
        "schema": "grapnel.dev/hook-config/v1alpha1",
        "entitlement": "env",
        "supportedDriverCapabilities": ["compute", "video"],
        "timeoutS": 30,
    }


def test_the_hook_learns_whose_pods_may_have_gpus() -> None:
    stack = make_stack(tenancy={"namespaces": ["web", "training"]})

    assert json.loads(render_hook_config(stack))["rules"] == [{"decision": "allow", "namespaces": ["training", "web"]}]


def test_the_daemon_learns_its_resource_and_where_the_kubelet_is() -> None:
    stack = make_stack(plugin={"resource": "example.com/gpu", "kubeletRoot": "/srv/kubelet"})

    assert json.loads(render_node_config(stack)) == {
        "schema": "grapnel.dev/node/v1alpha1",
        "resource": "example.com/gpu",
        "kubeletRoot": "/srv/kubelet",
    }


def test_the_daemon_learns_through_what_pods_get_gpus_where_that_is_not_the_device_plugin() -> None:
    by_claims = make_stack(plugin={"interface": "dra", "kubernetesApi": "/etc/kubernetes/kubelet.conf"})

    assert json.loads(render_node_config(by_claims))["interface"] == "dra"
    assert "dynamicMig" not in json.loads(render_node_config(by_claims))
    made = make_stack(plugin={"interface": "dra", "dynamicMig": True, "kubernetesApi": "/etc/kubernetes/kubelet.conf"})
    assert json.loads(render_node_config(made))["dynamicMig"] is True
    assert "computeDomains" not in json.loads(render_node_config(made))
    joins = {"interface": "dra", "computeDomains": True, "kubernetesApi": "/etc/kubernetes/kubelet.conf"}
    assert json.loads(render_node_config(make_stack(plugin=joins)))["computeDomains"] is True
    assert "interface" not in json.loads(render_node_config(make_stack(plugin={"interface": "devicePlugin"})))


def test_the_daemon_learns_what_is_declared_of_it() -> None:
    declared = {
        "kubernetesApi": "/etc/kubernetes/kubelet.conf",
        "metricsAddress": "0.0.0.0:9400",
        "memoryLimits": "required",
        "labels": "nodeFeature",
        "nodeFeatureNamespace": "nfd",
        "memoryOveruse": "evict",
        "overuseGraceSeconds": 300,
    }

    rendered = json.loads(render_node_config(make_stack(plugin=declared)))

    assert {key: rendered.get(key) for key in declared} == declared
