"""What a container gets for the devices it was given: contract `docs/contracts/allocation`.

Pure: a table is prepared when the inventory changes, an answer is a look-up in it. Nothing here asks
NVML or the file system, so an answer cannot hang in the kubelet's admission of a pod.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from plugin.allocation.answer import AnswerForm, ContainerAnswer, DeviceNode, NamedDevice, compose_answer
from plugin.driver.topology.machine import NO_TOPOLOGY, Topology
from plugin.errors import DeviceNotReady, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plugin.devices.inventory import Device, Inventory

_MAX_ID = 63  # the device plugin API's limit for a device id


class Holdings(Protocol):
    """Who has a device already, as far as anybody knows: the place for what podresources says."""

    def holder(self, device_id: str) -> str:
        """Return the pod that has the device, "" where none is known. Called in the kubelet's admission."""


class NoHoldings:
    """Knows of no other pod: the kubelet accounts for devices."""

    def holder(self, _device_id: str) -> str:
        """Return that nobody has it."""
        return ""


@dataclass(frozen=True)
class Entry:
    """What one device adds to a container."""

    device: NamedDevice
    unhealthy: str

    @property
    def node(self) -> DeviceNode:
        """The device's own node."""
        return self.device.node


@dataclass(frozen=True)
class AllocationTable:
    """Device id → what it adds, in the order in which devices are listed; for one resource.

    `topology` is how the devices of the whole node are connected; `elsewhere` names the resource of devices that the
    node offers under another name.
    """

    control: tuple[DeviceNode, ...]
    entries: Mapping[str, Entry]
    topology: Topology = NO_TOPOLOGY
    form: AnswerForm = field(default_factory=AnswerForm)
    resource: str = ""
    elsewhere: Mapping[str, str] = field(default_factory=dict)


EMPTY_TABLE = AllocationTable((), {})


def prepare_table(inventory: Inventory, form: AnswerForm | None = None) -> AllocationTable:
    """Return the table of everything that can be given away, in the given form."""
    form = form or AnswerForm()
    control = tuple(DeviceNode(f"/dev/{node.name}", node.path) for node in inventory.control)
    entries = {device.gpu.uuid: _entry(device, form) for device in inventory.devices}
    return AllocationTable(control, entries, inventory.topology, form)


def _entry(device: Device, form: AnswerForm) -> Entry:
    gpu = device.gpu
    name = str(gpu.index) if form.by_index else gpu.uuid
    return Entry(NamedDevice(gpu.uuid, name, DeviceNode(f"/dev/nvidia{gpu.minor}", device.path)), device.unhealthy)


def tables_by_resource(whole: AllocationTable, resources: Mapping[str, Sequence[str]]) -> dict[str, AllocationTable]:
    """Return a table for each resource, with its devices alone, from the one of the whole node.

    A device that no resource has is in none of them.
    """
    places = {device_id: resource for resource, ids in resources.items() for device_id in ids}
    return {
        resource: replace(
            whole,
            entries={
                device_id: entry for device_id, entry in whole.entries.items() if places.get(device_id) == resource
            },
            resource=resource,
            elsewhere={device_id: place for device_id, place in places.items() if place != resource},
        )
        for resource in resources
    }


def show_id(device_id: str) -> str:
    """Return an id for a message: a gRPC status is a header, and a long one breaks the whole answer."""
    clipped = device_id if len(device_id) <= _MAX_ID else device_id[:_MAX_ID] + "…"
    return ascii(clipped)


def allocate(table: AllocationTable, device_ids: Sequence[str], holdings: Holdings | None = None) -> ContainerAnswer:
    """Return what a container with these devices gets; order and wording never depend on the request's."""
    if not device_ids:
        raise InvalidRequest("a container asks for no device at all")
    wanted: set[str] = set()
    for device_id in device_ids:
        if device_id not in table.entries:
            raise InvalidRequest(_not_offered(table, device_id))
        if device_id in wanted:
            raise InvalidRequest(f"device {show_id(device_id)} is asked for twice in one container")
        wanted.add(device_id)
    for device_id in device_ids:
        _refuse_unready(table.entries[device_id], holdings or NoHoldings())
    chosen = tuple(entry.device for device_id, entry in table.entries.items() if device_id in wanted)
    return compose_answer(table.form, table.control, chosen)


def _not_offered(table: AllocationTable, device_id: str) -> str:
    place = table.elsewhere.get(device_id)
    if place is not None:
        return f"device {show_id(device_id)} is offered as {place}, not as {table.resource}"
    return f"device {show_id(device_id)} is not one that this node offers"


def _refuse_unready(entry: Entry, holdings: Holdings) -> None:
    device_id = show_id(entry.device.device_id)
    if entry.unhealthy:
        raise DeviceNotReady(f"device {device_id} is not healthy: {entry.unhealthy}")
    holder = holdings.holder(entry.device.device_id)
    if holder:
        raise DeviceNotReady(f"device {device_id} is held by {ascii(holder)[:256]}")
