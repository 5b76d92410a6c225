"""Finds processes that hold an NVIDIA device node: one that has it open or mapped blocks a driver exchange.

Nodes are the driver's own (``/dev/nvidia*``) and those that the kernel's graphics system makes for its GPUs
(``/dev/dri``). Facts of nodes without a daemon; the daemon answers the same (``plugin/holdings/holders/scan.py``), and
a test gives both the same processes.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.daemon.lock import daemon_pid
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import DAEMON_UNIT, DRIVER_SERVICES
from ansible_collections.grapnel.node.plugins.module_utils.use.cgroup import parse_cgroup

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_DEVICE = "/dev/nvidia"
_NVIDIA = "0x10de"
_DRM = "/sys/class/drm"
_DRI_NODE = re.compile(r"(card|renderD)[0-9]+")
_PROCESS = re.compile(r"[0-9]{1,9}")
_DELETED = " (deleted)"
_PATH_FIELD = 5  # of a line of /proc/PID/maps, counted from 0 (proc_pid_maps(5))
_MAX_HOLDERS = 1000
_MAX_DEVICES = 64  # that are told of one process
_MAX_TEXT_BYTES = 1 << 20
PATIENCE_S = 15.0  # milliseconds, but for a process whose memory map is locked by a call that hangs


def read_device_holders(host: Host, patience_s: float = PATIENCE_S) -> list[dict[str, Any]]:
    """Facts ``device_holders``, in order of the process id; of very many the first.

    A process that ends meanwhile, or that root may not look into, is not told. Where mappings cannot be read in time,
    descriptors alone count. The node daemon has its unit's name also where it runs as a pod.
    """
    daemon = daemon_pid(host)
    dri_nodes = _dri_nodes(host)
    opened = {pid: _open_nodes(host, pid, dri_nodes) for pid in _processes(host)}
    mapped = _mapped_in_time(host, opened, dri_nodes, patience_s)
    holders = ((pid, _together(nodes, mapped.get(pid, frozenset()))) for pid, nodes in opened.items())
    held = islice((one for one in holders if one[1]), _MAX_HOLDERS)
    return [_describe(host, pid, nodes, is_daemon=pid == daemon) for pid, nodes in held]


def _processes(host: Host) -> list[int]:
    return sorted(int(name) for name in host.names("/proc") if _PROCESS.fullmatch(name))


def _together(opened: frozenset[str] | None, mapped: frozenset[str] | None) -> list[str]:
    return [] if opened is None or mapped is None else sorted(opened | mapped)


def _dri_nodes(host: Host) -> frozenset[str]:
    """Return the nodes of ``/dev/dri`` that belong to NVIDIA GPUs; others are of no interest."""
    names = (name for name in host.names(_DRM) if _DRI_NODE.fullmatch(name))
    return frozenset(f"/dev/dri/{name}" for name in names if host.read_text(f"{_DRM}/{name}/device/vendor") == _NVIDIA)


def _open_nodes(host: Host, pid: int, dri_nodes: Collection[str]) -> frozenset[str] | None:
    """Return the nodes behind the descriptors of a process; None for one that cannot be looked into."""
    folder = f"/proc/{pid}/fd"
    found = set()
    try:
        for name in os.listdir(host.path(folder)):
            with suppress(FileNotFoundError, ProcessLookupError):  # closed meanwhile
                target = os.readlink(host.path(f"{folder}/{name}")).removesuffix(_DELETED)
                if target in dri_nodes or _is_node(host, target, f"{folder}/{name}"):
                    found.add(target)
    except OSError:
        return None
    return frozenset(found)


def _is_node(host: Host, target: str, link: str) -> bool:
    """Tell by the name, and only where that is unusual by the file: looking at files can hang on a dead disk."""
    if target.startswith(_DEVICE):
        return True
    is_unusual = target.rpartition("/")[2].startswith("nvidia") and "/dev/" in target
    return is_unusual and stat.S_ISCHR(host.path(link).stat().st_mode)


def _mapped_in_time(
    host: Host, pids: Collection[int], dri_nodes: Collection[str], patience_s: float
) -> dict[int, frozenset[str] | None]:
    """Return what each process has mapped, without those that come after one whose map is locked."""
    found: dict[int, frozenset[str] | None] = {}

    def read() -> None:
        for pid in pids:
            found[pid] = _mapped_nodes(host, pid, dri_nodes)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(patience_s)
    return found.copy()


def _mapped_nodes(host: Host, pid: int, dri_nodes: Collection[str]) -> frozenset[str] | None:
    """Return the nodes that a process has mapped, with or without a descriptor; None as for descriptors."""
    try:
        with host.open(f"/proc/{pid}/maps") as lines:
            return frozenset(path for path in _paths(lines) if path.startswith(_DEVICE) or path in dri_nodes)
    except OSError:
        return None


def _paths(lines: Iterator[bytes]) -> Iterator[str]:
    for line in lines:
        fields = line.decode("utf-8", "replace").rstrip("\n").split(maxsplit=_PATH_FIELD)
        if len(fields) > _PATH_FIELD:
            yield fields[_PATH_FIELD].removesuffix(_DELETED)


def _text(host: Host, path: str) -> str:
    """Return a file's text as it is: white space counts in the name of a control group."""
    try:
        with host.open(path) as stream:
            return stream.read(_MAX_TEXT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _describe(host: Host, pid: int, devices: list[str], *, is_daemon: bool) -> dict[str, Any]:
    place = parse_cgroup(_text(host, f"/proc/{pid}/cgroup"))
    unit = DAEMON_UNIT if is_daemon else place.unit
    return {
        "pid": pid,
        "command": printable(_text(host, f"/proc/{pid}/comm").strip()),
        "devices": [printable(device) for device in devices[:_MAX_DEVICES]],
        "unit": unit and printable(unit),
        "is_driver_service": place.unit in DRIVER_SERVICES,
        "pod_uid": place.pod_uid,
        "container_id": place.container_id,
    }
