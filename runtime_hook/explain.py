"""``grapnel-hook explain``: what the hook would do for a container, and why. Changes nothing, needs no root."""

from __future__ import annotations

import os

from runtime_hook.bundle import read_container_file
from runtime_hook.config import CONFIG_PATH, load_config
from runtime_hook.entitlement import VISIBLE_DEVICES, NoClaim, find_claim
from runtime_hook.errors import HookError
from runtime_hook.host.hosttree import HostTree
from runtime_hook.host.platforms import this_platform
from runtime_hook.host.store import check_versions, current_inventory, read_inventory
from runtime_hook.plan.layout import choose_layout
from runtime_hook.plan.planner import Planner
from runtime_hook.request.allotment import allot
from runtime_hook.request.capabilities import CAPABILITIES_VARIABLE
from runtime_hook.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.bundle import ContainerConfig
    from runtime_hook.config import HookConfig
    from runtime_hook.host.inventory import Inventory
    from runtime_hook.request.allotment import Allotment


@value
class Sources:
    """Where to read from; None means the node's own."""

    target: str
    inventory_path: str | None = None
    config_path: str | None = None
    driver_root: str = "/"


def explain(sources: Sources) -> dict[str, object]:
    """Explain one bundle or one ``config.json``; HookError when it cannot be read at all."""
    is_bundle = os.path.isdir(sources.target)
    bundle = os.path.abspath(sources.target if is_bundle else os.path.dirname(sources.target) or ".")
    container = read_container_file(bundle + "/config.json" if is_bundle else sources.target, bundle)
    config = load_config(sources.config_path or CONFIG_PATH, trusted=sources.config_path is None)
    answer: dict[str, object] = {
        "entitled": False,
        "entitlement": config.entitlement,
        "source": None,
        "reason": "",
        "request": _request(container),
        "devices": [],
        "capabilities": [],
        "operations": [],
        "refused": None,
    }
    try:
        answer.update(_decide(sources, container, config))
    except HookError as refusal:
        answer["refused"] = answer["reason"] = str(refusal)
    return answer


def _request(container: ContainerConfig) -> dict[str, object]:
    """Return what the container's environment asks for, whether or not it counts."""
    return {name: container.environment.get(name) for name in (VISIBLE_DEVICES, CAPABILITIES_VARIABLE)}


def _decide(sources: Sources, container: ContainerConfig, config: HookConfig) -> dict[str, object]:
    claim = find_claim(container, config)
    if isinstance(claim, NoClaim):
        return {"reason": claim.reason}
    tree = HostTree(sources.driver_root)
    inventory = _inventory(sources, config, tree)
    allotment = allot(claim, container, config, inventory)
    if isinstance(allotment, NoClaim):
        return {"reason": allotment.reason}
    check_versions(inventory)
    return _granted(allotment, container, inventory, tree)


def _inventory(sources: Sources, config: HookConfig, tree: HostTree) -> Inventory:
    if sources.inventory_path is None:
        return current_inventory(config.inventory_path, tree, write=False)
    inventory = read_inventory(sources.inventory_path, trusted=False)
    if inventory is None:
        raise HookError(f"inventory {sources.inventory_path} does not exist")
    return inventory


def _granted(
    allotment: Allotment, container: ContainerConfig, inventory: Inventory, tree: HostTree
) -> dict[str, object]:
    platform = this_platform()
    layout = choose_layout(platform, lambda path: os.path.lexists(container.rootfs + path))
    planner = Planner(inventory, platform, tree.host_path)
    plan = planner.plan(allotment, layout, container.device_rules, container.devices)
    grounds = {
        "devices": "NVIDIA device nodes are among linux.devices of an unprivileged container",
        "annotation": "the container carries an allocation annotation",
        "environment": f"{VISIBLE_DEVICES} is an entitlement on this node",
    }
    return {
        "entitled": True,
        "source": allotment.source,
        "reason": "; ".join(part for part in (grounds[allotment.source], allotment.note) if part),
        "devices": [{"uuid": gpu.uuid, "path": gpu.path} for gpu in allotment.gpus],
        "capabilities": list(allotment.capabilities),
        "operations": [operation.describe() for operation in plan],
    }
