"""What a container gets for the devices it was given: contract `docs/contracts/allocation`.

Pure: a table is prepared when the inventory changes, an answer is a look-up in it. Nothing here asks
NVML or the file system, so an answer cannot hang in the kubelet's admission of a pod.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from plugin.base.errors import DeviceNotReady, InvalidRequest
from plugin.devices.allocation.answer import (
    UNITS_INDEX,
    UNITS_OF_CARD,
    AnswerForm,
    Channel,
    ContainerAnswer,
    DeviceNode,
    Form,
    NamedDevice,
)
from plugin.devices.resources import OfferPlan, Placement, Resource, Unit
from plugin.devices.sharing import Strategy
from plugin.driver.topology.machine import NO_TOPOLOGY, Topology

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from plugin.devices.allocation.answer import Mount
    from plugin.devices.inventory import Inventory

    Parts = tuple[tuple[tuple[str, str], ...], tuple[Mount, ...]]

_MAX_ID = 63  # the device plugin API's limit for a device id


class Holdings(Protocol):
    """Who has a device already, as far as anybody knows: the place for what podresources says."""

    def holder(self, device_id: str) -> str:
        """Return the pod that has the device, "" where none is known. Called in the kubelet's admission."""


class NoHoldings:
    """Knows of no other pod: the kubelet accounts for devices."""

    def holder(self, _device_id: str) -> str:
        """Return that no pod has it."""
        return ""


class Sharing(Protocol):
    """Who runs what containers share a GPU through: MPS."""

    def problem(self, uuid: str) -> str:
        """Return why a GPU cannot be shared now, "" where it can."""

    def ending(self, uuid: str) -> str:
        """Return why a GPU that is not to be shared any more still is, "" where it is not."""

    def parts(self, uuid: str) -> Parts:
        """Return the variables and mounts of a container with a share of a GPU."""


class NoSharing:
    """Where no GPU is shared through MPS."""

    def problem(self, _uuid: str) -> str:
        """Return nothing."""
        return ""

    def ending(self, _uuid: str) -> str:
        """Return nothing."""
        return ""

    def parts(self, _uuid: str) -> Parts:
        """Return nothing."""
        return (), ()


@dataclass(frozen=True)
class Entry:
    """What one unit adds to a container: the device that it is, or is a part of. Several add the device once."""

    device: NamedDevice
    unhealthy: str = ""
    memory_bytes: int = 0  # of a memory unit


@dataclass(frozen=True)
class AllocationTable:
    """Unit id → what it adds, in the order in which units are listed; for one resource.

    `topology` is how the devices of the whole node are connected; `elsewhere` names the resource of units that the
    node offers under another name.
    """

    control: tuple[DeviceNode, ...]
    entries: Mapping[str, Entry]
    topology: Topology = NO_TOPOLOGY
    form: Form = field(default_factory=AnswerForm)
    resource: str = ""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    placement: Placement = Placement.LINKED
    refuses_several: bool = False


EMPTY_TABLE = AllocationTable((), {})


def prepare_tables(
    plan: OfferPlan, inventory: Inventory, form: AnswerForm | None = None, sharing: Sharing | None = None
) -> dict[str, AllocationTable]:
    """Return the table of each resource, with everything that can be given away, in the given form."""
    form, sharing = _with_channels(form or AnswerForm(), inventory), sharing or NoSharing()
    control = tuple(DeviceNode(f"/dev/{node.name}", node.path) for node in inventory.control)
    places = {unit.device_id: name for name, resource in plan.resources.items() for unit in resource.units}
    return {
        name: AllocationTable(
            control,
            _entries(resource, form, sharing),
            inventory.topology,
            form,
            name,
            {device_id: place for device_id, place in places.items() if place != name},
            resource.placement,
            resource.refuses_several,
        )
        for name, resource in plan.resources.items()
    }


def _with_channels(form: AnswerForm, inventory: Inventory) -> AnswerForm:
    """Return the form with those of the declared IMEX channels that there are."""
    here = (each for each in inventory.channels if each.number in form.imex.channels)
    nodes = ((each.number, DeviceNode(f"/dev/{each.node.name}", each.node.path)) for each in here)
    return replace(form, channels=tuple(Channel(*each) for each in nodes))


def find_missing_channels(form: AnswerForm, inventory: Inventory) -> str:
    """Return what is to be said of declared IMEX channels that do not exist, "" where there are all."""
    here = {each.number for each in inventory.channels}
    missing = ", ".join(str(number) for number in form.imex.channels if number not in here)
    return f"imex channel {missing} does not exist" if missing else ""


