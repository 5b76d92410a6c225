"""Shows what the hook would decide for a container, and why (``grapnel-hook explain``). Needs no root."""

from __future__ import annotations

import os

from runtime_hook.base.errors import HookError
from runtime_hook.base.values import value
from runtime_hook.container.compatfolder import TreeFolder
from runtime_hook.decision import Granted, Refused, decide
from runtime_hook.host.hosttree import HostTree
from runtime_hook.host.store import current_inventory, read_inventory
from runtime_hook.inputs.bundle import read_container_file
from runtime_hook.inputs.config import CONFIG_PATH, ENTITLEMENT_CDI, ENTITLEMENT_GPUS, load_config, with_changes
from runtime_hook.inputs.origin import find_origin
from runtime_hook.loader.compat import HostDriver, examine
from runtime_hook.loader.layout import COMPAT_FOLDER, choose_layout, with_compat
from runtime_hook.loader.platforms import this_platform
from runtime_hook.request.capabilities import CAPABILITIES_VARIABLE
from runtime_hook.request.claim import REQUIRE_PREFIX, VISIBLE_DEVICES, Nothing
from runtime_hook.request.grant import EXTRA_VARIABLES
from runtime_hook.request.requirements import DISABLE_VARIABLE
from runtime_hook.request.sources import CDI_ANNOTATION_PREFIX, IMEX_CHANNELS
from runtime_hook.request.visible import name_of_mig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.decision import Decision
    from runtime_hook.host.inventory import Inventory
    from runtime_hook.inputs.bundle import ContainerConfig
    from runtime_hook.inputs.config import HookConfig
    from runtime_hook.loader.layout import Layout

_GROUNDS = {
    "devices": "NVIDIA device nodes are among linux.devices of an unprivileged container",
    "annotation": "the container carries an allocation annotation",
    "docker-gpus": "Docker was asked for GPUs (--gpus)",
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
    container = _gather_container(sources)
    config = _gather_config(sources, container)
    origin = find_origin(container.annotations, container.cgroup)
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
    decision = decide(
        container,
        config,
        lambda: _read_inventory(sources, config),
        lambda inventory: _find_layout(container.rootfs, inventory),
    )
    return {**answer, **_show(decision)}


def _gather_container(sources: Sources) -> ContainerConfig:
    is_bundle = os.path.isdir(sources.target)
    bundle = os.path.abspath(sources.target if is_bundle else os.path.dirname(sources.target) or ".")
    return read_container_file(bundle + "/config.json" if is_bundle else sources.target, bundle, sources.owner)


def _gather_config(sources: Sources, container: ContainerConfig) -> HookConfig:
    config = load_config(sources.config_path or CONFIG_PATH, trusted=sources.config_path is None)
    config = with_changes(config, driver_root=os.path.abspath(sources.driver_root))
    if container.has_cdi_hook:
        return with_changes(config, entitlement=ENTITLEMENT_CDI)
    return with_changes(config, entitlement=ENTITLEMENT_GPUS) if container.has_gpus_hook else config


def _read_inventory(sources: Sources, config: HookConfig) -> Inventory:
    if sources.inventory_path is None:
        return current_inventory(config.inventory_path, HostTree(config.driver_root), write=False)
    inventory = read_inventory(sources.inventory_path, trusted=False)
    if inventory is None:
        raise HookError(f"inventory {sources.inventory_path} does not exist")
    return inventory


def _find_layout(rootfs: str, inventory: Inventory | None) -> Layout:
    """Find the layout as ``container.root`` does, in a root that nothing runs in."""
    root = HostTree(rootfs)
    layout = choose_layout(this_platform(), root.has)
    if inventory is None or not root.has(COMPAT_FOLDER):
        return layout
    host = HostDriver(inventory.driver_version, inventory.cuda_version)
    return with_compat(layout, examine(TreeFolder(root, COMPAT_FOLDER), host, layout.platform))


def _request(container: ContainerConfig, config: HookConfig) -> dict[str, object]:
    """Return what the container's own configuration asks for, whether or not it counts."""
    environment = container.environment
    further = {*EXTRA_VARIABLES, *config.swarm_resources, IMEX_CHANNELS, "CUDA_VERSION", DISABLE_VARIABLE}
    asked: dict[str, object] = {name: environment.get(name) for name in (VISIBLE_DEVICES, CAPABILITIES_VARIABLE)}
    asked |= {name: text for name, text in environment.items() if name in further or name.startswith(REQUIRE_PREFIX)}
    annotations = {name: text for name, text in container.annotations.items() if name.startswith(CDI_ANNOTATION_PREFIX)}
    return {**asked, "mounts": list(container.mount_requests), "cdiAnnotations": annotations}


def _show(decision: Decision) -> dict[str, object]:
    if isinstance(decision, Nothing):
        return {"reason": decision.reason}
    requirements = [dict(vars(finding)) for finding in decision.findings]
    if isinstance(decision, Refused):
        if not isinstance(decision.error, HookError):
            raise decision.error
        reason = str(decision.error)
        return {"reason": reason, "refused": reason, "requirements": requirements}
    return {**_show_grant(decision), "requirements": requirements}


def _show_grant(granted: Granted) -> dict[str, object]:
    grant = granted.grant
    return {
        "entitled": True,
        "source": grant.source,
        "reason": "; ".join(part for part in (_GROUNDS[grant.source], grant.note, *granted.notes) if part),
        "devices": _devices(granted),
        "extras": list(grant.extras),
        "imexChannels": list(grant.imex_channels),
        "capabilities": list(grant.capabilities),
        "operations": [operation.describe() for operation in granted.plan],
    }


def _devices(granted: Granted) -> list[dict[str, object]]:
    paths = {gpu.uuid: gpu.path for gpu in granted.inventory.gpus}
    whole: list[dict[str, object]] = [{"uuid": gpu.uuid, "path": gpu.path} for gpu in granted.grant.gpus]
    return whole + [
        {"uuid": name_of_mig(mig), "path": paths.get(mig.gpu_uuid, ""), "nodes": [node.path for node in mig.nodes]}
        for mig in granted.grant.mig
    ]
