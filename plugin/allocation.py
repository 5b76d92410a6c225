"""What a container gets for the devices it was given: contract `docs/contracts/allocation`.

Pure: a table is prepared when the inventory changes, an answer is a look-up in it. Nothing here asks
NVML or the file system, so an answer cannot hang in the kubelet's admission of a pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.errors import DeviceNotReady, InvalidRequest
from plugin.topology.machine import NO_TOPOLOGY, Topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plugin.inventory import Inventory

ANNOTATION = "grapnel.dev/allocation"
ENVIRONMENT = "NVIDIA_VISIBLE_DEVICES"
_MAX_ID = 63  # the device plugin API's limit for a device id
_PERMISSIONS = "rw"


@dataclass(frozen=True)
class DeviceNode:
    """A device node in the container and the one on the host behind it."""

    container_path: str
    host_path: str
    permissions: str = _PERMISSIONS


@dataclass(frozen=True)
class Entry:
    """What one device adds to a container."""

    node: DeviceNode
    unhealthy: str


@dataclass(frozen=True)
class ContainerAnswer:
    """What the runtime adds to one container."""

    nodes: tuple[DeviceNode, ...]
    device_ids: tuple[str, ...]

    @property
    def envs(self) -> dict[str, str]:
        """The environment: what NVIDIA's own images and tools read."""
        return {ENVIRONMENT: ",".join(self.device_ids)}

    @property
    def annotations(self) -> dict[str, str]:
        """The container's annotations: the hook's proof of what was given."""
        return {ANNOTATION: ",".join(self.device_ids)}


@dataclass(frozen=True)
class AllocationTable:
    """Device id → what it adds, in the order in which devices are listed; and how the devices are connected."""

    control: tuple[DeviceNode, ...]
    entries: Mapping[str, Entry]
    topology: Topology = NO_TOPOLOGY


EMPTY_TABLE = AllocationTable((), {})


def prepare_table(inventory: Inventory) -> AllocationTable:
    """Return the table of everything that can be given away."""
    control = tuple(DeviceNode(f"/dev/{node.name}", node.path) for node in inventory.control)
    entries = {
        device.gpu.uuid: Entry(DeviceNode(f"/dev/nvidia{device.gpu.minor}", device.path), device.unhealthy)
        for device in inventory.devices
    }
    return AllocationTable(control, entries, inventory.topology)


def show_id(device_id: str) -> str:
    """Return an id for a message: a gRPC status is a header, and a long one breaks the whole answer."""
    clipped = device_id if len(device_id) <= _MAX_ID else device_id[:_MAX_ID] + "…"
    return ascii(clipped)


def allocate(table: AllocationTable, device_ids: Sequence[str]) -> ContainerAnswer:
    """Return what a container with these devices gets; order and wording never depend on the request's."""
    if not device_ids:
        raise InvalidRequest("a container asks for no device at all")
    wanted: set[str] = set()
    for device_id in device_ids:
        if device_id not in table.entries:
            raise InvalidRequest(f"device {show_id(device_id)} is not one that this node offers")
        if device_id in wanted:
            raise InvalidRequest(f"device {show_id(device_id)} is asked for twice in one container")
        wanted.add(device_id)
    for device_id in device_ids:
        reason = table.entries[device_id].unhealthy
        if reason:
            raise DeviceNotReady(f"device {show_id(device_id)} is not healthy: {reason}")
    ordered = tuple(device_id for device_id in table.entries if device_id in wanted)
    nodes = table.control + tuple(table.entries[device_id].node for device_id in ordered)
    return ContainerAnswer(nodes, ordered)
