"""Brings GPUs to their settings. What is to be remembered is on the disk before the first call that changes anything.

Not here: what is wanted, and who may be asked to wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from plugin.base.errors import GpuSettingsError
from plugin.changes.gpu_settings.plan import plan_settings
from plugin.changes.gpu_settings.store import record_of, with_former

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plugin.changes.gpu_settings.model import Entry, GpuPlan, SettingChange
    from plugin.changes.gpu_settings.store import Record
    from plugin.driver.gpu_settings import SettableGpu, Setting, Value


class SettableDriver(Protocol):
    """What is asked of the driver; both raise GpuSettingsError."""

    def read(self) -> tuple[SettableGpu, ...]:
        """Return the GPUs, with the reason of one that does not answer."""

    def write(self, uuid: str, setting: Setting, value: Value | None) -> None:
        """Set one setting; None unlocks clocks."""


@dataclass
class SettingsResult:
    """What was done, what could not be done and why, and the plans as they were before."""

    plans: tuple[GpuPlan, ...] = ()
    done: list[SettingChange] = field(default_factory=list)
    failed: list[tuple[SettingChange, str]] = field(default_factory=list)


def carry_out(
    entries: Sequence[Entry], driver: SettableDriver, record: Record, boot_id: str, remember: Callable[[Record], None]
) -> SettingsResult:
    """Set what differs, GPU by GPU; a setting that fails keeps no other from being set."""
    gpus = driver.read()
    outcome = SettingsResult(plan_settings(entries, gpus, record, boot_id))
    wanted = record_of(boot_id, outcome.plans, gpus, record)
    meanwhile = with_former(wanted, record)
    if meanwhile != record:
        remember(meanwhile)
    for plan in outcome.plans:
        for change in plan.changes:
            _set(change, driver, outcome)
    if not outcome.failed and wanted != meanwhile:
        remember(wanted)
    return outcome


def _set(change: SettingChange, driver: SettableDriver, outcome: SettingsResult) -> None:
    try:
        driver.write(change.uuid, change.setting, change.value)
    except GpuSettingsError as error:
        outcome.failed.append((change, error.message))
    else:
        outcome.done.append(change)
