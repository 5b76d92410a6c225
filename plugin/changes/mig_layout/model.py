"""The values of MIG layouts: what is wanted, what a GPU has and can have, and the steps between them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from plugin.driver.mig_instances import InstanceProfile


# The names of MIG profiles: one form for all the ways in which they are written. NVML and nvidia-smi write `MIG
# 1g.10gb+me`, NVIDIA's mig-parted `1g.10gb+me`, and a device that has only some of its GPU instance's compute slices
# is `1c.2g.20gb`. With all of them `2c.2g.20gb` is the same as `2g.20gb`.

_PREFIX = "MIG "
_NAME = re.compile(
    r"(?:(?P<compute>[1-9][0-9]?)c\.)?(?P<gpu>[1-9][0-9]?)g\.(?P<memory>[1-9][0-9]{0,3})gb(?P<more>(?:[+-][a-z.,]+)*)"
)


class DeviceProfile(NamedTuple):
    """A MIG device as it is asked for: the profile of its GPU instance, and the compute slices that it has of it."""

    instance: str
    compute: int

    @property
    def name(self) -> str:
        """The short name."""
        whole = int(self.instance.partition("g.")[0])
        return self.instance if self.compute == whole else f"{self.compute}c.{self.instance}"


def parse_profile(name: str) -> DeviceProfile:
    """Return what a name means, in whichever way it is written; raises ValueError."""
    match = _NAME.fullmatch(name.removeprefix(_PREFIX))
    if match is None:
        raise ValueError(f"{name[:64]!r} is not a mig profile such as 1g.10gb, 1g.10gb+me or 1c.2g.20gb")
    slices = int(match["gpu"])
    compute = int(match["compute"] or slices)
    if compute > slices:
        raise ValueError(f"{name} has more compute slices than its gpu instance")
    return DeviceProfile(f"{slices}g.{match['memory']}gb{match['more']}", compute)


@dataclass(frozen=True)
class Entry:
    """One entry of a layout. `devices` None: all GPUs; `filters`: pairs of PCI device and subsystem id, None for any.

    `wanted` are the MIG devices, one for each; their order means nothing.
    """

    devices: tuple[int, ...] | None
    filters: tuple[tuple[int, int | None], ...] = ()
    is_enabled: bool = True
    wanted: tuple[DeviceProfile, ...] = ()


@dataclass(frozen=True)
class Layout:
    """How the GPUs of a node are to be cut: of the entries that are about a GPU, the last one counts."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, order=True)
class Instance:
    """A GPU instance: where it lies, and the compute slices of its compute instances in the order of their ids.

    `id` is the driver's, -1 for one that is to be made. `holders` are those who use it, in words.
    """

    start: int
    size: int
    profile: str
    compute: tuple[int, ...] = ()
    id: int = -1
    holders: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return it as `nvidia-smi mig -lgi` writes a placement: 3g.20gb at 4:4."""
        whole = (int(self.profile.partition("g.")[0]),)
        parts = "" if self.compute == whole else f" with compute slices {'+'.join(map(str, self.compute)) or 'of none'}"
        return f"{self.profile} at {self.start}:{self.size}{parts}"


@dataclass(frozen=True)
class GpuLayout:
    """One GPU as NVML tells it. `is_cut` None: it has no MIG mode; `is_pending`: the mode that it gets after a reset.

    `holders` use the GPU as a whole or hold it open, which keeps its mode from being changed. `problem` says why it is
    silent.
    """

    index: int
    uuid: str
    model: str = ""
    pci_device_id: int = 0
    pci_subsystem_id: int = 0
    is_cut: bool | None = False
    is_pending: bool | None = False
    needs_reset: bool = False  # to change its mode: GPUs up to NVIDIA Ampere
    profiles: tuple[InstanceProfile, ...] = ()
    instances: tuple[Instance, ...] = ()
    for_claims: tuple[Instance, ...] = ()  # which no layout is about: they go with their claims
    holders: tuple[str, ...] = ()
    problem: str = ""


class Act(Enum):
    """What a step does."""

    MODE_ON = "turn mig mode on"
    MODE_OFF = "turn mig mode off"
    DESTROY = "destroy"
    CREATE = "create"
    COMPLETE = "complete"  # a GPU instance that lacks some of its compute instances


@dataclass(frozen=True)
class Step:
    """One change to a GPU; `compute` are the slices of the compute instances that are made."""

    uuid: str
    act: Act
    instance: Instance | None = None
    compute: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return it for people."""
        return self.act.value if self.instance is None else f"{self.act.value} {self.instance}"

    @property
    def changes_mode(self) -> bool:
        """Whether it is about the GPU's mode."""
        return self.act in {Act.MODE_ON, Act.MODE_OFF}


@dataclass(frozen=True)
class GpuPlan:
    """What leads one GPU to its layout. `refusal` says why nothing of it is done, and `is_wrong` that no waiting helps.

    `is_declared` is False for a GPU that no entry is about: it stays as it is. `more` says what is only known once the
    mode is on.
    """

    index: int
    uuid: str
    steps: tuple[Step, ...] = ()
    refusal: str = ""
    hint: str = ""
    is_wrong: bool = False
    is_declared: bool = True
    more: str = ""
