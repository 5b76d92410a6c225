"""Processes that have NVIDIA device nodes open: whoever holds one keeps the driver from being replaced."""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.printable import printable
from ansible_collections.grapnel.node.plugins.module_utils.units import DRIVER_SERVICES

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_DEVICE = "/dev/nvidia"
_USERS = "user@"  # a user's own service manager, below which the user makes control groups
_MAX_HOLDERS = 1000
_MAX_DEVICES = 64  # that are told of one process
_POD = re.compile(r"(?:^|[/-])pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?=[/.:]|$)")
_CONTAINER = re.compile(r"[0-9a-f]{64}")


def read_device_holders(host: Host) -> list[dict[str, Any]]:
    """Facts ``device_holders``, in order of the process id; of very many the first."""
    pids = sorted(int(name) for name in host.names("/proc") if name.isdigit())
    holders = ((pid, _open_devices(host, pid)) for pid in pids)
    return [_describe(host, pid, devices) for pid, devices in islice((one for one in holders if one[1]), _MAX_HOLDERS)]


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
    lines = (host.read_text(f"/proc/{pid}/cgroup") or "").split("\n")  # a group's name may have any other line end
    paths = [line.split(":", 2)[-1] for line in lines]
    unit, (pod_uid, container_id) = _unit(paths), _pod(paths)
    return {
        "pid": pid,
        "command": printable(host.read_text(f"/proc/{pid}/comm") or ""),
        "devices": [printable(device) for device in devices[:_MAX_DEVICES]],
        "unit": unit and printable(unit),
        "is_driver_service": unit in DRIVER_SERVICES,
        "pod_uid": pod_uid,
        "container_id": container_id,
    }


def _unit(paths: list[str]) -> str | None:
    """Find the outermost systemd unit of a process: what is below it, a user or a container has named."""
    for path in reversed(paths):
        for part in path.split("/"):
            if part.endswith((".service", ".scope")):
                return part
    return None


def _pod(paths: list[str]) -> tuple[str | None, str | None]:
    """Find pod and container in the names that kubelet and engine give control groups.

    With the cgroupfs driver ``…/pod<uid>/<id>``, with systemd's ``…-pod<uid, underscores>.slice/<engine>-<id>.scope``,
    and ``….slice:cri-containerd:<id>`` where kubelet and engine have different ones.
    """
    for path in paths:
        pod = None if (_unit([path]) or "").startswith(_USERS) else _POD.search(path)
        container = _CONTAINER.search(path, pod.end() if pod else 0)
        if pod or container:
            return pod.group(1).replace("_", "-") if pod else None, container.group() if container else None
    return None, None
