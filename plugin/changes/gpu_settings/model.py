"""The values of declared settings: what is wanted of which GPUs, and what leads a GPU to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plugin.driver.gpu_settings import Setting, Value, Values

if TYPE_CHECKING:
    from collections.abc import Mapping

_MILLI = 1000


@dataclass(frozen=True)
class Entry:
    """What is wanted of some GPUs. `devices` None: all; `filters`: PCI device and subsystem id, None for any."""

    devices: tuple[int, ...] | None
    filters: tuple[tuple[int, int | None], ...] = ()
    values: Values = field(default_factory=dict)


@dataclass(frozen=True)
class SettingChange:
    """One setting of one GPU; `value` None: clocks are unlocked.

    `is_again`: what was set already and cannot be read back is set once more.
    """

    uuid: str
    setting: Setting
    value: Value | None
    is_again: bool = False

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.setting.value}: {shown(self.setting, self.value)}"


@dataclass(frozen=True)
class GpuPlan:
    """What leads one GPU to its settings. `refusals` say what it cannot have, by setting.

    `wanted` is all that is declared of it, also what is so already.
    """

    index: int
    uuid: str
    wanted: Values = field(default_factory=dict)
    changes: tuple[SettingChange, ...] = ()
    refusals: Mapping[Setting, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def news(self) -> tuple[SettingChange, ...]:
        """The changes without those that only set something once more."""
        return tuple(change for change in self.changes if not change.is_again)


def shown(setting: Setting, value: Value | None) -> str:
    """Return a value for people."""
    match value:
        case None:
            return "not locked"
        case bool():
            return "on" if value else "off"
        case (lowest, highest):
            return f"{lowest} to {highest} MHz"
        case int() if setting is Setting.POWER:
            return f"{watts(value):g} W"
        case _:
            return str(value)


def watts(milliwatts: int) -> float:
    """Return watts, whole ones as a whole number."""
    whole, rest = divmod(milliwatts, _MILLI)
    return milliwatts / _MILLI if rest else whole
