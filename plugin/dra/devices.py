"""GPUs and MIG devices as a ResourceSlice describes them. Pure.

Types, attributes and capacities have the names of NVIDIA's driver (`cmd/gpu-kubelet-plugin/deviceinfo.go`, mig.go,
0.4.0), so that claims written for it select the same devices. A device is called by its UUID, where NVIDIA's has the
minor number: that is another GPU's after one was taken out, while claims that are allocated still name it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from plugin.devices.sharing import MEMORY, SHARE, Strategy, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plugin.devices.allocation.answer import Mount
    from plugin.devices.allocation.table import Sharing
    from plugin.devices.inventory import Device, Inventory
    from plugin.devices.resources import OfferPlan
    from plugin.driver.snapshot import MigSize

    Json = dict[str, Any]

DRIVER = "gpu.nvidia.com"
LOST, UNHEALTHY = "gpu.nvidia.com/gpu-lost", "grapnel.dev/unhealthy"  # taints
STANDARD = "resource.kubernetes.io"
_MAX_TEXT = 64  # of an attribute
_MIB = 2**20
_NO_NAME = re.compile(r"[^a-z0-9-]+")
_FAMILIES = {3: "Kepler", 5: "Maxwell", 6: "Pascal", 9: "Hopper", 10: "Blackwell", 12: "Blackwell", 13: "Rubin"}
_TURING, _ADA = (7, 5), (8, 9)
_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_KIBI = 1024
# Of what is not divided a claim takes nothing: without a policy the first one would take all of it.
_NOTHING = {"default": "0", "validValues": ["0"]}


class Features(NamedTuple):
    """What an API server keeps of devices: it drops, without a word, what it has switched off (Kubernetes 1.34, 1.35).

    Without taints what is unhealthy is left out, without shares each device is for one claim alone, and without
    counters no partition is offered.
    """

    taints: bool = True
    shares: bool = True
    counters: bool = True


class Share(NamedTuple):
    """How a device is shared: in how many parts, how many of them one claim may have, and what a container needs.

    `unit_bytes`: a part is so much of its memory; 0: of nothing in particular.
    """

    parts: int
    at_most: int
    variables: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()
    problem: str = ""  # why it cannot be shared now
    unit_bytes: int = 0

    @property
    def memory_bytes(self) -> int:
        """How much of its memory claims can have together, 0 where that is not counted."""
        return self.parts * self.unit_bytes


class CounterSet(NamedTuple):
    """What all partitions of a GPU draw on; amounts in the API's own form."""

    name: str
    counters: Mapping[str, str]

    def to_json(self) -> Json:
        """Return it as a slice has it."""
        return {"name": self.name, "counters": {name: {"value": value} for name, value in self.counters.items()}}


class Draw(NamedTuple):
    """What a partition takes of its GPU's counters."""

    of: CounterSet
    counters: Mapping[str, str]


class DraDevice(NamedTuple):
    """One device that claims can be given. `nodes` are container path and host path of each device node.

    `share` is how several claims have it at the same time, None where one claim has it alone.

    `parts`: the UUIDs of which no other claim may have any at the same time: its own, and of a GPU those of its MIG
    devices, of a MIG device its GPU's. `unhealthy` is the reason, "" for a healthy one.

    `draw` is that of a partition: a MIG device that is made when a claim with it is prepared. Its `uuid` is its name,
    as there is no other one before.
    """

    name: str
    uuid: str
    parts: tuple[str, ...]
    nodes: tuple[tuple[str, str], ...]
    attributes: Mapping[str, Json]
    capacity: Mapping[str, Json]
    unhealthy: str = ""
    is_lost: bool = False
    share: Share | None = None
    draw: Draw | None = None

    @property
    def type(self) -> str:
        """What it is, `gpu` or `mig`."""
        return str(self.attributes["type"]["string"])

    def to_json(self, features: Features) -> Json:
        """Return it as a slice has it; taints keep pods off what is unhealthy."""
        shown: Json = {"name": self.name, "attributes": dict(self.attributes)}
        capacity = dict(self.capacity)
        if self.share is not None and features.shares:
            shown["allowMultipleAllocations"] = True
            capacity = {name: {**each, "requestPolicy": _NOTHING} for name, each in capacity.items()}
            capacity |= _share_capacity(self.share)
        if capacity:
            shown["capacity"] = capacity
        if self.draw is not None:
            shown["consumesCounters"] = [
                {
                    "counterSet": self.draw.of.name,
                    "counters": {name: {"value": value} for name, value in self.draw.counters.items()},
                }
            ]
        if self.unhealthy and features.taints:
            shown["taints"] = [{"key": LOST if self.is_lost else UNHEALTHY, "effect": "NoSchedule"}]
        return shown


