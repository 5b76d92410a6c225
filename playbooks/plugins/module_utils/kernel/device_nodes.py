"""Creates the device nodes of a freshly loaded driver, where neither a udev rule nor nvidia-modprobe did.

Numbers and permissions are the driver's own: ``/proc/devices`` and ``/proc/driver/nvidia``.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_DRIVER = "/proc/driver/nvidia"
_CONTROL_MINOR = 255
_MODESET_MINOR = 254
_DEFAULT_MODE = 0o666
_MINOR = re.compile(r"^Device Minor:\s*([0-9]+)", re.MULTILINE)
_PARAMETER = re.compile(r"^(\w+): ([0-9]+)$", re.MULTILINE)
_CHARACTER_DEVICE = re.compile(r"^ *([0-9]+) (nvidia\S*)$", re.MULTILINE)

MakeNode = Callable[..., None]  # as os.mknod


@dataclass(frozen=True)
class DeviceNode:
    """A character device as the driver wants it."""

    path: str
    major: int
    minor: int
    mode: int = _DEFAULT_MODE
    uid: int = 0
    gid: int = 0


def missing_nodes(host: Host) -> list[DeviceNode]:
    """Return the missing nodes of the loaded driver; none where the driver leaves them to others."""
    parameters = {name: int(value) for name, value in _PARAMETER.findall(host.read_text(f"{_DRIVER}/params") or "")}
    if not parameters.get("ModifyDeviceFiles", 1):
        return []
    mode = parameters.get("DeviceFileMode", _DEFAULT_MODE)
    uid, gid = parameters.get("DeviceFileUID", 0), parameters.get("DeviceFileGID", 0)
    return [
        DeviceNode(path, major, minor, mode, uid, gid)
        for path, major, minor in _expected(host)
        if not host.path(path).exists()
    ]


def _expected(host: Host) -> list[tuple[str, int, int]]:
    devices = (host.read_text("/proc/devices") or "").split("Block devices:")[0]
    majors = {name: int(major) for major, name in _CHARACTER_DEVICE.findall(devices)}
    major, uvm = majors.get("nvidia", majors.get("nvidia-frontend")), majors.get("nvidia-uvm")
    expected: list[tuple[str, int, int]] = []
    if major is not None:
        expected += [("/dev/nvidiactl", major, _CONTROL_MINOR)]
        expected += [(f"/dev/nvidia{minor}", major, minor) for minor in _gpu_minors(host)]
        if host.path("/sys/module/nvidia_modeset").is_dir():
            expected += [("/dev/nvidia-modeset", major, _MODESET_MINOR)]
    if uvm is not None:
        expected += [("/dev/nvidia-uvm", uvm, 0), ("/dev/nvidia-uvm-tools", uvm, 1)]
    return expected


def _gpu_minors(host: Host) -> list[int]:
    folder = f"{_DRIVER}/gpus"
    texts = (host.read_text(f"{folder}/{address}/information") or "" for address in host.names(folder))
    return sorted(int(match.group(1)) for text in texts if (match := _MINOR.search(text)))


def make_nodes(host: Host, nodes: list[DeviceNode], mknod: MakeNode = os.mknod) -> None:
    """Create nodes; one that somebody else created meanwhile is left as it is."""
    for node in nodes:
        place = host.path(node.path)
        try:
            mknod(place, stat.S_IFCHR | node.mode, os.makedev(node.major, node.minor))
        except FileExistsError:
            continue
        place.chmod(node.mode)  # what mknod was given went through the umask
        os.chown(place, node.uid, node.gid)
