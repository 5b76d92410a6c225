"""Renders the node daemon's configuration, ``/etc/grapnel/node.json`` (contract ``docs/contracts/node-config``)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from provision.declaration.spec.model import DaemonAs, GpuInterface
from provision.planning.render.nvidia_config import NAMED_CONFIGS, NVIDIA_CONFIG_PATH, render_nvidia_config

if TYPE_CHECKING:
    from provision.declaration.spec.model import MemoryUnits, Plugin, StackSpec

NODE_CONFIG_PATH = "/etc/grapnel/node.json"
_DEFAULTS: Final[dict[str, object]] = {
    "interface": "devicePlugin",
    "dynamicMig": False,
    "computeDomains": False,
    "labels": "auto",
    "nodeFeatureNamespace": "node-feature-discovery",
    "memoryLimits": "preferred",
    "memoryOveruse": "report",
    "overuseGraceSeconds": 120,
}


def render_node_config(stack: StackSpec) -> str:
    """Return the file's text; what it does not name has the daemon's default."""
    config: dict[str, Any] = {
        "schema": "grapnel.dev/node/v1alpha1",
        "resource": stack.plugin.resource,
        "kubeletRoot": stack.plugin.kubelet_root,
        **({} if stack.plugin.metrics_address is None else {"metricsAddress": stack.plugin.metrics_address}),
        **_api(stack.plugin),
        **_choices(stack.plugin),
        **({"claims": list(stack.plugin.claims)} if stack.plugin.interface is GpuInterface.BOTH else {}),
        **({} if render_nvidia_config(stack) is None else {"nvidiaConfigFile": NVIDIA_CONFIG_PATH}),
        **_by_label(stack.plugin),
        **({"memoryUnits": [_units(each) for each in stack.plugin.memory_units]} if stack.plugin.memory_units else {}),
    }
    return json.dumps(config, indent=2) + "\n"


def _api(plugin: Plugin) -> dict[str, object]:
    """Return through what the daemon reaches the API; a pod has its account, which claims take."""
    if plugin.daemon is DaemonAs.DAEMON_SET and plugin.interface.has_claims:
        return {"kubernetesApi": "in-cluster"}
    return {} if plugin.kubernetes_api is None else {"kubernetesApi": plugin.kubernetes_api}


def _by_label(plugin: Plugin) -> dict[str, object]:
    """Return where the configurations are that a label of the Node chooses from, nothing where there are none."""
    if not plugin.configs:
        return {}
    default = {} if plugin.default_config is None else {"nvidiaConfigDefault": plugin.default_config}
    return {"nvidiaConfigFolder": NAMED_CONFIGS, **default}


def _choices(plugin: Plugin) -> dict[str, object]:
    """Return the keys whose values are not the daemon's defaults."""
    given = {
        "interface": plugin.interface.value,
        "dynamicMig": plugin.dynamic_mig,
        "computeDomains": plugin.compute_domains,
        "labels": plugin.labels.value,
        "nodeFeatureNamespace": plugin.node_feature_namespace,
        "memoryLimits": plugin.memory_limits.value,
        "memoryOveruse": plugin.memory_overuse.value,
        "overuseGraceSeconds": plugin.overuse_grace_seconds,
    }
    return {key: value for key, value in given.items() if value != _DEFAULTS[key]}


def _units(units: MemoryUnits) -> dict[str, object]:
    devices = list(units.devices) or "all"
    memory = {} if units.memory_mib is None else {"memoryMiB": units.memory_mib}
    return {"resource": units.resource, "of": units.of, "devices": devices, "unitMiB": units.unit_mib, **memory}
