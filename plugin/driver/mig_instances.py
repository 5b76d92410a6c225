"""What the driver says of GPU instances, and where they could lie: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugin.driver.snapshot import MigSize


@dataclass(frozen=True)
class InstanceProfile:
    """A profile of GPU instances, as one GPU has it; `places` are pairs of first memory slice and their number.

    `size` is what a MIG device with all compute slices of such an instance has.
    """

    id: int
    name: str  # 1g.10gb+me
    slices: int
    most: int  # of them at once
    places: tuple[tuple[int, int], ...]
    size: MigSize | None = None


@dataclass(frozen=True)
class GpuInstance:
    """A GPU instance. `compute` are ids and slices of its compute instances, `uuids` its MIG devices."""

    id: int
    profile: str
    start: int
    size: int
    compute: tuple[tuple[int, int], ...] = ()
    uuids: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()  # processes that compute on it


@dataclass(frozen=True)
class CuttableGpu:
    """One GPU. `is_cut` None: it has no MIG mode; `is_pending`: the mode that it has after its next reset.

    `problem` says why it does not answer; nothing else is known of it then. `for_claims` are those of its instances
    that were made for claims, where somebody has told them apart.
    """

    index: int
    uuid: str
    minor: int
    model: str = ""
    pci_device_id: int = 0
    pci_subsystem_id: int = 0
    is_cut: bool | None = None
    is_pending: bool | None = None
    needs_reset: bool = False  # to change its mode: GPUs up to NVIDIA Ampere
    profiles: tuple[InstanceProfile, ...] = ()
    instances: tuple[GpuInstance, ...] = ()
    for_claims: tuple[GpuInstance, ...] = ()
    pids: tuple[int, ...] = ()
    problem: str = ""
