"""Finds files that a service reads only when it starts, and that were changed since: what they say is not in force.

What counts is the last change of content, mode or name (ctime): `mv` and `cp -p` keep a file's own time. A file that
has its former content again counts as well, as nobody knows what the service has read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.engines.table import ENGINES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host

_LIMIT = 16  # paths of one service
_MICROSECONDS = 1_000_000
_MADE_AGAIN = "/run/"  # what systemd's generators write there is written at each reload
# By what begins the paths. A Kubernetes distribution writes its containerd's configuration itself when it starts.
_READ_AT_START = {
    unit: (f"{each.folder}/", *each.read_at_start) for each in ENGINES.values() if each.folder for unit in each.units
}


def find_newer_files(
    host: Host, clock: Clock, unit: Mapping[str, str], files: Iterable[str], own: Iterable[str]
) -> list[str]:
    """Return the files that changed since a unit last changed its state; for Docker, a reload counts as such a change.

    ``unit`` are systemd's properties of it, ``files`` all those that were looked at, ``own`` the ones that it reads
    beside those of its known folders.
    """
    since = int(unit.get("StateChangeTimestampMonotonic") or 0)
    if unit.get("ActiveState") != "active" or not since:
        return []
    now = clock.now()
    start = now - clock.monotonic() + since / _MICROSECONDS
    paths = sorted({*_of_unit(unit), *_settings(unit["Id"], files), *own})
    return [path for path in paths if start < _changed(host, path) <= now][:_LIMIT]


def _of_unit(unit: Mapping[str, str]) -> Iterator[str]:
    """Return where systemd has a unit from; its limits are given to a process when it starts."""
    paths = [unit.get("FragmentPath", ""), *unit.get("DropInPaths", "").split()]
    return (path for path in paths if path.startswith("/") and not path.startswith(_MADE_AGAIN))


def _settings(unit: str, files: Iterable[str]) -> Iterator[str]:
    folders = _READ_AT_START.get(unit)
    return (path for path in files if folders and path.startswith(folders))


def _changed(host: Host, path: str) -> float:
    try:
        return host.path(path).stat().st_ctime
    except OSError:
        return 0
