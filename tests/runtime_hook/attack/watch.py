"""What a host can notice of a container's start: its own files and mounts, and what the container was shown."""

from __future__ import annotations

import os
import stat
from pathlib import Path

HARMLESS = {"ro", "nosuid", "nodev"}
MARK = "executed"  # a hostile program leaves a file of this name


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return what lstat says of everything below a folder, and where links lead."""
    found = {}
    for here, folders, names in os.walk(folder):
        for path in (here, *(f"{here}/{name}" for name in (*folders, *names))):
            status = os.lstat(path)
            link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""  # strings: thousands of rounds
            found[path] = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_rdev, status.st_ino, link)
    return found


class Watch:
    """Compares a host before and after one container. The driver's files are compared by ``DriverWatch``, rarely."""

    def __init__(self, driver: DriverWatch, victim: Path, root: Path) -> None:
        self._driver, self._victim, self._root = driver, victim, root
        self._files: dict[str, tuple[object, ...]] = {}
        self._mounts: set[str] = set()
        self._inside: set[str] = set()

    def begin(self, process: int) -> None:
        """Look at the host, and at the mounts of the container's process."""
        self._files = snapshot(self._victim)
        self._mounts, self._inside = _mounts("self"), _mounts(process)

    def breaches(self, process: int) -> list[str]:
        """Return a line for everything that should not be."""
        found = changes(self._files, snapshot(self._victim))
        found += [f"host mount {line}" for line in _mounts("self") ^ self._mounts]
        for line in _mounts(process) - self._inside:
            found += self._judge(line)
        mark = self._root / MARK
        if mark.exists():
            found.append(f"executed: {mark.read_text().strip()}")
        return found

    def _judge(self, line: str) -> list[str]:
        """Judge a new mount: it lies in the root, and shows a file of the driver or a file system of its own."""
        device, source, place, options = line.split(" ")[2:6]
        if not place.startswith(f"{self._root}/"):
            return [f"mount outside of the root: {line}"]
        is_of_the_host = any(other.split(" ")[2] == device for other in self._mounts)
        is_of_the_driver = any(path.endswith(source) for path in self._driver.files)
        if not is_of_the_host:
            return []
        if not is_of_the_driver:
            return [f"the host's {source} is shown at {place}"]
        missing = HARMLESS - set(options.split(","))
        return [f"the host's {source} at {place} is not {', '.join(sorted(missing))}"] if missing else []


class DriverWatch:
    """Compares the driver's files before and after many containers."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self.files = snapshot(self._folder)

    def breaches(self) -> list[str]:
        """Return a line for every file that has changed."""
        return changes(self.files, snapshot(self._folder))


def changes(before: dict[str, tuple[object, ...]], now: dict[str, tuple[object, ...]]) -> list[str]:
    """Return a line for every file that differs between two snapshots."""
    found = [f"host file {path}" for path in now if before.get(path) != now[path]]
    return found + [f"host file {path} is gone" for path in before if path not in now]


def mounts_below(folder: Path) -> list[str]:
    """Return the host's mounts that are at, or show, something below a folder; others come and go by themselves."""
    return sorted(line for line in _mounts("self") if f"{folder}/" in line)


def _mounts(process: int | str) -> set[str]:
    return set(Path(f"/proc/{process}/mountinfo").read_text(encoding="utf-8").splitlines())
