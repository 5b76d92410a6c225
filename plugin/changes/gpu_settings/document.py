"""Reads the declared settings: contract `docs/contracts/gpu-settings`. Pure.

Which GPUs an entry is about is said as in a MIG layout; of several entries about a GPU, the last that has a key counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plugin.base.documents import list_of, member, members, read_versioned, text, truth, whole
from plugin.changes.gpu_settings.model import Entry, watts
from plugin.changes.mig_layout.document import parse_devices, parse_filters
from plugin.driver.gpu_settings import DEFAULT_MODE, EXCLUSIVE_PROCESS, Setting, Value, Values

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = "grapnel.dev/gpu-settings/v1alpha1"
MAX_BYTES = 256 * 1024
_MAX_ENTRIES = 1024
_MAX_WATTS = 100_000
_MAX_MHZ = 100_000
_MILLI = 1000
_SELECTION = {"deviceFilter", "devices"}


def parse_settings(content: bytes) -> tuple[Entry, ...]:
    """Return what a file declares; raises ValueError."""
    document = read_versioned(content, MAX_BYTES, SCHEMA)
    _refuse_unknown(document.keys() - {"schema", "settings"})
    return member(document, "settings", list_of(_parse_entry, _MAX_ENTRIES))


def _refuse_unknown(keys: set[str]) -> None:
    if keys:
        raise ValueError(f"{min(keys)[:64]} is not a known key")


def _parse_entry(value: object) -> Entry:
    held = members(value)
    selection = {key: held[key] for key in held.keys() & _SELECTION}
    values = parse_values({key: held[key] for key in held.keys() - _SELECTION})
    if not values:
        raise ValueError("an entry must have a setting")
    return Entry(
        member(selection, "devices", parse_devices), member(selection, "deviceFilter", parse_filters, ()), values
    )


# Values, also those of the record


def parse_values(value: object) -> dict[Setting, Value]:
    """Return settings by their keys; raises ValueError."""
    _refuse_unknown(members(value).keys() - {setting.value for setting in Setting})
    return {
        setting: member(value, setting.value, _PARSERS[setting])
        for setting in Setting
        if setting.value in members(value)
    }


def values_to_json(values: Values) -> dict[str, object]:
    """Return settings in the form that `parse_values` reads."""
    return {setting.value: _to_json(setting, values[setting]) for setting in Setting if setting in values}


def _to_json(setting: Setting, value: Value) -> object:
    if isinstance(value, tuple):
        return {"min": value[0], "max": value[1]}
    return watts(int(value)) if setting is Setting.POWER else value


def _parse_mode(value: object) -> str:
    if (mode := text()(value)) not in {DEFAULT_MODE, EXCLUSIVE_PROCESS}:
        raise ValueError(f"must be {DEFAULT_MODE} or {EXCLUSIVE_PROCESS}")
    return mode


def _parse_clocks(value: object) -> tuple[int, int]:
    _refuse_unknown(members(value).keys() - {"min", "max"})
    clock = whole(1, _MAX_MHZ)
    lowest, highest = member(value, "min", clock), member(value, "max", clock)
    if lowest > highest:
        raise ValueError("must have a min that is not above its max")
    return lowest, highest


def _parse_watts(value: object) -> int:
    return whole(1, _MAX_WATTS)(value) * _MILLI


_PARSERS: dict[Setting, Callable[[object], Any]] = {
    Setting.PERSISTENCE: truth,
    Setting.COMPUTE: _parse_mode,
    Setting.POWER: _parse_watts,
    Setting.GRAPHICS: _parse_clocks,
    Setting.MEMORY: _parse_clocks,
}
