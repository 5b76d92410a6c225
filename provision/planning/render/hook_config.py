"""Renders the hook's configuration, ``/etc/grapnel/hook.json`` (contract ``docs/contracts/hook-config``)."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.declaration.spec.model import StackSpec

HOOK_CONFIG_PATH = "/etc/grapnel/hook.json"
HOOK_TIMEOUT_S = 30
CDI_PATH = "/var/run/cdi/grapnel.json"


def render_hook_config(stack: StackSpec, *, names_devices: bool = False) -> str:
    """Return the file's text: what entitles a container, which parts of the driver the node has, and for whom.

    With ``names_devices`` people name devices to the engine themselves; elsewhere the kubelet's device plugin does.
    """
    capabilities = tuple(sorted(each.value for each in stack.driver.capabilities))
    namespaces = tuple(sorted(stack.tenancy.namespaces))
    return _rendered(stack.runtime.entitlement.value, capabilities, namespaces, names_devices=names_devices)


@lru_cache(maxsize=64)
def _rendered(entitlement: str, capabilities: Sequence[str], namespaces: Sequence[str], *, names_devices: bool) -> str:
    config: dict[str, object] = {
        "schema": "grapnel.dev/hook-config/v1alpha1",
        "entitlement": entitlement,
        "supportedDriverCapabilities": capabilities,
        "timeoutS": HOOK_TIMEOUT_S,
    }
    if namespaces:
        config["rules"] = [{"decision": "allow", "namespaces": namespaces}]
    if names_devices:
        config["cdi"] = CDI_PATH
    return json.dumps(config, indent=2) + "\n"
