"""The declared settings, and `gpu-settings.json` in the state folder: what was set, written by one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from plugin.base.errors import GpuSettingsError
from plugin.changes.gpu_settings.document import MAX_BYTES as MAX_DECLARED
from plugin.changes.gpu_settings.document import parse_settings
from plugin.changes.gpu_settings.record import MAX_BYTES, Record, parse_record, render_record
from plugin.system.durable import read_bounded, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.changes.gpu_settings.model import Entry

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
        raise GpuSettingsError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}", hint) from error


def _read(path: Path, limit: int, parse: Callable[[bytes], _Value], hint: str) -> _Value | None:
    try:
        return parse(read_bounded(path, limit + 1))
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise GpuSettingsError(f"{path} cannot be read: {reason}", "are you root?") from error
    except (ValueError, RecursionError) as error:
        raise GpuSettingsError(f"{path} cannot be understood: {error}", hint) from error