def name_of(uuid: str) -> str:
    """Return the name of a device in its pool: its UUID as a DNS label."""
    return _NO_NAME.sub("-", uuid.lower())[:63].strip("-")


def find_shares(plan: OfferPlan, sharing: Sharing) -> Mapping[str, Share]:
    """Return how devices are shared by time-slicing, by MPS, or GPUs in units of their memory, by UUID."""
    shares: dict[str, Share] = {}
    for resource in plan.resources.values():
        units = [unit for unit in resource.units if kind_of(unit.device_id) == MEMORY]
        for uuid, count in Counter(unit.source_id for unit in units).items():
            shares[uuid] = Share(count, count, unit_bytes=units[0].memory_bytes)
        counts = Counter(unit.source_id for unit in resource.units if kind_of(unit.device_id) == SHARE)
        for uuid, count in counts.items():
            share = Share(count, 1 if resource.refuses_several else count)
            shares[uuid] = (
                Share(*share[:2], *sharing.parts(uuid), sharing.problem(uuid))
                if resource.strategy is Strategy.MPS
                else share
            )
    return shares


def find_devices(inventory: Inventory, shares: Mapping[str, Share] | None = None) -> tuple[DraDevice, ...]:
    """Return what there is, in the driver's order: a GPU in MIG mode is its MIG devices."""
    shares = shares or {}
    found = (each for device in inventory.devices for each in _devices_of(device, inventory))
    return tuple(_shared(each, shares[each.uuid]) if each.uuid in shares else each for each in found)


def _shared(device: DraDevice, share: Share) -> DraDevice:
    return device._replace(share=share, unhealthy=device.unhealthy or share.problem)


def _share_capacity(share: Share) -> Json:
    """Return of what claims take a part, by NVIDIA's name (consumable_shares.go).

    Whoever asks for nothing takes one share, or all of the memory.
    """
    if share.unit_bytes:
        least, all_of_it = (quantity(count) for count in (share.unit_bytes, share.memory_bytes))
        allowed = {"min": least, "max": all_of_it, "step": least}
        return {"memory": {"value": all_of_it, "requestPolicy": {"default": all_of_it, "validRange": allowed}}}
    allowed = {"min": "1", "max": number(share.at_most), "step": "1"}
    return {"shares": {"value": number(share.parts), "requestPolicy": {"default": "1", "validRange": allowed}}}


def _devices_of(device: Device, inventory: Inventory) -> Iterator[DraDevice]:
    gpu, node = device.gpu, (f"/dev/nvidia{device.gpu.minor}", device.path)
    common = common_attributes(device, inventory)
    if not gpu.is_cut and not device.slices:
        own = {"type": text("gpu"), "uuid": text(gpu.uuid)}
        capacity = {} if device.memory_bytes is None else {"memory": {"value": quantity(device.memory_bytes)}}
        yield DraDevice(
            name_of(gpu.uuid),
            gpu.uuid,
            (gpu.uuid, *(mig.uuid for mig in gpu.mig)),
            (node,),
            {**own, **common},
            capacity,
            device.unhealthy,
            device.is_lost,
        )
    for mig in device.slices:
        yield DraDevice(
            name_of(mig.facts.uuid),
            mig.facts.uuid,
            (mig.facts.uuid, gpu.uuid),
            (node, *((f"/dev/{name}", path) for name, path in mig.nodes)),
            {**mig_attributes(gpu.uuid, mig.facts.profile, mig.facts.uuid), **common},
            mig_capacity(mig.facts.size),
            device.unhealthy or mig.problem,
            device.is_lost,
        )


