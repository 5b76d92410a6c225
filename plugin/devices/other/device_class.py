"""A kind of device, as a file of the contract `docs/contracts/device-class` describes it. Values alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.devices.other.conditions import Condition


class Division(Enum):
    """What is counted."""

    DEVICES = "device"  # every device is one unit, and one container has it
    SHARES = "sharesPerDevice"  # every device is several units, of several containers
    COUNT = "count"  # a number that has nothing to do with how many devices there are


@dataclass(frozen=True)
class Unit:
    """How the devices become units; `count` in all, or of each device."""

    division: Division = Division.DEVICES
    count: int = 1


@dataclass(frozen=True)
class Match:
    """The devices of a folder of sysfs for which all conditions hold."""

    folder: str
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class NodeTemplate:
    """Device nodes below `/dev`. A device that lacks a required one is unhealthy."""

    path: str
    permissions: str = "rw"
    is_required: bool = True


@dataclass(frozen=True)
class MountTemplate:
    """A file or folder of the host that containers see."""

    host_path: str
    container_path: str
    read_only: bool = True


@dataclass(frozen=True)
class Variable:
    """Where a file's own variable comes from: files' contents, or (`is_name`) the names of what exists."""

    path: str
    is_name: bool = False


@dataclass(frozen=True)
class DeviceClass:
    """One file. `match` is None where nothing in sysfs belongs to it. `health`: a path → what its files have to say."""

    name: str
    resource: str
    match: Match | None = None
    unit: Unit = field(default_factory=Unit)
    nodes: tuple[NodeTemplate, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[MountTemplate, ...] = ()
    variables: Mapping[str, Variable] = field(default_factory=dict)
    has_numa: bool = True
    health: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rescan_s: float = 60.0

    def describe(self) -> str:
        """Return resource and unit in a few words."""
        division, count = self.unit.division, self.unit.count
        how = {
            Division.DEVICES: "one for each device",
            Division.SHARES: f"{count} for each device",
            Division.COUNT: f"{count} in all",
        }
        return f"{self.resource}: {how[division]}"
