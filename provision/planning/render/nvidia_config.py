"""Renders the node daemon's file of NVIDIA's form (contract ``docs/contracts/nvidia-config``), which YAML's JSON is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from provision.declaration.spec.model import AllocationPolicy, MigStrategy
from provision.planning.node_plan import FileContent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.declaration.spec.model import NamePattern, Plugin, PluginConfig, Share, SharingStrategy, StackSpec

NVIDIA_CONFIG_PATH = "/etc/grapnel/nvidia.json"
NAMED_CONFIGS: Final = "/etc/grapnel/nvidia.d"
DECLARED_CONFIGS: Final = "/etc/grapnel/declared-configs.json"


def render_nvidia_config(stack: StackSpec) -> str | None:
    """Return the file's text, None where nothing is declared that it would say: then a person's own file counts."""
    said = _said(stack.plugin)
    return _text(said) if said else None


def render_named_configs(stack: StackSpec) -> tuple[FileContent, ...]:
    """Return the files that a label of the Node chooses from; one that says nothing has the plugin's defaults."""
    return tuple(
        FileContent(named_config_path(name), _text(_said(config))) for name, config in stack.plugin.configs.items()
    )


def named_config_path(name: str) -> str:
    """Return where the file of a configuration is: its name is the label's value."""
    return f"{NAMED_CONFIGS}/{name}"


def _text(said: dict[str, Any]) -> str:
    return json.dumps({"version": "v1", **said}, indent=2) + "\n"


def _said(plugin: Plugin | PluginConfig) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    if plugin.mig_strategy is not MigStrategy.NONE:
        flags["migStrategy"] = plugin.mig_strategy.value
    if plugin.shared_devices_allocation_policy is not AllocationPolicy.DISTRIBUTED:
        flags["plugin"] = {"sharedDevicesAllocationPolicy": plugin.shared_devices_allocation_policy.value}
    names = {kind: _names(patterns) for kind in ("gpus", "mig") if (patterns := getattr(plugin.resources, kind))}
    ways = {"timeSlicing": plugin.sharing.time_slicing, "mps": plugin.sharing.mps}
    sharing = {name: _strategy(way) for name, way in ways.items() if way is not None}
    said = {"flags": flags, "resources": names, "sharing": sharing}
    return {key: value for key, value in said.items() if value}


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
