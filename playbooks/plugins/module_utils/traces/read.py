"""Gathers what a node's own records tell of who changed it: logs of packages, times of files, states of units.

Whoever is root can have changed these records, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.packages import family
from ansible_collections.grapnel.node.plugins.module_utils.traces import apt, dnf, zypper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host
    from ansible_collections.grapnel.node.plugins.module_utils.traces.change import PackageChange

_CHANGES: Mapping[str, Callable[[Host], dict[str, PackageChange]]] = {
    family.APT: apt.read_changes,
    family.DNF: dnf.read_changes,
    family.ZYPPER: zypper.read_changes,
}
_RELEASES = tuple(f"/usr/lib/grapnel/{part}/RELEASE" for part in ("driver", "hook", "node"))
# Of a log that a crash has left with nonsense in it, only what can be a name and a version is told.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~_^:-]{0,127}")
_MAX_PACKAGES = 512
_PROPERTIES = "Id,StateChangeTimestampMonotonic,Result"
_TIMEOUT_S = 20.0
_MICROSECONDS = 1_000_000


def read_traces(host: Host, clock: Clock, manager: str, files: Iterable[str], units: Iterable[str]) -> dict[str, Any]:
    """Return the facts ``traces`` about these files and units, and about the packages of ``manager``."""
    return {
        "packages": _packages(host, manager),
        "files": {path: found for path in (*files, *_RELEASES) if (found := _times(host, path))},
        "services": _services(host, clock, tuple(units)),
    }


def _packages(host: Host, manager: str) -> dict[str, Any]:
    """Return the last changes of packages, of too many the newest."""
    changes = _CHANGES[manager](host).items()
    plain = [entry for entry in changes if _PLAIN.fullmatch(entry[0]) and _PLAIN.fullmatch(entry[1].version or "0")]
    newest = sorted(plain, key=lambda entry: -entry[1].time)[:_MAX_PACKAGES]
    return {name: change.described() for name, change in newest}


def _times(host: Host, path: str) -> dict[str, int] | None:
    """Return when a file was written, and when mode, owner or name changed; of one that is gone, its folder's time."""
    place = host.path(path)
    try:
        found = place.lstat()
    except OSError:
        try:
            return {"folder": _whole(place.parent.lstat().st_mtime)}
        except OSError:
            return None
    return {"written": _whole(found.st_mtime), "changed": _whole(found.st_ctime)}


def _whole(seconds: float) -> int:
    return max(0, int(seconds))


def _services(host: Host, clock: Clock, units: tuple[str, ...]) -> dict[str, Any]:
    """Return since when units are in their state, and how their last run ended."""
    if not units:
        return {}
    shown = host.run(["systemctl", "show", "--property", _PROPERTIES, *units], _TIMEOUT_S)
    boot = clock.now() - clock.monotonic()
    found = {}
    for block in shown.stdout.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        since = values.get("StateChangeTimestampMonotonic", "")
        if values.get("Id") and since.isdecimal() and int(since):
            found[values["Id"]] = {
                "since": _whole(boot + int(since) / _MICROSECONDS),
                "result": values.get("Result", ""),
            }
    return found
