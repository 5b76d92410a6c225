"""``grapnel-hook explain``: what the hook would do for a container, and why. Changes nothing, needs no root."""

from __future__ import annotations

import os

from runtime_hook.bundle import read_container_file
from runtime_hook.config import CONFIG_PATH, entitled_by_cdi, load_config
from runtime_hook.container.compatfolder import TreeFolder
from runtime_hook.entitlement import REQUIRE_PREFIX, VISIBLE_DEVICES, NoClaim, find_claim
from runtime_hook.errors import HookError
from runtime_hook.host.hosttree import HostTree
from runtime_hook.host.platforms import this_platform
from runtime_hook.host.store import check_nodes, check_versions, current_inventory, read_inventory
from runtime_hook.loadercache.compat import HostDriver, examine
from runtime_hook.origin import find_origin
from runtime_hook.plan.layout import COMPAT_FOLDER, choose_layout, wants_compat, with_compat
from runtime_hook.plan.planner import Planner
from runtime_hook.policy import settle
from runtime_hook.request import requirements
from runtime_hook.request.allotment import EXTRA_VARIABLES, allot, gpus_of
from runtime_hook.request.capabilities import CAPABILITIES_VARIABLE
from runtime_hook.request.sources import CDI_ANNOTATION_PREFIX, IMEX_CHANNELS
from runtime_hook.request.visible import name_of_mig
from runtime_hook.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.bundle import ContainerConfig
    from runtime_hook.config import HookConfig
    from runtime_hook.host.inventory import Inventory
    from runtime_hook.request.allotment import Allotment

_GROUNDS = {
    "devices": "NVIDIA device nodes are among linux.devices of an unprivileged container",
    "annotation": "the container carries an allocation annotation",
    "environment": f"{VISIBLE_DEVICES} is an entitlement on this node",
    "swarm-resource": "a swarm resource variable is an entitlement on this node",
    "volume-mount": "volume mounts are an entitlement on this node",
    "cdi-annotation": "CDI annotations are an entitlement on this node",
}


@value
class Sources:
    """Where to read from; None means the node's own. ``owner`` is the user who runs a rootless engine."""

    target: str
    inventory_path: str | None = None
    config_path: str | None = None
    driver_root: str = "/"
    owner: int | None = None


def explain(sources: Sources) -> dict[str, object]:
    """Explain one bundle or one ``config.json``; HookError when it cannot be read at all."""
    is_bundle = os.path.isdir(sources.target)
    bundle = os.path.abspath(sources.target if is_bundle else os.path.dirname(sources.target) or ".")
    path = bundle + "/config.json" if is_bundle else sources.target
    container = read_container_file(path, bundle)
    origin = find_origin(container.annotations, container.cgroup)
    config = settle(_load_policy(sources), container, origin, sources.owner)
    if container.has_cdi_hook:
        config = entitled_by_cdi(config)
    answer: dict[str, object] = {
        "entitled": False,
        "entitlement": config.entitlement,
        "namespace": origin.namespace,
        "pod": origin.pod,
        "source": None,
        "reason": "",
        "request": _request(container, config),
        "devices": [],
        "extras": [],
        "imexChannels": [],
        "capabilities": [],
        "requirements": [],
        "operations": [],
        "refused": None,
    }
    try:
        _decide(sources, container, config, answer)
    except HookError as refusal:
        answer["refused"] = answer["reason"] = str(refusal)
    return answer


def _load_policy(sources: Sources) -> HookConfig:
    return load_config(sources.config_path or CONFIG_PATH, trusted=sources.config_path is None)


def _request(container: ContainerConfig, config: HookConfig) -> dict[str, object]:
    """Return what the container's own configuration asks for, whether or not it counts."""
    environment = container.environment
    further = {*EXTRA_VARIABLES, *config.swarm_resources, IMEX_CHANNELS, "CUDA_VERSION", requirements.DISABLE_VARIABLE}
    asked: dict[str, object] = {name: environment.get(name) for name in (VISIBLE_DEVICES, CAPABILITIES_VARIABLE)}
    asked |= {name: text for name, text in environment.items() if name in further or name.startswith(REQUIRE_PREFIX)}
    annotations = {name: text for name, text in container.annotations.items() if name.startswith(CDI_ANNOTATION_PREFIX)}
    return {**asked, "mounts": list(container.mount_requests), "cdiAnnotations": annotations}


def _decide(sources: Sources, container: ContainerConfig, config: HookConfig, answer: dict[str, object]) -> None:
    """Fill in the answer step by step, so that a refusal leaves what was decided before it."""
    claim = find_claim(container, config)
    if isinstance(claim, NoClaim):
        answer["reason"] = claim.reason
        return
    tree = HostTree(sources.driver_root)
    inventory = _inventory(sources, config, tree)
    allotment = allot(claim, container, config, inventory)
    if isinstance(allotment, NoClaim):
        answer["reason"] = allotment.reason
        return
    check_versions(inventory)
    check_nodes(inventory, container.devices)
    found = requirements.find_requirements(container.environment, is_disabled=config.disable_require)
    gpus = gpus_of(allotment, inventory)
    answer["requirements"] = [dict(vars(each)) for each in requirements.evaluate(found, inventory, gpus)]
    notes = requirements.check_requirements(found, inventory, gpus)
    answer.update(_granted(allotment, container, config, inventory, tree))
    answer["reason"] = "; ".join(part for part in (_GROUNDS[allotment.source], allotment.note, *notes) if part)


def _inventory(sources: Sources, config: HookConfig, tree: HostTree) -> Inventory:
    if sources.inventory_path is None:
        return current_inventory(config.inventory_path, tree, write=False)
    inventory = read_inventory(sources.inventory_path, trusted=False)
    if inventory is None:
        raise HookError(f"inventory {sources.inventory_path} does not exist")
    return inventory


def _granted(
    allotment: Allotment, container: ContainerConfig, config: HookConfig, inventory: Inventory, tree: HostTree
) -> dict[str, object]:
    platform = this_platform()
    root = HostTree(container.rootfs)
    layout = choose_layout(platform, root.has)
    if wants_compat(allotment, config) and root.has(COMPAT_FOLDER):
        host = HostDriver(inventory.driver_version, inventory.cuda_version)
        layout = with_compat(layout, examine(TreeFolder(root, COMPAT_FOLDER), host, platform))
    planner = Planner(inventory, platform, tree.host_path)
    plan = planner.plan(allotment, layout, container.device_rules, container.devices)
    return {
        "entitled": True,
        "source": allotment.source,
        "devices": _devices(allotment, inventory),
        "extras": list(allotment.extras),
        "imexChannels": list(allotment.imex_channels),
        "capabilities": list(allotment.capabilities),
        "operations": [operation.describe() for operation in plan],
    }


def _devices(allotment: Allotment, inventory: Inventory) -> list[dict[str, object]]:
    paths = {gpu.uuid: gpu.path for gpu in inventory.gpus}
    whole: list[dict[str, object]] = [{"uuid": gpu.uuid, "path": gpu.path} for gpu in allotment.gpus]
    return whole + [
        {"uuid": name_of_mig(mig), "path": paths.get(mig.gpu_uuid, ""), "nodes": [node.path for node in mig.nodes]}
        for mig in allotment.mig
    ]