def _entries(resource: Resource, form: AnswerForm, sharing: Sharing) -> dict[str, Entry]:
    """Return the entries; units of one device have that device in common."""
    devices: dict[str, NamedDevice] = {}
    entries = {}
    counts = Counter(unit.source_id for unit in resource.units)
    for unit in resource.units:
        if unit.source_id not in devices:
            devices[unit.source_id] = _named(unit, form, *_parts(unit, resource.strategy, counts, sharing))
        device = devices[unit.source_id]
        entries[unit.device_id] = Entry(device, unit.unhealthy, unit.memory_bytes)
    return entries


def _parts(unit: Unit, strategy: Strategy, counts: Mapping[str, int], sharing: Sharing) -> Parts:
    """Return what a container gets besides the device, as it has a part of it. Memory: by gpushare's names."""
    if strategy is Strategy.MPS:
        return sharing.parts(unit.source_id)
    if strategy is Strategy.MEMORY:
        return ((UNITS_INDEX, str(unit.gpu.gpu.index)), (UNITS_OF_CARD, str(counts[unit.source_id]))), ()
    return (), ()


def _named(
    unit: Unit, form: AnswerForm, variables: tuple[tuple[str, str], ...], mounts: tuple[Mount, ...]
) -> NamedDevice:
    """Return the device of a unit. A MIG device is opened through its GPU's node and two capabilities."""
    uuid, index = unit.names
    gpu = unit.gpu
    nodes = [DeviceNode(f"/dev/nvidia{gpu.gpu.minor}", gpu.path)]
    if unit.slice is not None:
        nodes += [DeviceNode(f"/dev/{name}", path) for name, path in unit.slice.nodes]
    return NamedDevice(uuid, index if form.by_index else uuid, tuple(nodes), variables, mounts)


def show_id(device_id: str) -> str:
    """Return an id for a message: a gRPC status is a header, and a long one breaks the whole answer."""
    clipped = device_id if len(device_id) <= _MAX_ID else device_id[:_MAX_ID] + "…"
    return ascii(clipped)


def allocate(table: AllocationTable, device_ids: Sequence[str], holdings: Holdings | None = None) -> ContainerAnswer:
    """Return what a container with these units gets; order and wording never depend on the request's."""
    wanted = _wanted(table, device_ids)
    for device_id in device_ids:
        _refuse_unready(device_id, table.entries[device_id], holdings or NoHoldings())
    chosen = {device_id: entry for device_id, entry in table.entries.items() if device_id in wanted}
    devices = dict.fromkeys(entry.device for entry in chosen.values())
    if table.placement is Placement.ONE_DEVICE and len(devices) > 1:
        raise DeviceNotReady(_scattered(table, len(chosen)))
    return table.form.compose(table.control, tuple(devices), tuple(chosen), _memory_of(chosen.values()))


def _memory_of(entries: Iterable[Entry]) -> dict[str, int]:
    """Return how much memory of which device these units are."""
    memory: Counter[str] = Counter()
    for entry in entries:
        if entry.memory_bytes:
            memory[entry.device.device_id] += entry.memory_bytes
    return dict(memory)


def _wanted(table: AllocationTable, device_ids: Sequence[str]) -> set[str]:
    """Return the units of a request that can be answered."""
    if not device_ids:
        raise InvalidRequest("a container asks for no device at all")
    wanted: set[str] = set()
    for device_id in device_ids:
        if device_id not in table.entries:
            raise InvalidRequest(_not_offered(table, device_id))
        if device_id in wanted:
            raise InvalidRequest(f"device {show_id(device_id)} is asked for twice in one container")
        wanted.add(device_id)
    if table.refuses_several and len(wanted) > 1:
        raise InvalidRequest(
            f"a container asks for {len(wanted)} of {table.resource}: it may have one, as failRequestsGreaterThanOne "
            "says; several shares of a GPU are no larger part of it"
        )
    return wanted


def _not_offered(table: AllocationTable, device_id: str) -> str:
    place = table.elsewhere.get(device_id)
    if place is not None:
        return f"device {show_id(device_id)} is offered as {place}, not as {table.resource}"
    return f"device {show_id(device_id)} is not one that this node offers"


def _scattered(table: AllocationTable, count: int) -> str:
    """Kubernetes counts the units of a node, not those of a GPU: its sum can be free where no GPU has it."""
    return (
        f"no GPU of this node has {count} units of {table.resource} free: what is free lies on several GPUs, "
        "and a container gets units of one"
    )


def _refuse_unready(device_id: str, entry: Entry, holdings: Holdings) -> None:
    if entry.unhealthy:
        raise DeviceNotReady(f"device {show_id(device_id)} is not healthy: {entry.unhealthy}")
    holder = holdings.holder(device_id)
    if holder:
        raise DeviceNotReady(f"device {show_id(device_id)} is held by {ascii(holder)[:256]}")
