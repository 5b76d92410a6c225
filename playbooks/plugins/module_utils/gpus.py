"""Reads the GPUs on the PCI bus, and the NVIDIA kernel module as the kernel reports it.

Nothing here asks the driver: a node without one has facts too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.modprobe import version_on_disk

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_PCI_DEVICES = "/sys/bus/pci/devices"
_MODULE = "/sys/module/nvidia"
_NVRM = "/proc/driver/nvidia/version"
_NVIDIA = "10de"
_DISPLAY_CLASS = "03"


def read_gpus(host: Host) -> list[dict[str, Any]]:
    """Return the facts ``gpus``: PCI functions of NVIDIA with a display class, in order of their address."""
    functions = (_read_function(host, address) for address in host.names(_PCI_DEVICES))
    return [one for one in functions if one["vendor"] == _NVIDIA and one["class"].startswith(_DISPLAY_CLASS)]


def _read_function(host: Host, address: str) -> dict[str, Any]:
    folder = f"{_PCI_DEVICES}/{address}"
    return {
        "address": address,
        "vendor": _hexadecimal(host.read_text(f"{folder}/vendor")),
        "device": _hexadecimal(host.read_text(f"{folder}/device")),
        "class": _hexadecimal(host.read_text(f"{folder}/class")),
        "numa_node": _numa_node(host.read_text(f"{folder}/numa_node")),
    }


def _hexadecimal(text: str | None) -> str:
    return (text or "").lower().removeprefix("0x")


def _numa_node(text: str | None) -> int | None:
    """Return the node; the kernel writes -1 where it knows none."""
    return int(text) if text and text.isdecimal() else None


def read_module(host: Host) -> dict[str, Any]:
    """Return the facts ``module``."""
    loaded = host.path(_MODULE).is_dir()
    banner = host.read_text(_NVRM) if loaded else None
    return {
        "loaded": loaded,
        "version": host.read_text(f"{_MODULE}/version"),
        "flavour": _flavour(banner),
        "refcount": int(host.read_text(f"{_MODULE}/refcnt") or 0),
        "holders": host.names(f"{_MODULE}/holders"),
        "on_disk": version_on_disk(host, "nvidia"),
    }


def _flavour(banner: str | None) -> str | None:
    """Tell the flavours apart by the NVRM line: the open one is called "Open Kernel Module"."""
    if not banner:
        return None
    return "open" if "Open Kernel Module" in banner.splitlines()[0] else "proprietary"
