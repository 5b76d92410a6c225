"""Reads the GPUs and what connects them on the PCI bus, and the NVIDIA kernel module as the kernel reports it.

Nothing here asks the driver: a node without one has facts too.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import version_on_disk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_PCI_DEVICES = "/sys/bus/pci/devices"
_MODULE = "/sys/module/nvidia"
_NVRM = "/proc/driver/nvidia/version"
_PARAMETERS = "/proc/driver/nvidia/params"
_PARAMETER = re.compile(r"([A-Za-z0-9_]{1,100}): ([0-9]{1,10})")
_MAX_PARAMETERS = 256
_NVIDIA = "10de"
_MELLANOX = "15b3"
_DISPLAY_CLASS = "03"
_NVSWITCH_CLASS = "0680"  # "bridge, other"
_INFINIBAND = "/sys/class/infiniband"


def read_hardware(host: Host) -> dict[str, Any]:
    """Return the facts ``gpus``, ``nvswitches`` and ``infiniband``, by one look at every function of the PCI bus.

    GPUs are NVIDIA's functions with a display class, in order of their address.
    """
    functions = {address: _identify(host, address) for address in host.names(_PCI_DEVICES)}
    ours = {address: pci_class for address, (vendor, pci_class) in functions.items() if vendor == _NVIDIA}
    return {
        "gpus": [_describe(host, each, pci_class) for each, pci_class in ours.items() if _is_gpu(pci_class)],
        "nvswitches": sum(pci_class.startswith(_NVSWITCH_CLASS) for pci_class in ours.values()),
        "infiniband": bool(host.names(_INFINIBAND)) or any(vendor == _MELLANOX for vendor, _ in functions.values()),
    }


def read_gpus(host: Host) -> list[dict[str, Any]]:
    """Return the facts ``gpus`` alone."""
    return list(read_hardware(host)["gpus"])


def _is_gpu(pci_class: str) -> bool:
    return pci_class.startswith(_DISPLAY_CLASS)


def _identify(host: Host, address: str) -> tuple[str, str]:
    """Return vendor and class."""
    folder = f"{_PCI_DEVICES}/{address}"
    return _hexadecimal(host.read_text(f"{folder}/vendor")), _hexadecimal(host.read_text(f"{folder}/class"))


def _describe(host: Host, address: str, pci_class: str) -> dict[str, Any]:
    folder = f"{_PCI_DEVICES}/{address}"
    return {
        "address": address,
        "vendor": _NVIDIA,
        "device": _hexadecimal(host.read_text(f"{folder}/device")),
        "class": pci_class,
        "numa_node": _numa_node(host.read_text(f"{folder}/numa_node")),
        "subsystem_vendor": _hexadecimal(host.read_text(f"{folder}/subsystem_vendor")),
        "subsystem_device": _hexadecimal(host.read_text(f"{folder}/subsystem_device")),
    }


def _hexadecimal(text: str | None) -> str:
    return (text or "").lower().removeprefix("0x")


def _numa_node(text: str | None) -> int | None:
    """Return the node; the kernel writes -1 where it knows none."""
    return int(text) if text and text.isdecimal() else None


def read_module(host: Host, kernels: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the facts ``module``; a file that the facts ``kernels`` tell about is not looked into a second time."""
    known = {file["path"]: file["version"] for kernel in kernels for file in kernel["modules"]}
    loaded = host.path(_MODULE).is_dir()
    banner = host.read_text(_NVRM) if loaded else None
    return {
        "loaded": loaded,
        "version": host.read_text(f"{_MODULE}/version"),
        "flavour": _flavour(banner),
        "refcount": int(host.read_text(f"{_MODULE}/refcnt") or 0),
        "holders": host.names(f"{_MODULE}/holders"),
        "on_disk": version_on_disk(host, "nvidia", known),
        "parameters": _read_parameters(host) if loaded else {},
    }


def _read_parameters(host: Host) -> dict[str, int]:
    """Return the numbers among the module's parameters that are in force, by their names in modprobe.d.

    The driver lists them itself, without ``NVreg_``; in ``/sys/module`` they are not (NVIDIA's nv-reg.h gives each the
    permissions 0). Texts are left out: nobody says whether the driver shows them as they were written.
    """
    lines = (_PARAMETER.fullmatch(line.strip()) for line in (host.read_text(_PARAMETERS) or "").splitlines())
    return {f"NVreg_{one[1]}": int(one[2]) for one in islice(filter(None, lines), _MAX_PARAMETERS)}


def _flavour(banner: str | None) -> str | None:
    """Tell the flavours apart by the NVRM line: the open one is called "Open Kernel Module"."""
    if not banner:
        return None
    return "open" if "Open Kernel Module" in banner.splitlines()[0] else "proprietary"
