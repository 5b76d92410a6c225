"""Reads sysfs and looks for device nodes: bounded, below its roots whatever links say, and nothing is an error.

A device may vanish between two reads, and a file of a driver may say anything: what cannot be had, or is not printable
ASCII of a moderate length, is not there.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.devices.other.variables import PCI_ADDRESS
from plugin.driver.topology.sysfs import with_cpus
from plugin.system.durable import read_bounded

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_BYTES = 4096
_MAX_VALUE = 256
_MAX_ENTRIES = 4096  # of one folder
_MAX_LINKS = 4  # from an entry of a class to its device
_NUMA_DIGITS = 4  # of more nodes than any kernel has
_MAX_FOUND = 64  # by one path with wildcards


def _entries(folder: str) -> list[str]:
    """Return the names in a folder, in the order in which people count: card2 before card10."""
    with suppress(OSError), os.scandir(folder) as found:
        return sorted((entry.name for _, entry in zip(range(_MAX_ENTRIES), found, strict=False)), key=_counted)
    return []


def _counted(name: str) -> tuple[tuple[int, str], ...]:
    parts = []
    digits = ""
    for letter in f"{name}\0":
        if letter in "0123456789":
            digits += letter
            continue
        if digits:
            parts.append((int(digits[:32]), ""))
            digits = ""
        parts.append((-1, letter))
    return tuple(parts)


class HostSysfs:
    """The real file system below `/sys` and `/dev`, or other roots. For one look: what was read is not read again."""

    def __init__(self, sys_root: Path, dev_root: Path) -> None:
        self._sys_root = os.path.realpath(sys_root)
        self._dev_root = dev_root
        self._devices: dict[str, tuple[FoundDevice, ...]] = {}

    def devices(self, folder: str) -> tuple[FoundDevice, ...]:
        """Return the devices of a folder; several entries of one device are the first one."""
        if folder not in self._devices:
            self._devices[folder] = self._look_into(folder)
        return self._devices[folder]

    def _look_into(self, folder: str) -> tuple[FoundDevice, ...]:
        found: dict[str, FoundDevice] = {}
        for name in _entries(f"{self._sys_root}/{folder}"):
            device = self._device(folder, name)
            if device is not None:
                found.setdefault(device.path, device)
        return tuple(found.values())

    def _device(self, folder: str, name: str) -> FoundDevice | None:
        """Return the device of an entry: where its link `device` leads, and on a bus the entry itself.

        A connector leads to its card, and that to the device on the bus.
        """
        path = os.path.realpath(f"{self._sys_root}/{folder}/{name}")
        for _ in range(_MAX_LINKS):
            link = f"{path}/device"
            if not os.path.islink(link):  # noqa: PTH114 - thousands of them
                break
            path = os.path.realpath(link)
        return FoundDevice(self._sys_root, path, name) if self._is_inside(path) and os.path.isdir(path) else None  # noqa: PTH112 - as above

    def _is_inside(self, path: str) -> bool:
        return path.startswith(f"{self._sys_root.rstrip('/')}/")

    def node(self, path: str) -> str | None:
        """Look for a character or block device: a file that a bind mount left does not count."""
        found = self._dev_root / path
        try:
            mode = found.stat().st_mode
        except (OSError, ValueError):
            return None
        return str(found) if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else None


class FoundDevice:
    """A device's folder. What was read of it is read once."""

    def __init__(self, sys_root: str, path: str, name: str) -> None:
        self.name = name
        self.path = path
        self._root = f"{sys_root.rstrip('/')}/"
        self._values: dict[str, tuple[str, ...]] = {}

    @property
    def address(self) -> str:
        """The name of its folder, where that is a PCI address."""
        last = self.path.rpartition("/")[2]
        return last if PCI_ADDRESS.fullmatch(last) else ""

    @property
    def numa_node(self) -> int | None:
        """What sysfs says, as `with_cpus`; -1 is where the firmware does not."""
        for value in self.values("numa_node"):
            if value.isascii() and value.isdigit() and len(value) <= _NUMA_DIGITS:
                return with_cpus(Path(self._root), int(value))
        return None

    def values(self, path: str) -> tuple[str, ...]:
        """Return what the files say."""
        if path not in self._values:
            self._values[path] = tuple(value for found in self._find(path) if (value := self._read(found)) is not None)
        return self._values[path]

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names of what exists."""
        return tuple(found.rpartition("/")[2] for found in self._find(path))

    def link(self, name: str) -> str:
        """Return where a link leads."""
        try:
            return os.readlink(f"{self.path}/{name}").rstrip("/").rpartition("/")[2]
        except OSError:
            return ""

    def _find(self, path: str) -> list[str]:
        """Return what exists under a path with wildcards, nothing that lies elsewhere than below sysfs."""
        *components, last = path.split("/")
        folders = [self.path]
        for component in components:
            steps = (each for folder in folders for each in self._step(folder, component))
            folders = [real for each in steps if (real := self._inside(each))][:_MAX_FOUND]
        steps = (each for folder in folders for each in self._step(folder, last))
        return [each for each in steps if self._inside(each)][:_MAX_FOUND]

    def _inside(self, path: str) -> str:
        """Return where an entry of a real folder is, "" where that is not below sysfs."""
        if not os.path.islink(path):  # noqa: PTH114 - as above
            return path
        real = os.path.realpath(path)
        return real if real.startswith(self._root) else ""

    @staticmethod
    def _step(folder: str, component: str) -> Iterator[str]:
        if "*" not in component and "?" not in component:
            path = f"{folder}/{component}"
            if os.path.exists(path):  # noqa: PTH110 - as above
                yield path
            return
        for name in _entries(folder):
            if fnmatchcase(name, component):
                yield f"{folder}/{name}"

    @staticmethod
    def _read(path: str) -> str | None:
        try:
            content = read_bounded(Path(path), _MAX_BYTES)
            value = content.decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return value if value and len(value) <= _MAX_VALUE and value.isprintable() else None
