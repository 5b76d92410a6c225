"""Renders the CDI file: GPUs as devices that engines add to a container by name (``--device nvidia.com/gpu=0``). Pure.

Source: Container Device Interface specification, versions 0.3.0 to 1.1.0, and ``specs-go/version.go`` of its library
for which version a field needs. NVIDIA's names are kept: index, UUID, ``GPU:MIG`` index, MIG UUID, ``all``.

The file names device nodes and one hook, nothing of the driver's files: those are found by the hook when a container
starts. So a driver of another version leaves the file true. Numbers of nodes are left out as well: an engine that finds
none looks at the host's node when it adds it, so a major number that moved does no harm. Only a GPU or a MIG device
that comes or goes makes the file stale.
"""

from __future__ import annotations

from runtime_hook.base.deadline import DEFAULT_TIMEOUT_S
from runtime_hook.base.errors import InventoryError
from runtime_hook.engines.entry import hook_entry
from runtime_hook.inputs.bundle import INJECTION_BY_CDI
from runtime_hook.request.claim import INJECTION_VARIABLE, VISIBLE_DEVICES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from runtime_hook.host.inventory import Gpu, Inventory, MigDevice

KIND = "nvidia.com/gpu"
ALL = "all"
FORMATS = ("0.3.0", "0.5.0")  # without, and with what the second one brought
_COMMON_KINDS = ("ctl", "uvm", "uvm-tools", "modeset")
# The container's own node; the device rules of the container say who may open it. Capability nodes are read-only.
_NODE_MODE = 0o666
_CAPABILITY_MODE = 0o444
_CAPABILITY_FOLDER = "/dev/nvidia-caps/"

Json = dict[str, object]
# The names of one device, and its nodes.
Named = tuple[tuple[str, ...], tuple[str, ...]]


def render_cdi(
    inventory: Inventory, host_path: Callable[[str], str], hook_path: str, options: Sequence[str] = ()
) -> Json:
    """Return the document; ``host_path`` tells where the host sees a node, ``options`` are the hook's.

    InventoryError when there is no GPU: a document without devices is not valid.
    """
    gpus, mig = _whole_gpus(inventory), _mig_devices(inventory)
    every = tuple(dict.fromkeys(path for _, paths in (*gpus, *mig) for path in paths))
    if not every:
        raise InventoryError("no GPU to describe", "is the driver's kernel module loaded? nvidia-smi -L lists GPUs")
    devices = {name: paths for names, paths in (*gpus, *mig) for name in names}
    devices[ALL] = every
    common = [control.path for control in inventory.control if control.kind in _COMMON_KINDS]
    document: Json = {
        "cdiVersion": "",
        "kind": KIND,
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": _nodes(paths, host_path)}}
            for name, paths in devices.items()
        ],
        "containerEdits": {
            "env": [f"{VISIBLE_DEVICES}=void", f"{INJECTION_VARIABLE}={INJECTION_BY_CDI}"],
            "deviceNodes": _nodes(common, host_path),
            "hooks": [_hook(hook_path, options)],
        },
    }
    is_moved = host_path("/") != "/"
    return {**document, "cdiVersion": _least_version(devices, has_host_path=is_moved)}


def _least_version(names: Iterable[str], *, has_host_path: bool) -> str:
    """Return the lowest version that has every field in use: older engines refuse what is newer than they are."""
    starts_with_digit = any(name[:1].isdigit() for name in names)
    return FORMATS[starts_with_digit or has_host_path]


def _hook(path: str, options: Sequence[str]) -> Json:
    """Return the one hook. ``createRuntime`` runs where ``prestart`` did, and is not deprecated (OCI 1.0.2)."""
    entry = hook_entry(path, ("--entitlement", INJECTION_BY_CDI, *options), DEFAULT_TIMEOUT_S)
    return {"hookName": "createRuntime", **entry}


def _whole_gpus(inventory: Inventory) -> list[Named]:
    """Return names and nodes of each GPU; one that is divided into MIG devices is not given whole."""
    divided = {device.gpu_uuid for device in inventory.mig}
    return [
        ((str(gpu.index), gpu.uuid), (gpu.path, *(node.path for node in gpu.drm)))
        for gpu in inventory.gpus
        if gpu.uuid not in divided
    ]


def _mig_devices(inventory: Inventory) -> list[Named]:
    """Return names, as far as they are known, and nodes of each MIG device."""
    gpus = {gpu.uuid: gpu for gpu in inventory.gpus}
    return [
        (_mig_names(gpus[device.gpu_uuid], device), (gpus[device.gpu_uuid].path, *(node.path for node in device.nodes)))
        for device in inventory.mig
        if device.gpu_uuid in gpus
    ]


def _mig_names(gpu: Gpu, device: MigDevice) -> tuple[str, ...]:
    by_index = (f"{gpu.index}:{device.index}",) if device.index >= 0 else ()
    return (*by_index, *((device.uuid,) if device.uuid else ()))


def _nodes(paths: Iterable[str], host_path: Callable[[str], str]) -> list[Json]:
    return [_node(path, host_path(path)) for path in paths]


def _node(path: str, host_path: str) -> Json:
    mode = _CAPABILITY_MODE if path.startswith(_CAPABILITY_FOLDER) else _NODE_MODE
    where: Json = {"path": path} if host_path == path else {"path": path, "hostPath": host_path}
    return {**where, "fileMode": mode, "permissions": "rw"}
