"""Reads the state of systemd units, what they have not read yet, and keeps marks of restarts that are due.

A restart is due from just before a service or one of its files changes until the service has restarted. The
mark lies in ``/run``, so a reboot, which is a restart too, clears it; a run that is killed in between is found out by
the next one (``docs/contracts/node-facts``).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.engines import table as engines
from ansible_collections.grapnel.node.plugins.module_utils.preflight import unattended

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host

RESTART_MARKS = "/run/grapnel/restart"
DAEMON_RELOAD_MARK = "/run/grapnel/daemon-reload"
RELOAD_MARK = "/run/grapnel/kernel-module.json"  # an exchange of the kernel module is not finished
RELEASED = "/var/lib/grapnel/node/released.json"  # the node daemon's own: the GPUs are out of service
SITE_MARK = "/var/lib/grapnel/site-upgrade"  # it was site.yml that took them out
DAEMON_UNIT = "grapnel-node.service"
# They keep the driver open while they run, and are of no use without it: an exchange of the module restarts them.
DRIVER_SERVICES = (
    "dcgm-exporter.service",
    "dcgm.service",
    "nvidia-dcgm.service",
    "nvidia-fabricmanager.service",
    "nvidia-gridd.service",
    "nvidia-imex.service",
    "nvidia-persistenced.service",
    "nvidia-powerd.service",
    "nvidia-topologyd.service",
    "nv_peer_mem.service",
)
# It counts the GPUs when it starts and registers them with its controller, so that an exchange restarts it as well; its
# jobs go on without it. It is none of the driver's own: jobs may be in its control group, and hold a GPU themselves.
COUNTING_SERVICES = ("slurmd.service",)

_UNITS = (
    *engines.UNITS,
    "grapnel-drift.timer",
    "grapnel-inventory.path",
    "grapnel-node.service",
    "kubelet.service",
    "nvidia-persistenced.service",
    "snap.docker.dockerd.service",
    *unattended.UNITS,
)
_PROPERTIES = "Id,LoadState,ActiveState,UnitFileState,StateChangeTimestampMonotonic,KillMode,FragmentPath,DropInPaths"
_NONE: Mapping[str, Sequence[str]] = MappingProxyType({})
_TIMEOUT_S = 20.0
_MOST_NEWER = 16  # paths of one service
_MICROSECONDS = 1_000_000
_MADE_AGAIN = "/run/"  # what systemd's generators write there is written at each reload
# By what begins the paths. A Kubernetes distribution writes its containerd's configuration itself when it starts.
_READ_AT_START = {
    unit: (f"{each.folder}/", *each.read_at_start)
    for each in engines.ENGINES.values()
    if each.folder
    for unit in each.units
}


@dataclass(frozen=True)
class UnitState:
    """What systemd says about a unit: ``UnitFileState`` and ``ActiveState``, empty where it does not know."""

    enabled: str
    active: str

    @property
    def is_enabled(self) -> bool:
        """Whether it starts at boot, by itself or by another unit."""
        return self.enabled in ("enabled", "static", "generated")

    @property
    def is_active(self) -> bool:
        """Whether it runs, or is about to."""
        return self.active in ("active", "activating", "reloading")


def read_units(
    host: Host, clock: Clock, files: Collection[str] = (), own: Mapping[str, Sequence[str]] = _NONE
) -> dict[str, Any]:
    """Return the facts ``services``; a unit that systemd does not know is ``not-found``.

    ``files`` are the paths that were looked at, ``own`` those that a unit reads beside what its engine is known to.
    """
    shown = host.run(["systemctl", "show", "--property", _PROPERTIES, *_UNITS], _TIMEOUT_S)
    return {
        unit["Id"]: {
            **_describe(unit),
            "newer_files": _newer_files(host, clock, unit, files, own.get(unit["Id"], ())),
        }
        for unit in _parse(shown.stdout)
        if "Id" in unit
    }


def _parse(text: str) -> Iterator[dict[str, str]]:
    for block in text.split("\n\n"):
        yield dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _describe(unit: dict[str, str]) -> dict[str, Any]:
    return {
        "load": unit.get("LoadState", ""),
        "active": unit.get("ActiveState", ""),
        "enabled": unit.get("UnitFileState", ""),
        "kill_mode": unit.get("KillMode", ""),
    }


def _newer_files(
    host: Host, clock: Clock, unit: Mapping[str, str], files: Iterable[str], own: Iterable[str]
) -> list[str]:
    """Return the files that changed since a unit last changed its state; for Docker, a reload counts as such a change.

    What counts is the last change of content, mode or name (ctime): `mv` and `cp -p` keep a file's own time. A file
    that has its former content again counts as well, as nobody knows what the service has read.
    ``unit`` are systemd's properties of it, ``files`` all those that were looked at, ``own`` the ones that it reads
    beside those of its known folders.
    """
    since = int(unit.get("StateChangeTimestampMonotonic") or 0)
    if unit.get("ActiveState") != "active" or not since:
        return []
    now = clock.now()
    start = now - clock.monotonic() + since / _MICROSECONDS
    paths = sorted({*_of_unit(unit), *_settings(unit["Id"], files), *own})
    return [path for path in paths if start < _changed(host, path) <= now][:_MOST_NEWER]


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


def is_restart_due(host: Host, unit: str) -> bool:
    """Tell whether a change was made that the running service has not seen."""
    return host.path(f"{RESTART_MARKS}/{unit}").exists()


def mark_restart(host: Host, unit: str) -> None:
    """Note, before a change, that the service will have to restart for it."""
    host.path(RESTART_MARKS).mkdir(parents=True, exist_ok=True, mode=0o755)
    host.path(f"{RESTART_MARKS}/{unit}").touch(mode=0o644)


def clear_restart(host: Host, unit: str) -> None:
    """Remove the mark: the service has restarted since, or nothing was changed after all."""
    host.path(f"{RESTART_MARKS}/{unit}").unlink(missing_ok=True)


def is_daemon_reload_due(host: Host) -> bool:
    """Tell whether unit files were changed that systemd may not have read."""
    return host.path(DAEMON_RELOAD_MARK).exists()


def mark_daemon_reload(host: Host) -> None:
    """Note, before unit files are changed, that systemd will have to read them; a boot does that as well."""
    path = host.path(DAEMON_RELOAD_MARK)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    path.touch(mode=0o644)


def clear_daemon_reload(host: Host) -> None:
    """Remove the mark: systemd has read its units since."""
    host.path(DAEMON_RELOAD_MARK).unlink(missing_ok=True)


def unit_states(host: Host, units: Sequence[str]) -> list[UnitState]:
    """Return the states of units in their order, with one question to systemd."""
    shown = host.run(["systemctl", "show", "--property", "UnitFileState,ActiveState", *units], _TIMEOUT_S)
    found = [UnitState(each.get("UnitFileState", ""), each.get("ActiveState", "")) for each in _parse(shown.stdout)]
    return (found + [UnitState("", "")] * len(units))[: len(units)]


def unit_state(host: Host, unit: str) -> UnitState:
    """Return the state of one unit."""
    return unit_states(host, [unit])[0]


def forget_starts(host: Host, *units: str) -> None:
    """Have the next start of units refused for no start before it: those of a change are as many as they have to be.

    systemd refuses the sixth start within ten seconds, and Docker's fourth within a minute (`StartLimitBurst=` in
    systemd.unit(5)). A unit that it does not know yet was not started too often.
    """
    host.run(["systemctl", "reset-failed", *units], _TIMEOUT_S)


def unit_property(host: Host, unit: str, name: str) -> str:
    """One property of a unit; empty when systemd does not know it."""
    return host.run(["systemctl", "show", "--property", name, "--value", unit], _TIMEOUT_S).stdout.strip()
