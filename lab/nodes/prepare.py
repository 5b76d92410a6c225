"""Fills the folder of a new node: everything that turns the shared bare tree into this node, before its first boot."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from lab.nodes.ssh import make_key
from lab.nodes.system import KEY

if TYPE_CHECKING:
    from lab.nodes.layer import Layer
    from lab.nodes.system import Materials
    from lab.nvml.machine import Gpu

FILES = Path(__file__).with_name("files")
HOST_KEY = "etc/ssh/ssh_host_ed25519_key"
NETWORK_UNIT = """\
[Match]
Name=host0

[Network]
Address={address}/24
LinkLocalAddressing=no
IPv6AcceptRA=no
LLDP=no
"""
GPU_CLASS = "0x030200"
NVIDIA = "0x10de"


def write_identity(layer: Layer, hostname: str, address: str, login_key: Path) -> str:
    """Write the node's name, address and keys; return its public host key."""
    layer.write("/etc/hostname", f"{hostname}\n")
    layer.write("/etc/hosts", f"127.0.0.1 localhost\n{address} {hostname}\n")
    layer.write("/etc/machine-id", f"{uuid.uuid4().hex}\n", 0o444)
    layer.write("/etc/systemd/network/10-host0.network", NETWORK_UNIT.format(address=address))
    layer.folder("/root/.ssh").chmod(0o700)
    layer.write("/root/.ssh/authorized_keys", login_key.read_text(), 0o600)
    return make_key(layer.reserve(f"/{HOST_KEY}"), hostname).read_text().strip()


def write_site_files(layer: Layer, materials: Materials) -> None:
    """Copy what every node has: package source and its key, ssh daemon, container support, engine configuration."""
    layer.copy_tree("/", FILES, without=() if materials.has_apt else ("etc/apt",))
    layer.folder("/usr/lib/gpusim/pci")
    layer.link("/etc/systemd/system/sysinit.target.wants/lab-prepare.service", "../lab-prepare.service")
    layer.copy("/etc/apt/keyrings/grapnel-lab.asc" if materials.has_apt else KEY, materials.key)


def write_pci(folder: Path, gpus: tuple[Gpu, ...]) -> None:
    """Write the sysfs files of the GPUs' PCI functions, to be mounted over ``/sys/bus/pci/devices`` at boot."""
    folder.mkdir()
    for gpu in gpus:
        function = folder / gpu.pci_address
        function.mkdir()
        values = {
            "vendor": NVIDIA,
            "device": f"0x{gpu.pci_device_id >> 16:04x}",
            "class": GPU_CLASS,
            "numa_node": str(gpu.numa_node),
        }
        for name, value in values.items():
            (function / name).write_text(f"{value}\n")
