"""GPUs and a driver in memory for the tests of this room: it keeps what is set, and forgets it as a reload does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from plugin.base.errors import GpuSettingsError
from plugin.driver.gpu_settings import DEFAULT_MODE, SettableGpu, Setting

if TYPE_CHECKING:
    from plugin.driver.gpu_settings import Value

A100 = 0x20B010DE
CLOCKS = {Setting.GRAPHICS, Setting.MEMORY}
FRESH: dict[Setting, Value] = {Setting.PERSISTENCE: False, Setting.COMPUTE: DEFAULT_MODE, Setting.POWER: 400_000}


def gpu(index: int = 0, **changes: object) -> SettableGpu:
    made = SettableGpu(
        index,
        f"GPU-{index}",
        "NVIDIA A100-SXM4-40GB",
        A100,
        0x134F10DE,
        values=FRESH,
        limits={Setting.POWER: (100_000, 400_000), Setting.GRAPHICS: (1, 1410), Setting.MEMORY: (1, 1215)},
        defaults={Setting.POWER: 400_000},
    )
    return replace(made, **changes)  # type: ignore[arg-type] # fields of a GPU


class Killed(Exception):
    """The process ends here."""


@dataclass
class MemoryDriver:
    """`carry_out.Driver`; `refused` are settings that cannot be set, `die_at` the number of a call that is the last."""

    gpus: list[SettableGpu] = field(default_factory=lambda: [gpu()])
    locked: dict[tuple[str, Setting], Value] = field(default_factory=dict)
    refused: set[Setting] = field(default_factory=set)
    calls: list[tuple[str, Setting, Value | None]] = field(default_factory=list)
    die_at: int = 0

    def read(self) -> tuple[SettableGpu, ...]:
        return tuple(self.gpus)

    def write(self, uuid: str, setting: Setting, value: Value | None) -> None:
        self.calls.append((uuid, setting, value))
        if len(self.calls) == self.die_at:
            raise Killed
        if setting in self.refused:
            raise GpuSettingsError(f"{setting.value} cannot be set: not supported")
        if setting in CLOCKS:
            self.locked.pop((uuid, setting), None)
            if value is not None:
                self.locked[uuid, setting] = value
            return
        assert value is not None
        self.set(uuid, setting, value)

    def set(self, uuid: str, setting: Setting, value: Value) -> None:
        """Set it as somebody does who does not ask grapnel."""
        self.gpus = [
            replace(each, values={**each.values, setting: value}) if each.uuid == uuid else each for each in self.gpus
        ]

    def reload(self) -> None:
        """Forget everything, as the module does."""
        self.gpus = [replace(each, values=FRESH) for each in self.gpus]
        self.locked.clear()
