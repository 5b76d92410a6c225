"""Writes trees like `/sys` and `/dev` of machines with network cards, FPGAs and other accelerators.

The layout is the kernel's: a device is a folder below `devices/pci…`, and buses, drivers and classes are links to it.
Device nodes are links to /dev/null: character devices, without being root.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MELLANOX, INTEL, AMD, XILINX = "0x15b3", "0x8086", "0x1002", "0x10ee"


@dataclass(frozen=True)
class PciDevice:
    """A PCI device. `children` are folders below it that have an entry in a class, such as `infiniband/mlx5_0`.

    `files` has contents by path, `nodes` names below `/dev`.
    """

    address: str
    vendor: str
    device: str
    code: str  # PCI's class
    driver: str = ""
    numa_node: int = -1
    children: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    parent: str = ""  # the physical function, of a virtual one
    iommu_group: str = ""


def rdma_nic(
    address: str, number: int, *, numa_node: int = 0, state: str = "4: ACTIVE", link: str = "InfiniBand"
) -> PciDevice:
    """Return a ConnectX with one port, by the number of its RDMA device; nodes are the kernel's."""
    port = f"infiniband/mlx5_{number}/ports/1"
    return PciDevice(
        address,
        MELLANOX,
        "0x1017",
        "0x020700",
        "mlx5_core",
        numa_node,
        (
            f"infiniband/mlx5_{number}",
            f"infiniband_verbs/uverbs{number}",
            f"infiniband_mad/umad{number}",
            f"infiniband_mad/issm{number}",
            f"net/ib{number}",
        ),
        {f"{port}/state": state, f"{port}/link_layer": link, f"net/ib{number}/type": "32"},
        tuple(f"infiniband/{name}{number}" for name in ("uverbs", "umad", "issm")),
    )


def virtual_function(address: str, number: int, parent: str, *, numa_node: int = 0) -> PciDevice:
    """Return a virtual function of a network card that has RDMA, by the number of its RDMA device."""
    return PciDevice(
        address,
        MELLANOX,
        "0x1018",
        "0x020000",
        "mlx5_core",
        numa_node,
        (
            f"infiniband/mlx5_{number}",
            f"infiniband_verbs/uverbs{number}",
            f"infiniband_mad/umad{number}",
            f"net/v{number}",
        ),
        {f"infiniband/mlx5_{number}/ports/1/state": "4: ACTIVE", f"net/v{number}/type": "1"},
        tuple(f"infiniband/{name}{number}" for name in ("uverbs", "umad")),
        parent,
    )


def fpga(
    address: str, render: int, *, vbnv: str = "xilinx_u200_xdma_201830_1", timestamp: str = "1542252769"
) -> PciDevice:
    """Return the user function of an Alveo card; its management function is another device, and nobody's."""
    return PciDevice(
        address,
        XILINX,
        "0x5001",
        "0x120000",
        "xocl",
        1,
        (f"drm/renderD{render}", f"drm/card{render - 128}"),
        {"user_pf": "", "rom.u.1/VBNV": vbnv, "rom.u.1/timestamp": timestamp, "dma.qdma.u.2/name": "qdma"},
        (f"dri/renderD{render}",),
    )


def gpu(address: str, vendor: str, driver: str, number: int, *, numa_node: int = 0) -> PciDevice:
    """Return a GPU of the direct rendering manager, by the number of its card."""
    names = (f"card{number}", f"renderD{128 + number}")
    children = tuple(f"drm/{name}" for name in names)
    nodes = tuple(f"dri/{name}" for name in names)
    return PciDevice(address, vendor, "0x740f", "0x038000", driver, numa_node, children, {}, nodes)


def bare(address: str, vendor: str, code: str) -> PciDevice:
    """Return a device without driver, children or nodes."""
    return PciDevice(address, vendor, "0x0001", code)


class Tree:
    """`sys` and `dev` below a folder, in which devices come and go."""

    def __init__(self, folder: Path) -> None:
        self.sys_root = folder / "sys"
        self.dev_root = folder / "dev"
        for each in (self.sys_root / "bus/pci/devices", self.sys_root / "class", self.dev_root):
            each.mkdir(parents=True, exist_ok=True)

    def folder(self, address: str) -> Path:
        """Return the folder of a device."""
        return self.sys_root / "devices/pci0000:00" / address

    def add(self, *devices: PciDevice) -> None:
        """Plug devices in: attributes, links and nodes."""
        for device in devices:
            self._add(device)

    def _add(self, device: PciDevice) -> None:
        folder = self.folder(device.address)
        folder.mkdir(parents=True)
        numbers = {"vendor": device.vendor, "device": device.device, "class": device.code}
        for path, content in {**numbers, "numa_node": str(device.numa_node), **device.files}.items():
            self.write(device.address, path, content)
        _link(self.sys_root / "bus/pci/devices" / device.address, folder)
        if device.driver:
            _link(folder / "driver", self._made(f"bus/pci/drivers/{device.driver}"))
        if device.iommu_group:
            _link(folder / "iommu_group", self._made(f"kernel/iommu_groups/{device.iommu_group}"))
        if device.parent:
            _link(folder / "physfn", self.folder(device.parent))
            count = sum(1 for _ in self.folder(device.parent).glob("virtfn*"))
            _link(self.folder(device.parent) / f"virtfn{count}", folder)
        for child in device.children:
            (folder / child).mkdir(parents=True, exist_ok=True)
            _link(folder / child / "device", folder)
            _link(self.sys_root / "class" / child, folder / child)
        self.add_nodes(*device.nodes)

    def _made(self, path: str) -> Path:
        (self.sys_root / path).mkdir(parents=True, exist_ok=True)
        return self.sys_root / path

    def write(self, address: str, path: str, content: str) -> None:
        """Change what a device says of itself."""
        file = self.folder(address) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")

    def add_nodes(self, *names: str) -> None:
        """Make device nodes."""
        for name in names:
            node = self.dev_root / name
            node.parent.mkdir(parents=True, exist_ok=True)
            node.symlink_to("/dev/null")

    def remove_node(self, name: str) -> None:
        """Take a device node away."""
        (self.dev_root / name).unlink()

    def unplug(self, address: str) -> None:
        """Take a device away from the bus; its folder stays, as nothing leads to it any more."""
        (self.sys_root / "bus/pci/devices" / address).unlink()
        for entry in self.sys_root.glob("class/*/*"):
            if self.folder(address) in entry.resolve().parents:
                entry.unlink()


def _link(path: Path, target: Path) -> None:
    """Link as the kernel does, by a relative path: the tree is the same wherever it is mounted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))
