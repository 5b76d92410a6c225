"""Which other devices are offered under which resource, and what a container gets with each. Pure but for look-ups.

A device belongs to one class, the first by the names of the files; so does a resource. So no device is given out under
two names, and every id of the node is its own: a PCI address, or one that begins with the name of its class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.devices.allocation.answer import DeviceNode, Mount, NamedDevice
from plugin.devices.allocation.table import AllocationTable, Entry
from plugin.devices.naming import parse_resource_name
from plugin.devices.other.answer import PlainForm
from plugin.devices.other.device_class import Division
from plugin.devices.other.offered import OtherPlan, OtherResource
from plugin.devices.other.parse import MAX_UNITS, is_nvidias
from plugin.devices.other.template import fit_for_resource, render, unfit_for_path, variables_of
from plugin.devices.other.variables import pcie_root_of, values_of
from plugin.devices.resources import Offer, Placement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from plugin.devices.other.device_class import DeviceClass, NodeTemplate
    from plugin.devices.other.host import Host, SysfsDevice

_MAX_ID = 63  # the device plugin API's limit
_MAX_VALUE = 4096  # of a variable in the environment
_NVIDIA = "10de"
_DISPLAY = "03"
_PLACEMENT = {
    Division.DEVICES: Placement.NEAR,
    Division.COUNT: Placement.NEAR,
    Division.SHARES: Placement.DISTRIBUTED,
}


@dataclass(frozen=True)
class _Found:
    """A device of a class with everything that a container gets with it."""

    device: NamedDevice
    numa_node: int | None = None
    problem: str = ""
    pcie_root: str = ""


def plan_others(classes: Iterable[DeviceClass], host: Host) -> OtherPlan:
    """Return what is offered of the machine as it is now."""
    planner = _Planner(host)
    for each in classes:
        planner.add(each)
    return OtherPlan(planner.resources, tuple(planner.findings))


class _Planner:
    """One look at the machine."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._owners: dict[str, str] = {}  # a device's folder → its class
        self.resources: dict[str, OtherResource] = {}
        self.findings: list[tuple[str, str]] = []

    def add(self, one: DeviceClass) -> None:
        """Take the devices of a class."""
        if one.match is None:
            whole, problem = _parts(one, None, self._host)
            self._offer(one, one.resource, [_Found(whole, problem=problem)])
            return
        by_resource: dict[str, list[_Found]] = {}
        for device in self._host.devices(one.match.folder):
            if all(condition.holds(device) for condition in one.match.conditions):
                resource = self._resource_of(one, device)
                if resource:
                    by_resource.setdefault(resource, []).append(self._look_at(one, device))
        for resource, found in by_resource.items():
            self._offer(one, resource, found)

    def _leave_out(self, one: DeviceClass, device: SysfsDevice, why: str) -> None:
        name = device.address or device.name
        self.findings.append((f"{one.name} {name}", f"{one.name}: {name} is not offered: {why}"))

    def _resource_of(self, one: DeviceClass, device: SysfsDevice) -> str:
        """Return under which name a device is offered, "" where it is not."""
        if _is_nvidia_gpu(device):
            self._leave_out(one, device, "the daemon offers GPUs of NVIDIA by itself, behind its hook")
            return ""
        if len(_device_id(one, device)) > _MAX_ID - len(f"::{one.unit.count}"):
            self._leave_out(one, device, "its name is too long for the device id of a kubelet")
            return ""
        try:
            resource = _resource_name(one, device)
        except ValueError as error:
            self._leave_out(one, device, str(error))
            return ""
        owner = self._owners.setdefault(device.path, one.name)
        if owner != one.name:
            self._leave_out(one, device, f"it is a device of {owner} already")
            return ""
        return resource

    def _look_at(self, one: DeviceClass, device: SysfsDevice) -> _Found:
        named, problem = _parts(one, device, self._host)
        numa_node = device.numa_node if one.has_numa else None
        return _Found(named, numa_node, problem or _illness(one, device), pcie_root_of(device.path))

    def _offer(self, one: DeviceClass, resource: str, found: Sequence[_Found]) -> None:
        """Offer devices under a name."""
        taken_by = self.resources.get(resource)
        if taken_by is not None:
            message = f"{one.name}: nothing is offered as {resource}: {taken_by.class_name} has that name"
            self.findings.append((f"{one.name} {resource}", message))
            return
        for each in found:
            if each.problem:
                topic = f"{one.name} {each.device.device_id}"
                self.findings.append((topic, f"{one.name}: {each.device.device_id} is unhealthy: {each.problem}"))
        units = list(_units(one, found))
        if len(units) > MAX_UNITS:
            message = f"{one.name}: {len(units) - MAX_UNITS} units of {resource} are left out: there may be {MAX_UNITS}"
            self.findings.append((f"{one.name} {resource}", message))
            del units[MAX_UNITS:]
        offers = tuple(Offer(unit_id, not each.problem, each.numa_node) for unit_id, each in units)
        entries = {unit_id: Entry(each.device, each.problem) for unit_id, each in units}
        placement = _PLACEMENT[one.unit.division]
        table = AllocationTable((), entries, form=PlainForm(), resource=resource, placement=placement)
        roots = {each.device.device_id: each.pcie_root for _, each in units if each.pcie_root}
        self.resources[resource] = OtherResource(one.name, offers, table, roots)