def mig_attributes(parent: str, profile: str, uuid: str = "") -> Mapping[str, Json]:
    """Return what tells a MIG device from others; one that is not made yet has no UUID."""
    return {
        "type": text("mig"),
        **({"uuid": text(uuid)} if uuid else {}),
        "parentUUID": text(parent),
        **({"profile": text(profile)} if profile else {}),
    }


def mig_capacity(size: MigSize | None) -> Mapping[str, Json]:
    """Return what a MIG device has of its GPU."""
    if size is None:
        return {}
    counts = {
        "multiprocessors": size.multiprocessors,
        "copyEngines": size.copy_engines,
        "decoders": size.decoders,
        "encoders": size.encoders,
        "jpegEngines": size.jpeg_engines,
        "ofaEngines": size.ofa_engines,
    }
    return {
        **{name: {"value": number(count)} for name, count in counts.items()},
        "memory": {"value": quantity(size.memory_mib * _MIB)},
    }


def common_attributes(device: Device, inventory: Inventory) -> Mapping[str, Json]:
    """Return what a GPU and its MIG devices have in common."""
    gpu = device.gpu
    place = next((each for each in inventory.topology.places if each.address == gpu.pci_address), None)
    texts = {
        "productName": gpu.model,
        "brand": gpu.brand,
        "architecture": architecture(gpu.compute_capability),
        f"{STANDARD}/pciBusID": gpu.pci_address,
        f"{STANDARD}/pcieRoot": place.path[0] if place is not None and place.path else "",
    }
    versions = {
        "cudaComputeCapability": gpu.compute_capability,
        "driverVersion": inventory.driver_version,
        "cudaDriverVersion": inventory.cuda_version,
    }
    numbers = {f"{STANDARD}/numaNode": device.numa_node}
    return {
        **{name: text(value) for name, value in texts.items() if value},
        **{name: {"version": found} for name, value in versions.items() if (found := semantic_version(value))},
        **{name: {"int": value} for name, value in numbers.items() if value is not None},
    }


def architecture(compute_capability: str) -> str:
    """Return the architecture in go-nvlib's words (`GetArchitectureAsString`), "" where it is not known."""
    major, _, minor = compute_capability.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        return ""
    pair = int(major), int(minor)
    if pair[0] == _TURING[0]:
        return "Turing" if pair >= _TURING else "Volta"
    if pair[0] == _ADA[0]:
        return "Ada Lovelace" if pair >= _ADA else "Ampere"
    return _FAMILIES.get(pair[0], "")


def semantic_version(version: str) -> str:
    """Return a version with three numbers and no leading zeros, as the API takes it; "" where it is none."""
    parts = version.split(".")
    if not all(part.isascii() and part.isdecimal() for part in parts) or len(parts) > len("x.y"):
        return ""
    return ".".join(str(int(part)) for part in (*parts, "0", "0")[:3])


def text(value: str) -> Json:
    """Return an attribute."""
    return {"string": value[:_MAX_TEXT]}


def number(count: int) -> str:
    """Return a whole number in the API's own form: 2000 is 2k."""
    return f"{count // 1000}k" if count and count % 1000 == 0 else str(count)


def quantity(count: int) -> str:
    """Return an amount of bytes in the API's own form, so that what it answers is what it was told."""
    power = 0
    while count and count % _KIBI == 0 and power < len(_SUFFIXES) - 1:
        count, power = count // _KIBI, power + 1
    return f"{count}{_SUFFIXES[power]}"
