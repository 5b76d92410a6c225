"""Renders the node daemon's configuration, ``/etc/grapnel/node.json`` (contract ``docs/contracts/node-config``)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from provision.render.nvidia_config import NVIDIA_CONFIG_PATH, render_nvidia_config
from provision.spec.model import MemoryLimits

if TYPE_CHECKING:
    from provision.spec.model import MemoryUnits, StackSpec

NODE_CONFIG_PATH = "/etc/grapnel/node.json"


def render_node_config(stack: StackSpec) -> str:
    """Return the file's text; what it does not name has the daemon's default."""
    limits = stack.plugin.memory_limits
    config: dict[str, Any] = {
        "schema": "grapnel.dev/node/v1alpha1",
        "resource": stack.plugin.resource,
        "kubeletRoot": stack.plugin.kubelet_root,
        **({} if stack.plugin.metrics_address is None else {"metricsAddress": stack.plugin.metrics_address}),
        **({} if stack.plugin.kubernetes_api is None else {"kubernetesApi": stack.plugin.kubernetes_api}),
        **({} if limits is MemoryLimits.PREFERRED else {"memoryLimits": limits.value}),
        **({} if render_nvidia_config(stack) is None else {"nvidiaConfigFile": NVIDIA_CONFIG_PATH}),
        **({"memoryUnits": [_units(each) for each in stack.plugin.memory_units]} if stack.plugin.memory_units else {}),
    }
    return json.dumps(config, indent=2) + "\n"


def _units(units: MemoryUnits) -> dict[str, object]:
    devices = list(units.devices) or "all"
    return {"resource": units.resource, "of": units.of, "devices": devices, "unitMiB": units.unit_mib}
