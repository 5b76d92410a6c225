"""Renders the hook's configuration, ``/etc/grapnel/hook.json`` (contract ``docs/contracts/hook-config``)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from provision.spec.model import Engine

if TYPE_CHECKING:
    from provision.spec.model import StackSpec

HOOK_CONFIG_PATH = "/etc/grapnel/hook.json"
HOOK_TIMEOUT_S = 30
CDI_PATH = "/var/run/cdi/grapnel.json"
# People name devices to these themselves; elsewhere the kubelet's device plugin does.
_ENGINES_WITH_DEVICES_BY_NAME = (Engine.DOCKER, Engine.PODMAN)


def render_hook_config(stack: StackSpec) -> str:
    """Return the file's text: what entitles a container, which parts of the driver the node has, and for whom."""
    config: dict[str, object] = {
        "schema": "grapnel.dev/hook-config/v1alpha1",
        "entitlement": stack.runtime.entitlement.value,
        "supportedDriverCapabilities": sorted(each.value for each in stack.driver.capabilities),
        "timeoutS": HOOK_TIMEOUT_S,
    }
    if stack.tenancy.namespaces:
        config["rules"] = [{"decision": "allow", "namespaces": sorted(stack.tenancy.namespaces)}]
    if stack.runtime.engine in _ENGINES_WITH_DEVICES_BY_NAME:
        config["cdi"] = CDI_PATH
    return json.dumps(config, indent=2) + "\n"
