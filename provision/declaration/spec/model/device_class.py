"""Defines a file of the node daemon's device classes, as far as it can be read without a node.

The contract is ``docs/contracts/device-class``. The daemon has a parser of its own; both are tested with its samples.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from provision.declaration.spec.model.section import Section, text

_GAP = r"(\{[a-z][a-z0-9_]{0,31}\})"
_ABOVE = r"(?!(.*/)?\.\.?(/|$))"
Hexadecimal = Annotated[
    str, text("(0[xX])?[0-9a-fA-F]{1,8}", "a hexadecimal number: in quotes, with 0x or without", "0x15b3")
]
Said = Annotated[str, text(r"[^\x00-\x1f\x7f]+", "a line of text: without control characters", "up", longest=256)]
SysfsPath = Annotated[
    str,
    text(
        _ABOVE + "[A-Za-z0-9_.:,+*?-]+(/[A-Za-z0-9_.:,+*?-]+){0,9}",
        "a path below the device's folder: relative, without '..'; '*' and '?' stand for anything",
        "infiniband/*/ports/*/state",
        longest=256,
    ),
]
SysfsFolder = Annotated[
    str,
    text(
        r"(?!.*/\.\.?(/|$))(bus|class|module|devices|firmware|kernel)(/[A-Za-z0-9_.:-]+){0,4}",
        "a folder of sysfs: below bus, class, module, devices, firmware or kernel",
        "bus/pci/devices",
        longest=256,
    ),
]
ResourceTemplate = Annotated[
    str,
    text(
        rf"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/({_GAP}|[A-Za-z0-9])({_GAP}|[-A-Za-z0-9_.])*",
        "a resource: a domain, '/' and a name, in which variables may stand",
        "rdma/hca_shared_devices_a",
        longest=256,
    ),
]
NodePath = Annotated[
    str,
    text(
        _ABOVE + rf"(?!nvidia)({_GAP}|[A-Za-z0-9_.:+@-])+(/({_GAP}|[A-Za-z0-9_.:+@-])+)*",
        "a device node: a path below /dev, without '..', and none of NVIDIA's driver",
        "infiniband/{uverbs}",
        longest=256,
    ),
]
HostPath = Annotated[
    str,
    text(
        rf"(?!(.*/)\.\.?(/|$))(/({_GAP}|[A-Za-z0-9_.:+@-])+)+",
        "an absolute path: without '..'",
        "/etc/card",
        longest=256,
    ),
]
EnvironmentName = Annotated[
    str, text("[A-Za-z_][A-Za-z0-9_]{0,127}", "the name of a variable: letters, digits and '_'", "CARD")
]
EnvironmentText = Annotated[
    str, text(r"[^\x00-\x1f\x7f]+", "a line of text: without control characters", "{address}", longest=1024)
]
OwnVariable = Annotated[
    str, text("[a-z][a-z0-9_]{0,31}", "the name of a variable: small letters, digits, '_'", "model")
]
Description = Annotated[str, Meta(max_length=1000)]


_CONDITIONS = {"class_": "class", "subsystem_vendor": "subsystemVendor", "subsystem_device": "subsystemDevice"}


class Match(Section, frozen=True, kw_only=True, rename=_CONDITIONS):
    """Which devices of sysfs belong to the class."""

    folder: SysfsFolder
    vendor: Annotated[tuple[Hexadecimal, ...], Meta(min_length=1, max_length=64)] | None = None
    device: Annotated[tuple[Hexadecimal, ...], Meta(min_length=1, max_length=64)] | None = None
    subsystem_vendor: Annotated[tuple[Hexadecimal, ...], Meta(min_length=1, max_length=64)] | None = None
    subsystem_device: Annotated[tuple[Hexadecimal, ...], Meta(min_length=1, max_length=64)] | None = None
    class_: Annotated[tuple[Hexadecimal, ...], Meta(min_length=1, max_length=64)] | None = None
    driver: Annotated[tuple[Said, ...], Meta(min_length=1, max_length=64)] | None = None
    physfn: Annotated[tuple[Said, ...], Meta(min_length=1, max_length=64)] | None = None
    name: Annotated[tuple[Said, ...], Meta(min_length=1, max_length=64)] | None = None
    address: Annotated[tuple[Said, ...], Meta(min_length=1, max_length=64)] | None = None
    present: Annotated[tuple[SysfsPath, ...], Meta(min_length=1, max_length=64)] | None = None
    absent: Annotated[tuple[SysfsPath, ...], Meta(min_length=1, max_length=64)] | None = None
    attributes: dict[SysfsPath, Annotated[tuple[Said, ...], Meta(min_length=1, max_length=64)]] = msgspec.field(
        default_factory=dict
    )


class Unit(Section, frozen=True, kw_only=True):
    """How often the devices are offered; one of the two."""

    count: Annotated[int, Meta(ge=1, le=10000)] | None = None
    shares_per_device: Annotated[int, Meta(ge=1, le=1000)] | None = None


class DeviceNode(Section, frozen=True, kw_only=True):
    """A device node that a container is given."""

    path: NodePath
    permissions: Literal["r", "w", "m", "rw", "rm", "wm", "rwm"] = "rw"
    required: bool = True


class Mount(Section, frozen=True, kw_only=True):
    """A folder or file of the host."""

    host_path: HostPath
    container_path: HostPath | None = None
    read_only: bool = True


class Variable(Section, frozen=True, kw_only=True):
    """What a variable of the file's own stands for; one of the two."""

    content: SysfsPath | None = None
    name: SysfsPath | None = None


class DeviceClassFile(Section, frozen=True, kw_only=True):
    """A kind of device other than NVIDIA's GPUs."""

    schema: Literal["grapnel.dev/device-class/v1alpha1"]
    description: Description = ""
    resource: ResourceTemplate
    match: Match | None = None
    unit: Literal["device"] | Unit = "device"
    nodes: Annotated[tuple[DeviceNode, ...], Meta(max_length=64)] = ()
    environment: dict[EnvironmentName, EnvironmentText] = msgspec.field(default_factory=dict)
    mounts: Annotated[tuple[Mount, ...], Meta(max_length=64)] = ()
    variables: dict[OwnVariable, Variable] = msgspec.field(default_factory=dict)
    numa: bool = True
    health: dict[SysfsPath, Annotated[tuple[Said, ...], Meta(min_length=1, max_length=64)]] = msgspec.field(
        default_factory=dict
    )
    rescan_seconds: Annotated[float, Meta(ge=0.1, lt=86400)] = 60
