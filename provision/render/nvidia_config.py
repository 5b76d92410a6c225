"""Renders the node daemon's file of NVIDIA's form (contract ``docs/contracts/nvidia-config``), which YAML's JSON is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from provision.spec.model import AllocationPolicy, MigStrategy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.spec.model import NamePattern, Share, SharingStrategy, StackSpec

NVIDIA_CONFIG_PATH = "/etc/grapnel/nvidia.json"


def render_nvidia_config(stack: StackSpec) -> str | None:
    """Return the file's text, None where nothing is declared that it would say: then a person's own file counts."""
    plugin = stack.plugin
    flags: dict[str, Any] = {}
    if plugin.mig_strategy is not MigStrategy.NONE:
        flags["migStrategy"] = plugin.mig_strategy.value
    if plugin.shared_devices_allocation_policy is not AllocationPolicy.DISTRIBUTED:
        flags["plugin"] = {"sharedDevicesAllocationPolicy": plugin.shared_devices_allocation_policy.value}
    names = {kind: _names(patterns) for kind in ("gpus", "mig") if (patterns := getattr(plugin.resources, kind))}
    ways = {"timeSlicing": plugin.sharing.time_slicing, "mps": plugin.sharing.mps}
    sharing = {name: _strategy(way) for name, way in ways.items() if way is not None}
    said = {"flags": flags, "resources": names, "sharing": sharing}
    if not any(said.values()):
        return None
    return json.dumps({"version": "v1", **{key: value for key, value in said.items() if value}}, indent=2) + "\n"


def _names(patterns: Sequence[NamePattern]) -> list[dict[str, str]]:
    return [{"pattern": each.pattern, "name": each.name} for each in patterns]


def _strategy(way: SharingStrategy) -> dict[str, Any]:
    refuses = way.fail_requests_greater_than_one
    return {
        **({"renameByDefault": True} if way.rename_by_default else {}),
        **({} if refuses is None else {"failRequestsGreaterThanOne": refuses}),
        "resources": [_share(share) for share in way.resources],
    }


def _share(share: Share) -> dict[str, Any]:
    return {
        "name": share.name,
        **({} if share.rename is None else {"rename": share.rename}),
        **({"devices": list(share.devices)} if share.devices else {}),
        "replicas": share.replicas,
    }
