"""The declared settings, and `gpu-settings.json` in the state folder: what was set, written by one at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from plugin.base.documents import member, members, optional, read_versioned, text, truth
from plugin.base.errors import GpuSettingsError, os_reason
from plugin.changes.gpu_settings.document import MAX_BYTES as MAX_DECLARED
from plugin.changes.gpu_settings.document import parse_settings, parse_values, values_to_json
from plugin.driver.gpu_settings import Setting, Values
from plugin.system.durable import read_bounded, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from plugin.changes.gpu_settings.model import Entry, GpuPlan
    from plugin.driver.gpu_settings import SettableGpu

DECLARED = Path("/etc/grapnel/gpu-settings.json")
RECORD_FILE = "gpu-settings.json"
_Value = TypeVar("_Value")


def has_settings(folder: Path, declared: Path = DECLARED) -> bool:
    """Tell whether anything is declared, or was set: without either, no driver needs to be asked."""
    return declared.exists() or (folder / RECORD_FILE).exists()


def read_settings(path: Path) -> tuple[Entry, ...]:
    """Return what is declared, nothing where no file is there; raises GpuSettingsError."""
    hint = "it is written by `grapnel apply`; the contract is gpu-settings"
    return _read(path, MAX_DECLARED, parse_settings, hint) or ()


def read_record(folder: Path) -> Record:
    """Return what was set; raises GpuSettingsError."""
    hint = "remove it, and reboot where settings are to be given back: what was set is forgotten with it"
    return _read(folder / RECORD_FILE, MAX_BYTES, parse_record, hint) or Record()


def write_record(folder: Path, record: Record) -> None:
    """Put the file in place in one step and on the disk; raises GpuSettingsError."""
    path = folder / RECORD_FILE
    try:
        replace_file(path, render_record(record))
    except OSError as error:
        hint = "no setting was changed; you must be root, and the disk must be writable and have space"
        raise GpuSettingsError(f"{path} cannot be written: {os_reason(error)}", hint) from error


def _read(path: Path, limit: int, parse: Callable[[bytes], _Value], hint: str) -> _Value | None:
    try:
        return parse(read_bounded(path, limit + 1))
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = os_reason(error)
        raise GpuSettingsError(f"{path} cannot be read: {reason}", "are you root?") from error
    except (ValueError, RecursionError) as error:
        raise GpuSettingsError(f"{path} cannot be understood: {error}", hint) from error


# What is remembered of settings: which ones were set on which GPU since the machine was booted. Locked clocks cannot
# be read back, and what is declared no more has to be told from what others have set.

SCHEMA = "grapnel.dev/gpu-settings-applied/v1alpha1"
MAX_BYTES = 1024 * 1024


@dataclass(frozen=True)
class GpuRecord:
    """What was set on a GPU; `former_persistence` is its persistence mode from before, None where it was not set."""

    values: Values = field(default_factory=dict)
    former_persistence: bool | None = None


@dataclass(frozen=True)
class Record:
    """What was set since a boot, by UUID. A reboot takes all of it away."""

    boot_id: str = ""
    gpus: Mapping[str, GpuRecord] = field(default_factory=dict)


def record_of(boot_id: str, plans: Iterable[GpuPlan], gpus: Iterable[SettableGpu], former: Record) -> Record:
    """Return what is remembered once plans are carried out. Of GPUs that do not answer, what was remembered stays."""
    found = {gpu.uuid: gpu for gpu in gpus if not gpu.problem}
    kept = former.gpus if former.boot_id == boot_id else {}
    silent = {uuid: gpu for uuid, gpu in kept.items() if uuid not in found}
    answering = [plan for plan in plans if plan.wanted and plan.uuid in found]
    return Record(boot_id, silent | {plan.uuid: _of(plan, found[plan.uuid], kept.get(plan.uuid)) for plan in answering})


def with_former(record: Record, former: Record) -> Record:
    """Return what is remembered while plans are carried out: also what is still to be given back."""
    if former.boot_id != record.boot_id:
        return record
    return Record(
        record.boot_id,
        {**former.gpus, **{uuid: _join(gpu, former.gpus.get(uuid)) for uuid, gpu in record.gpus.items()}},
    )


def _join(gpu: GpuRecord, former: GpuRecord | None) -> GpuRecord:
    if former is None:
        return gpu
    persistence = former.former_persistence if gpu.former_persistence is None else gpu.former_persistence
    return GpuRecord({**former.values, **gpu.values}, persistence)


def _of(plan: GpuPlan, gpu: SettableGpu, former: GpuRecord | None) -> GpuRecord:
    values = {setting: value for setting, value in plan.wanted.items() if setting not in plan.refusals}
    if Setting.PERSISTENCE not in values:
        return GpuRecord(values)
    known = None if former is None else former.former_persistence
    return GpuRecord(values, bool(gpu.values.get(Setting.PERSISTENCE)) if known is None else known)


def render_record(record: Record) -> str:
    """Return the text of the file."""
    gpus = {
        uuid: {"set": values_to_json(gpu.values), "formerPersistence": gpu.former_persistence}
        for uuid, gpu in record.gpus.items()
    }
    return json.dumps({"schema": SCHEMA, "bootId": record.boot_id, "gpus": gpus}, indent=2) + "\n"


def parse_record(content: bytes) -> Record:
    """Return what a file says; raises ValueError."""
    document = read_versioned(content, MAX_BYTES, SCHEMA)
    return Record(member(document, "bootId", text()), member(document, "gpus", _parse_gpus))


def _parse_gpus(value: object) -> dict[str, GpuRecord]:
    return {
        uuid: GpuRecord(member(gpu, "set", parse_values), member(gpu, "formerPersistence", optional(truth), None))
        for uuid, gpu in members(value).items()
    }
