"""What the driver says of a GPU's settings: plain values. Not here: which ones are wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

Range = tuple[int, int]
Value = bool | str | int | Range
Values = Mapping["Setting", Value]

DEFAULT_MODE, EXCLUSIVE_PROCESS = "DEFAULT", "EXCLUSIVE_PROCESS"


class Setting(Enum):
    """One setting by its key in the contract.

    Values: whether the mode is on; the compute mode's name; milliwatts; the lowest and the highest MHz.
    """

    PERSISTENCE = "persistenceMode"
    COMPUTE = "computeMode"
    POWER = "powerLimitWatts"
    GRAPHICS = "graphicsClockMHz"
    MEMORY = "memoryClockMHz"


@dataclass(frozen=True)
class SettableGpu:
    """One GPU. `values` lacks what it does not tell, among it always the locked clocks, which NVML has no question for.

    `limits` are the least and the most of power, and of clocks (from 1); `defaults` what the driver begins with.
    `problem` says why it is silent.
    """

    index: int
    uuid: str
    model: str = ""
    pci_device_id: int = 0
    pci_subsystem_id: int = 0
    is_cut: bool = False
    values: Values = field(default_factory=dict)
    limits: Mapping[Setting, Range] = field(default_factory=dict)
    defaults: Values = field(default_factory=dict)
    problem: str = ""
