"""Defines what a node's GPUs are set to: modes, the power limit and clocks, which the driver forgets at each boot."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from provision.declaration.spec.model.mig import GpuIndex
from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.texts import DeviceFilter

Megahertz = Annotated[int, Meta(ge=1, le=99_999)]
Watts = Annotated[int, Meta(ge=1, le=99_999)]


class ComputeMode(Enum):
    """Who may compute on a GPU, in NVIDIA's words."""

    DEFAULT = "DEFAULT"
    EXCLUSIVE_PROCESS = "EXCLUSIVE_PROCESS"


class Clocks(Section, frozen=True, kw_only=True):
    """Between which values a clock is locked."""

    min: Annotated[Megahertz, doc("The lowest clock, in MHz.")]
    max: Annotated[Megahertz, doc("The highest clock, in MHz.")]


class GpuSettings(Section, frozen=True, kw_only=True):
    """What some of a node's GPUs are set to; they keep what is not declared."""

    devices: Annotated[
        Literal["all"] | tuple[GpuIndex, ...], doc("Which GPUs: all, or a list of indices as nvidia-smi has.")
    ]
    device_filter: Annotated[
        tuple[DeviceFilter, ...],
        doc("PCI ids of the GPUs that the entry is for: device and vendor, and behind ':' subsystem; empty: any."),
    ] = ()
    persistence_mode: Annotated[
        bool | None, doc("Whether the driver keeps GPUs initialized while nobody uses them; null: as it is.")
    ] = None
    compute_mode: Annotated[
        ComputeMode | None, doc("Whether one process at a time may compute on a GPU, or many; null: as it is.")
    ] = None
    power_limit_watts: Annotated[Watts | None, doc("The most that a GPU draws, in watts; null: as it is.")] = None
    graphics_clock: Annotated[
        Clocks | None, doc("Between which values the clock of the processors is locked; null: as it is.")
    ] = msgspec.field(name="graphicsClockMHz", default=None)
    memory_clock: Annotated[
        Clocks | None, doc("Between which values the memory's clock is locked; null: as it is.")
    ] = msgspec.field(name="memoryClockMHz", default=None)
