"""Reads the folder of device classes: one file, one class. A file with an error is told of, and the others count."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from plugin.base.errors import ConfigError, os_reason
from plugin.devices.other.parse import MAX_BYTES, parse_class
from plugin.system.durable import read_bounded

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from plugin.devices.other.device_class import DeviceClass

SUFFIX = ".json"
MAX_CLASSES = 64


class Classes(NamedTuple):
    """The classes by name, in order, and what is wrong: path → message."""

    classes: Mapping[str, DeviceClass]
    problems: Mapping[str, str]

    @property
    def rescan_s(self) -> float:
        """How often the machine is looked at: as often as the most impatient class asks for."""
        return min(each.rescan_s for each in self.classes.values())


def read_classes(folder: Path, known: Mapping[str, DeviceClass] | None = None) -> Classes:
    """Return what the folder says; of a file with an error, the class of that name that is `known` from before.

    Hidden files and those with another suffix are an editor's copies.
    """
    classes: dict[str, DeviceClass] = {}
    problems: dict[str, str] = {}
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX and not path.name.startswith("."))
    except FileNotFoundError:
        return Classes({}, {})
    except OSError as error:
        problem = f"{folder} cannot be read: {os_reason(error)}"
        return Classes(dict(known or {}), {str(folder): problem})
    if len(paths) > MAX_CLASSES:
        problems[str(folder)] = f"{folder} has {len(paths)} files: the first {MAX_CLASSES} count"
    for path in paths[:MAX_CLASSES]:
        try:
            classes[path.stem] = _read(path)
        except ConfigError as error:
            before = (known or {}).get(path.stem)
            problems[str(path)] = error.message + ("" if before is None else "; it counts as it was before")
            if before is not None:
                classes[path.stem] = before
    return Classes(classes, problems)


def _read(path: Path) -> DeviceClass:
    try:
        content = read_bounded(path, MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {os_reason(error)}") from error
    return parse_class(content, path.stem, str(path))
