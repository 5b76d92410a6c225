"""Where PCI devices are, read from sysfs. A machine that does not say something is no error."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from plugin.driver.topology.facts import Nic, Place

if TYPE_CHECKING:
    from pathlib import Path

_NVIDIA, _DISPLAY = "0x10de", "0x03"
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
_DEVICE = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def read_numa_node(sys_root: Path, device: Path) -> int | None:
    """Return the NUMA node of a device's folder, as `with_cpus`; sysfs has -1 where the firmware does not say."""
    try:
        number = int((device / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return with_cpus(sys_root, number) if number >= 0 else None


def with_cpus(sys_root: Path, number: int) -> int:
    """Return a NUMA node itself, or the nearest one that has CPUs where it has none, such as memory of a Grace GPU's.

    A kubelet that aligns CPUs with devices admits no pod with a device of a node that has none.
    """
    folder = sys_root / "devices/system/node"
    try:
        usable = _numbers((folder / "has_cpu").read_text())
        if number in usable:
            return number
        distances = map(int, (folder / f"node{number}/distance").read_text().split())
        near = zip(distances, _numbers((folder / "online").read_text()), strict=True)
        return min((distance, node) for distance, node in near if node in usable)[1]
    except (OSError, ValueError):
        return number


def _numbers(text: str) -> list[int]:
    """Return the numbers of a list as the kernel writes it, such as `0-1,8`."""
    ends = (part.partition("-") for part in text.strip().split(",") if part)
    return [number for first, _, last in ends for number in range(int(first), int(last or first) + 1)]


def has_gpu(sys_root: Path) -> bool:
    """Whether the machine has a GPU of NVIDIA's, with or without a driver; also where it does not say."""
    folder = sys_root / "bus/pci/devices"
    try:
        return any(_is_gpu(folder / name) for name in os.listdir(folder))
    except OSError:
        return True


def _is_gpu(device: Path) -> bool:
    vendor, kind = ((device / name).read_text() for name in ("vendor", "class"))
    return vendor.strip() == _NVIDIA and kind.startswith(_DISPLAY)


def read_path(device: Path) -> tuple[str, ...]:
    """Return the host bridge, the bridges and the device itself, as the folder's real path names them."""
    parts = os.path.realpath(device).split("/")
    start = next((index for index, part in enumerate(parts) if _HOST_BRIDGE.fullmatch(part)), None)
    if start is None:
        return ()
    return (parts[start], *(part for part in parts[start + 1 :] if _DEVICE.fullmatch(part)))


def read_place(sys_root: Path, address: str) -> Place:
    """Return where a PCI device is."""
    device = sys_root / "bus/pci/devices" / address
    return Place(address, read_numa_node(sys_root, device), read_path(device))


def read_nics(sys_root: Path) -> tuple[Nic, ...]:
    """Return the machine's RDMA devices by name; virtual ones, which are on no bus, are left out."""
    try:
        names = sorted(os.listdir(sys_root / "class/infiniband"))
    except OSError:
        return ()
    found = []
    for name in names:
        device = sys_root / "class/infiniband" / name / "device"
        path = read_path(device)
        if path:
            found.append(Nic(name, Place(path[-1], read_numa_node(sys_root, device), path)))
    return tuple(found)
