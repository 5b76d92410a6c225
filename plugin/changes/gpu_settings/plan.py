"""Works out what leads GPUs to their settings: only what differs, and what is declared no more is given back. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.changes.gpu_settings.model import GpuPlan, SettingChange, shown
from plugin.changes.gpu_settings.store import GpuRecord
from plugin.driver.gpu_settings import DEFAULT_MODE, EXCLUSIVE_PROCESS, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plugin.changes.gpu_settings.model import Entry
    from plugin.changes.gpu_settings.store import Record
    from plugin.driver.gpu_settings import SettableGpu, Value, Values

_CLOCKS = frozenset({Setting.GRAPHICS, Setting.MEMORY})


def plan_settings(
    entries: Sequence[Entry], gpus: Sequence[SettableGpu], record: Record, boot_id: str
) -> tuple[GpuPlan, ...]:
    """Return a plan for each GPU. What was set before this boot is forgotten: the driver has forgotten it as well."""
    known = record.gpus if record.boot_id == boot_id else {}
    return tuple(_plan(gpu, wanted_of(gpu, entries), known.get(gpu.uuid, GpuRecord())) for gpu in gpus)


def missing_indices(entries: Sequence[Entry], gpus: Sequence[SettableGpu]) -> tuple[int, ...]:
    """Return the indices of entries without a filter that no GPU has."""
    named = {index for entry in entries if not entry.filters for index in entry.devices or ()}
    return tuple(sorted(named - {gpu.index for gpu in gpus}))


def wanted_of(gpu: SettableGpu, entries: Sequence[Entry]) -> dict[Setting, Value]:
    """Return what is declared of a GPU: of each key the last entry that has it."""
    wanted: dict[Setting, Value] = {}
    for entry in entries:
        if _is_about(entry, gpu):
            wanted.update(entry.values)
    return wanted


def _is_about(entry: Entry, gpu: SettableGpu) -> bool:
    fits = not entry.filters or any(
        device == gpu.pci_device_id and subsystem in {None, gpu.pci_subsystem_id} for device, subsystem in entry.filters
    )
    return fits and (entry.devices is None or gpu.index in entry.devices)


def _plan(gpu: SettableGpu, wanted: Values, record: GpuRecord) -> GpuPlan:
    if gpu.problem:
        return GpuPlan(gpu.index, gpu.uuid, wanted, problem=gpu.problem)
    refusals = {setting: why for setting, value in wanted.items() if (why := _why_not(gpu, setting, value))}
    changes = [
        *_changes(gpu, {key: value for key, value in wanted.items() if key not in refusals}, record),
        *_returns(gpu, wanted, record),
    ]
    # An idle GPU is forgotten by the driver without persistence mode: it comes first, and goes last.
    changes.sort(key=lambda change: (change.value is False) - (change.value is True))
    return GpuPlan(gpu.index, gpu.uuid, wanted, tuple(changes), refusals)


def _why_not(gpu: SettableGpu, setting: Setting, value: Value) -> str:
    """Return why a GPU cannot have a value, "" where nothing is known against it."""
    if setting not in _CLOCKS and setting not in gpu.values:
        return "this gpu or its driver does not support it"
    if setting is Setting.COMPUTE and gpu.is_cut and value == EXCLUSIVE_PROCESS:
        return f"a gpu in mig mode cannot be {EXCLUSIVE_PROCESS}"
    limits = gpu.limits.get(setting)
    if limits is None or isinstance(value, str):
        return ""
    lowest, highest = value if isinstance(value, tuple) else (value, value)
    if limits[0] <= lowest and highest <= limits[1]:
        return ""
    return (
        f"it can have {shown(setting, limits[0])} to {shown(setting, limits[1])}"
        if setting is Setting.POWER
        else (f"its highest clock is {limits[1]} MHz")
    )


def _changes(gpu: SettableGpu, wanted: Values, record: GpuRecord) -> Iterator[SettingChange]:
    for setting, value in wanted.items():
        if setting in _CLOCKS:
            yield SettingChange(gpu.uuid, setting, value, is_again=record.values.get(setting) == value)
        elif gpu.values[setting] != value:
            yield SettingChange(gpu.uuid, setting, value)


def _returns(gpu: SettableGpu, wanted: Values, record: GpuRecord) -> Iterator[SettingChange]:
    """Give back what is not declared any more, unless an administrator has set something else since."""
    for setting, value in record.values.items():
        if setting in wanted:
            continue
        if setting in _CLOCKS:
            yield SettingChange(gpu.uuid, setting, None)
        elif gpu.values.get(setting) == value and (former := _former(gpu, setting, record)) not in {None, value}:
            yield SettingChange(gpu.uuid, setting, former)


def _former(gpu: SettableGpu, setting: Setting, record: GpuRecord) -> Value | None:
    if setting is Setting.PERSISTENCE:
        return record.former_persistence
    return DEFAULT_MODE if setting is Setting.COMPUTE else gpu.defaults.get(setting)
