"""What `{variables}` stand for, for one device. Pure but for look-ups in sysfs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from plugin.devices.other.device_class import Variable
from plugin.devices.other.template import variables_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.devices.other.host import SysfsDevice

PCI_ADDRESS = re.compile(r"(?P<domain>[0-9a-f]{4,8}):(?P<bus>[0-9a-f]{2}):(?P<slot>[0-9a-f]{2})\.(?P<function>[0-7])")

# The kernel's own names below a PCI device, of the subsystems that make the device nodes.
FOUND = {
    "card": Variable("drm/card*", is_name=True),
    "issm": Variable("infiniband_mad/issm*", is_name=True),
    "netdev": Variable("net/*", is_name=True),
    "rdma": Variable("infiniband/*", is_name=True),
    "render": Variable("drm/renderD*", is_name=True),
    "umad": Variable("infiniband_mad/umad*", is_name=True),
    "uverbs": Variable("infiniband_verbs/uverbs*", is_name=True),
}
BUILT_IN = frozenset({"name", "address", "instance", "iommu_group", *FOUND})

_PCIE_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def pcie_root_of(path: str) -> str:
    """Return the root complex that a device's folder is below (`pci0000:40`), "" where it is on no PCI bus."""
    return next(filter(_PCIE_ROOT.fullmatch, path.split("/")), "")


def instance_of(address: str) -> str:
    """Return the number that drivers of Xilinx cards use for an address: 65536 domain + 256 bus + 8 slot + function."""
    match = PCI_ADDRESS.fullmatch(address)
    if match is None:
        return ""
    domain, bus, slot, function = (int(match[part], 16) for part in ("domain", "bus", "slot", "function"))
    return str(domain * 65536 + bus * 256 + slot * 8 + function)


def values_of(templates: Iterable[str], device: SysfsDevice, own: Mapping[str, Variable]) -> dict[str, tuple[str, ...]]:
    """Return the values of every variable of these templates; none for what the device does not have."""
    names = dict.fromkeys(name for template in templates for name in variables_of(template))
    return {name: _values(name, device, own) for name in names}


def _values(name: str, device: SysfsDevice, own: Mapping[str, Variable]) -> tuple[str, ...]:
    simple = {"name": lambda: device.name, "address": lambda: device.address}
    linked = {"instance": lambda: instance_of(device.address), "iommu_group": lambda: device.link("iommu_group")}
    for each in (simple, linked):
        if name in each:
            value = each[name]()
            return (value,) if value else ()
    variable = own.get(name) or FOUND[name]
    return tuple(device.names(variable.path) if variable.is_name else device.values(variable.path))