def _is_nvidia_gpu(device: SysfsDevice) -> bool:
    vendors, codes = device.values("vendor"), device.values("class")
    is_nvidia = any(value.lower().endswith(_NVIDIA) for value in vendors)
    return is_nvidia and any(value.lower().replace("0x", "", 1).rjust(6, "0").startswith(_DISPLAY) for value in codes)


def _resource_name(one: DeviceClass, device: SysfsDevice) -> str:
    """Return the name with what the device says of itself; raises ValueError."""
    names = render(one.resource, fit_for_resource(values_of([one.resource], device, one.variables)))
    if not names:
        missing = ", ".join(f"{{{name}}}" for name in variables_of(one.resource))
        raise ValueError(f"sysfs does not say all of {missing}, which its resource is named by")
    try:
        parse_resource_name(names[0])
    except ValueError as error:
        raise ValueError(f"its resource would be {names[0][:128]!a}: {error}") from error
    return names[0]


def _device_id(one: DeviceClass, device: SysfsDevice) -> str:
    """Return what a device is called: by its address, as network plugins look for it."""
    return device.address or f"{one.name}/{device.name}"


def _units(one: DeviceClass, found: Sequence[_Found]) -> Iterator[tuple[str, _Found]]:
    """Yield the ids, each with what it stands for."""
    if one.unit.division is Division.COUNT:
        together = _together(one, found)
        for number in range(one.unit.count):
            yield f"{one.name}::{number}", together
        return
    for each in found:
        if one.unit.division is Division.DEVICES:
            yield each.device.device_id, each
            continue
        for number in range(one.unit.count):
            yield f"{each.device.device_id}::{number}", each


def _together(one: DeviceClass, found: Sequence[_Found]) -> _Found:
    """Return all healthy devices as one: a container with any unit has them all."""
    good = [each for each in found if not each.problem]
    nodes = dict.fromkeys(node for each in good for node in each.device.nodes)
    variables = dict.fromkeys(pair for each in good for pair in each.device.variables)
    mounts = dict.fromkeys(mount for each in good for mount in each.device.mounts)
    places = {each.numa_node for each in good or found}
    roots = {each.pcie_root for each in good or found}
    numa_node = places.pop() if len(places) == 1 else None
    problem = "" if good else found[0].problem
    named = NamedDevice(one.name, one.name, tuple(nodes), tuple(variables), tuple(mounts))
    return _Found(named, numa_node, problem, roots.pop() if len(roots) == 1 else "")


def _parts(one: DeviceClass, device: SysfsDevice | None, host: Host) -> tuple[NamedDevice, str]:
    """Return what a container gets with a device, or with a class that has none, and what is wrong with it."""
    templates = (
        *(node.path for node in one.nodes),
        *one.environment.values(),
        *(path for mount in one.mounts for path in (mount.host_path, mount.container_path)),
    )
    values = {} if device is None else values_of(templates, device, one.variables)
    name = one.name if device is None else _device_id(one, device)
    in_paths = {variable for template in _paths(one) for variable in variables_of(template)}
    problem = unfit_for_path({variable: values[variable] for variable in in_paths})
    if problem:
        return NamedDevice(name, name, ()), problem
    nodes, problem = _nodes(one.nodes, values, host)
    return NamedDevice(name, name, nodes, tuple(_variables(one, values)), tuple(_mounts(one, values))), problem


def _paths(one: DeviceClass) -> Iterator[str]:
    for node in one.nodes:
        yield node.path
    for mount in one.mounts:
        yield mount.host_path
        yield mount.container_path


def _nodes(
    templates: Iterable[NodeTemplate], values: Mapping[str, Sequence[str]], host: Host
) -> tuple[tuple[DeviceNode, ...], str]:
    """Return the nodes that there are, and which required one is not."""
    nodes, problem = [], ""
    for template in templates:
        paths = render(template.path, values)
        if not paths and template.is_required:
            problem = problem or f"sysfs names nothing for its node {template.path}"
        for path in paths:
            host_path = None if is_nvidias(path) else host.node(path)
            if host_path is not None:
                nodes.append(DeviceNode(f"/dev/{path}", host_path, template.permissions))
            elif template.is_required:
                problem = problem or f"it has no device node {path}"
    return tuple(nodes), problem


def _variables(one: DeviceClass, values: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    for name, template in one.environment.items():
        for text in render(template, values):
            yield name, text[:_MAX_VALUE]


def _mounts(one: DeviceClass, values: Mapping[str, Sequence[str]]) -> Iterator[Mount]:
    for mount in one.mounts:
        pairs = zip(render(mount.host_path, values), render(mount.container_path, values), strict=False)
        for host_path, container_path in pairs:
            yield Mount(container_path, host_path, mount.read_only)


def _illness(one: DeviceClass, device: SysfsDevice) -> str:
    """Return which rule of its health a device breaks: there has to be a file, and each says one of the values."""
    for path, wanted in one.health.items():
        said = device.values(path)
        if not said:
            return f"{path} cannot be read"
        for value in said:
            if value not in wanted:
                return f"{path} is {value[:64]!a}, not {' or '.join(map(ascii, wanted))}"
    return ""
