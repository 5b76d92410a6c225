"""Other devices than GPUs as a ResourceSlice describes them, and what engines add to a container with one. Pure.

Which there are, and what a container gets with each, is what the device plugin would offer: the same files say it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from plugin.base.errors import ClaimError
from plugin.devices.other.answer import PlainForm
from plugin.devices.other.variables import PCI_ADDRESS
from plugin.dra.cdi import device_node, edits
from plugin.dra.devices import STANDARD, DraDevice, Share, name_of, text
from plugin.dra.store import Edits
from plugin.kubelet.cdi_names import OTHER_KIND, OTHERS, other_id

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from plugin.devices.allocation.answer import NamedDevice
    from plugin.devices.other.offered import OtherPlan, OtherResource
    from plugin.dra.claims import ClaimName
    from plugin.dra.store import Record

    Json = dict[str, Any]

FILE = "grapnel-devices.json"
_VERSION = "0.5.0"  # the least that has host paths
_MARK = 8  # digits of a hash


class Held(NamedTuple):
    """How many units of a device claims have, and one of them."""

    claim: str
    units: int


class OtherDevice(NamedTuple):
    """A device as claims see it when it is free, what a container gets with it, and of how many containers it is."""

    seen: DraDevice
    named: NamedDevice
    units: int

    def shown(self, taken: int, *, has_shares: bool) -> DraDevice:
        """Return it as it is while so many of its units are given away by the device plugin."""
        left = self.units - taken
        is_shared = has_shares and self.units > 1 and left > 0
        return self.seen._replace(share=Share(left, left)) if is_shared else self.seen


def find_others(plan: OtherPlan) -> dict[str, OtherDevice]:
    """Return the devices by their names in slices."""
    found = {}
    for resource, offered in plan.resources.items():
        entries = offered.table.entries
        units = Counter(entry.device for entry in entries.values())
        numa_nodes = {entries[each.device_id].device: each.numa_node for each in offered.offers}
        problems = {entry.device: entry.unhealthy for entry in entries.values()}
        for named, count in units.items():
            uuid = named.device_id
            texts = {
                "type": offered.class_name,
                "resourceName": resource,
                f"{STANDARD}/pciBusID": uuid if PCI_ADDRESS.fullmatch(uuid) else "",
                f"{STANDARD}/pcieRoot": offered.pcie_roots.get(uuid, ""),
            }
            place = {} if numa_nodes[named] is None else {f"{STANDARD}/numaNode": {"int": numa_nodes[named]}}
            attributes = {**{name: text(value) for name, value in texts.items() if value}, **place}
            seen = DraDevice(other_name(uuid), uuid, (uuid,), (), attributes, {}, problems[named])
            found[seen.name] = OtherDevice(seen, named, count)
    return found


def without_held(plan: OtherPlan, held: Mapping[str, Held], pods: Container[str], unknown: str) -> OtherPlan:
    """Return a plan in which no unit is healthy that a claim has, or all of which may be of a claim that is `unknown`.

    Units have numbers for the device plugin and none for claims: so many are taken that no pod of it has.
    """
    return replace(
        plan, resources={name: _without_held(each, held, pods, unknown) for name, each in plan.resources.items()}
    )


def _without_held(
    resource: OtherResource, held: Mapping[str, Held], pods: Container[str], unknown: str
) -> OtherResource:
    left = {device: each.units for device, each in held.items()}
    entries = {}
    for unit, entry in resource.table.entries.items():
        device = entry.device.device_id
        is_taken = left.get(device, 0) > 0 and unit not in pods
        left[device] = left.get(device, 0) - is_taken
        why = f"{held[device].claim} has it" if is_taken else unknown
        entries[unit] = replace(entry, unhealthy=entry.unhealthy or why)
    offers = tuple(replace(each, is_healthy=not entries[each.device_id].unhealthy) for each in resource.offers)
    return replace(resource, offers=offers, table=replace(resource.table, entries=entries))


def other_name(device_id: str) -> str:
    """Return the name of a device in its pool, a DNS label: `pci-` and its address, else of its id.

    `other_id` is the way back from addresses, and from ids that are such labels themselves.
    """
    name = name_of(f"pci-{device_id}" if PCI_ADDRESS.fullmatch(device_id) else device_id)
    if other_id(name) == device_id:
        return name
    mark = hashlib.sha256(device_id.encode()).hexdigest()[:_MARK]
    return f"{name[: 62 - _MARK].strip('-')}-{mark}"


def qualified(name: str) -> str:
    """Return the name by which an engine is asked for a device."""
    return f"{OTHER_KIND}={name}"


def render_others(devices: Mapping[str, OtherDevice], records: Sequence[Record]) -> Json | None:
    """Return the content of the file of engines; None where there is nothing to add to any container.

    A prepared claim has what it was given, whatever has been written about its devices since.
    """
    kept = _kept(records)
    found: dict[str, str] = {}
    for name, each in devices.items():
        if added := added_by(each.named):
            found |= dict([_current(name, added, kept)])
    for record in records:
        found |= dict(each for device in noted(record, devices, records).devices for each in device.edits or ())
    if not found:
        return None
    rows = [{"name": name, "containerEdits": json.loads(content)} for name, content in sorted(found.items())]
    return {"cdiVersion": _VERSION, "kind": OTHER_KIND, "devices": rows}


def added_by(named: NamedDevice) -> Json:
    """Return what a device adds to a container, which may be nothing."""
    nodes = [device_node(each.container_path, each.host_path, each.permissions) for each in named.nodes]
    return {**({"deviceNodes": nodes} if nodes else {}), **edits(named.variables, named.mounts)}


def noted(record: Record, devices: Mapping[str, OtherDevice], records: Sequence[Record]) -> Record:
    """Return a record with what a container gets with each of its devices; that of a device that is not known stays.

    Of several devices of a request the last one brings the variables that all of them have, with their values in one.
    `records` are what is prepared.
    """
    kept, together = _kept(records), _together(record, devices)
    last = {each.request: number for number, each in enumerate(record.devices)}
    found = []
    for number, each in enumerate(record.devices):
        if each.edits is not None or each.device not in devices:
            found.append(each)
            continue
        own = added_by(devices[each.device].named)
        rows = [_current(each.device, own, kept)] if own else []
        if each.request in together and last[each.request] == number:
            rows.append(_joined(together[each.request]))
        found.append(each._replace(edits=tuple(rows)))
    return record._replace(devices=tuple(found))


def names_of(record: Record) -> tuple[tuple[str, ...], ...]:
    """Return how engines are asked for each device of a claim; for one that adds nothing not at all."""
    return tuple(
        (qualified(each.device),) if each.edits is None else tuple(qualified(edits.name) for edits in each.edits)
        for each in record.devices
    )


def _kept(records: Iterable[Record]) -> dict[str, str]:
    """Return what prepared claims were given, by the names that engines are asked for."""
    return dict(each for record in records for device in record.devices for each in device.edits or ())


def _current(name: str, added: Json, kept: Mapping[str, str]) -> Edits:
    """Return what a device adds by now: under its own name, unless a claim has something else under that."""
    content = json.dumps(added)
    return Edits(name if kept.get(name, content) == content else f"{name}.{_mark(content)}", content)


def _together(record: Record, devices: Mapping[str, OtherDevice]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return the variables that several devices of a request have, by request, as the device plugin joins them."""
    of_request: dict[str, dict[NamedDevice, None]] = {}
    for each in record.devices:
        if each.device in devices:
            of_request.setdefault(each.request, {})[devices[each.device].named] = None
    found = {}
    for request, named in of_request.items():
        counts = Counter(name for each in named for name in dict(each.variables))
        joined = PlainForm().compose((), tuple(named), (), {}).variables
        if several := tuple((name, value) for name, value in joined if counts[name] > 1):
            found[request] = several
    return found


def _joined(variables: tuple[tuple[str, str], ...]) -> Edits:
    """Return variables under a name that no device has: in capitals."""
    return Edits(f"JOINED-{_mark(json.dumps(variables))}", json.dumps(edits(variables, ())))


def _mark(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[: 2 * _MARK]


def refuse_configs(document: Mapping[str, Any], claim: ClaimName) -> None:
    """Raise ClaimError where a claim has a config for these devices: there is none that they know."""
    found = document
    for key in ("status", "allocation", "devices"):
        found = found.get(key) or {}
    for row in found.get("config") or ():
        if (row.get("opaque") or {}).get("driver") == OTHERS:
            raise ClaimError(f"{claim} has a config for {OTHERS}, which takes none", "leave it out of class and claim")
