"""Plans device nodes: those that the hook makes, or a check of those that the engine has made. Pure."""

from __future__ import annotations

from runtime_hook.base.errors import InventoryError, RequestError
from runtime_hook.host.inventory import Node, missing_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from runtime_hook.container.operations.operation import Operation
    from runtime_hook.host.inventory import ControlDevice, Gpu, Inventory
    from runtime_hook.inputs.bundle import DeviceNode, DeviceRule
    from runtime_hook.request.grant import Grant

DISPLAYING = ("graphics", "display")
BY_PATH = "/dev/dri/by-path"
# As NVIDIA's driver has them: to change MIG's layout is for root, also in a container. All else is open to all.
_MIG_MODES = {"mig-config": 0o400, "mig-monitor": 0o444}
_MIG_DEVICE_MODE = 0o444
_NODE_HINTS = {
    "uvm": "nvidia-modprobe -c0 -u makes it",
    "ctl": "nvidia-modprobe -c0 makes it",
    "modeset": "nvidia-modprobe -m makes it",
}


def plan_devices(
    grant: Grant, inventory: Inventory, rules: tuple[DeviceRule, ...], host_path: Callable[[str], str]
) -> list[Operation]:
    """Return what makes the container's device nodes, links to them, and the rules that they still need.

    InventoryError when a node that a capability cannot do without is missing on the host. Programs that look for
    nodes of extras (GDS and the like) come as far as the host has them, as with NVIDIA's toolkit.
    """
    from runtime_hook.container.devicerules import is_allowed
    from runtime_hook.container.operations.devices import AddDeviceNode, AllowDevices
    from runtime_hook.container.operations.files import NoteAbsent

    nodes = [*needed_nodes(grant, inventory), *_further_nodes(grant, inventory)]
    modes = _modes(grant, inventory)
    present = {device.kind for device in inventory.control}
    operations: list[Operation] = [
        AddDeviceNode(node.path, node.major, node.minor, source=host_path(node.path), mode=modes.get(node, 0o666))
        for node in nodes
    ]
    operations += link_drm(grant, {(node.major, node.minor) for node in nodes})
    operations += [NoteAbsent(f"{kind} devices") for kind in grant.extras if kind not in present]
    numbers = dict.fromkeys((node.major, node.minor) for node in nodes)
    forbidden = tuple(number for number in numbers if not is_allowed(rules, *number))
    return [*operations, AllowDevices(forbidden)] if forbidden else operations


def check_given(grant: Grant, inventory: Inventory, given: Iterable[DeviceNode]) -> None:
    """Refuse a container whose list of devices lacks one that its capabilities cannot do without.

    The engine made those nodes, and the hook may not add to them; NVIDIA's toolkit lets such a container start, in
    which ``nvidia-smi`` works and CUDA does not.
    """
    numbers = {(device.major, device.minor) for device in given}
    for node in needed_nodes(grant, inventory):
        if (node.major, node.minor) not in numbers:
            raise RequestError(
                f"device node {node.path} {node.major}:{node.minor} was not given to the container with its GPU",
                "whoever allocates GPUs (device plugin, CDI) has to give it, too; or ask for fewer driver capabilities",
            )


def needed_nodes(grant: Grant, inventory: Inventory) -> list[Node]:
    """Return the nodes without which the grant is not worth anything: GPUs, MIG capabilities, control nodes."""
    nodes = [Node(gpu.path, gpu.major, gpu.minor) for gpu in (*grant.gpus, *mig_parents(grant, inventory))]
    nodes += [node for device in grant.mig for node in device.nodes]
    kinds = ["ctl"]
    if "compute" in grant.capabilities:
        kinds.append("uvm")
    if "display" in grant.capabilities and grant.adds_devices:
        kinds.append("modeset")
    nodes += [_control_node(inventory, kind) for kind in kinds]
    return list(dict.fromkeys(nodes))


def mig_parents(grant: Grant, inventory: Inventory) -> list[Gpu]:
    """Return the GPUs of the granted MIG devices."""
    wanted = {device.gpu_uuid for device in grant.mig}
    parents = [gpu for gpu in inventory.gpus if gpu.uuid in wanted]
    missing = sorted(wanted - {gpu.uuid for gpu in parents})
    if missing:
        raise InventoryError(f"GPU {missing[0]}, which has a MIG device of the container, is missing on this host")
    return parents


def link_drm(grant: Grant, given: set[tuple[int, int]]) -> list[Operation]:
    """Return links by PCI path to the GPUs' DRM nodes among the given ones, as udev has them."""
    if not any(word in DISPLAYING for word in grant.capabilities):
        return []
    from runtime_hook.container.operations.devices import LinkDevice

    operations: list[Operation] = []
    for gpu in grant.gpus:
        for node in gpu.drm:
            if (node.major, node.minor) in given:
                name = node.path.rpartition("/")[2]
                kind = "render" if name.startswith("render") else "card"
                operations.append(LinkDevice(f"{BY_PATH}/pci-{gpu.pci_address.lower()}-{kind}", f"../{name}"))
    return operations


def _control_node(inventory: Inventory, kind: str) -> Node:
    for device in inventory.control:
        if device.kind == kind:
            return _node(device)
    from runtime_hook.host.driverfiles import CONTROL_NODES

    raise missing_node(inventory, CONTROL_NODES[kind], _NODE_HINTS[kind])


def _modes(grant: Grant, inventory: Inventory) -> dict[Node, int]:
    """Return the modes of MIG's capability nodes; another of the same name would be open to every user inside."""
    modes = {node: _MIG_DEVICE_MODE for device in grant.mig for node in device.nodes}
    modes.update((_node(each), _MIG_MODES[each.kind]) for each in inventory.control if each.kind in _MIG_MODES)
    return modes


def _node(device: ControlDevice) -> Node:
    return Node(device.path, device.major, device.minor)


def _further_nodes(grant: Grant, inventory: Inventory) -> list[Node]:
    """Return nodes that are given as far as they are there: for profilers, displays, extras, IMEX channels."""
    kinds = list(grant.extras)
    if "compute" in grant.capabilities:
        kinds.append("uvm-tools")
    nodes = [_node(device) for kind in kinds for device in inventory.control if device.kind == kind]
    if any(word in DISPLAYING for word in grant.capabilities):
        nodes += [node for gpu in grant.gpus for node in gpu.drm]
    return nodes + [_imex_node(inventory, channel) for channel in grant.imex_channels]


def _imex_node(inventory: Inventory, channel: int) -> Node:
    """Return the node of an IMEX channel, whose minor is its number (NVIDIA's ``internal/nvcaps``)."""
    if not inventory.imex.has(channel):
        raise missing_node(inventory, inventory.imex.node(channel).path, "nvidia-modprobe makes it")
    return inventory.imex.node(channel)
