"""Finds out whether the Docker that runs knows ``--gpus``, and takes grapnel's runtimes out of its settings.

dockerd looks for a program of NVIDIA's once, when it starts.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_PROGRAM = "nvidia-container-runtime-hook"
_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")  # the PATH of a unit of systemd's
_PID = "/run/docker.pid"
_START_FIELD = 19  # of those behind the name in /proc/PID/stat (proc_pid_stat(5): field 22), in ticks since boot
_INEXACT_S = 2.0  # the time of the boot is in whole seconds
_WRAPPER = "/usr/lib/grapnel/hook/grapnel-runtime"


def takes_gpus(host: Host) -> bool | None:
    """Tell whether a program was there when dockerd started; None where none runs."""
    started = _start(host)
    if started is None:
        return None
    return any(time < started + _INEXACT_S for time in _times(host))


def _start(host: Host) -> float | None:
    """Return when the running dockerd started, in seconds since the epoch."""
    pid = (host.read_text(_PID) or "").strip()
    boot = [line for line in (host.read_text("/proc/stat") or "").splitlines() if line.startswith("btime ")]
    try:
        fields = (host.read_text(f"/proc/{int(pid)}/stat") or "").rpartition(")")[2].split()
        return int(boot[0].split()[1]) + int(fields[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
    except (IndexError, ValueError):
        return None


def _times(host: Host) -> list[float]:
    places = (host.path(f"{folder}/{_PROGRAM}") for folder in _FOLDERS)
    return [place.stat().st_ctime for place in places if place.is_file()]


def without_ours(text: str | None) -> dict[str, Any] | None:
    """Return Docker's settings without runtimes of grapnel's; None where there are none of these."""
    try:
        tree = json.loads(text or "")
        ours = {name for name, one in tree["runtimes"].items() if one.get("path") == _WRAPPER}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return None
    if not ours:
        return None
    others = {name: one for name, one in tree["runtimes"].items() if name not in ours}
    return {**tree, "runtimes": others} if others else {key: tree[key] for key in tree if key != "runtimes"}
