"""Processes that have NVIDIA device nodes open: whoever holds one keeps the driver from being replaced."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_DEVICE = "/dev/nvidia"


def read_device_holders(host: Host) -> list[dict[str, Any]]:
    """Facts ``device_holders``, in order of the process id."""
    pids = sorted(int(name) for name in host.names("/proc") if name.isdigit())
    holders = ((pid, _open_devices(host, pid)) for pid in pids)
    return [_describe(host, pid, devices) for pid, devices in holders if devices]


def _open_devices(host: Host, pid: int) -> list[str]:
    """Device nodes behind the descriptors of a process; none when it has ended meanwhile."""
    folder = f"/proc/{pid}/fd"
    targets = (_link(host, f"{folder}/{name}") for name in host.names(folder))
    return sorted({target for target in targets if target.startswith(_DEVICE)})


def _link(host: Host, path: str) -> str:
    try:
        return os.readlink(host.path(path))  # noqa: PTH115 - /proc's links name devices that Path would resolve
    except OSError:
        return ""


def _describe(host: Host, pid: int, devices: list[str]) -> dict[str, Any]:
    return {
        "pid": pid,
        "command": host.read_text(f"/proc/{pid}/comm") or "",
        "devices": devices,
        "unit": _unit(host.read_text(f"/proc/{pid}/cgroup") or ""),
    }


def _unit(cgroup: str) -> str | None:
    """Find the innermost systemd unit in a process's control group."""
    parts = [part for line in cgroup.splitlines() for part in line.split(":", 2)[-1].split("/")]
    units = [part for part in parts if part.endswith((".service", ".scope"))]
    return units[-1] if units else None
