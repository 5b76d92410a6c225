"""What labels need of the host besides NVML: the machine's name, the GPUs' PCI devices, the kernel module's flavour."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.publication.labels.vgpu import HostDriver, find_host_driver

if TYPE_CHECKING:
    from collections.abc import Iterable

_MACHINE = "class/dmi/id/product_name"
_BANNER = "driver/nvidia/version"  # "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  Release …"
_MAX_BYTES = 4096


@dataclass(frozen=True)
class HostFacts:
    """What was read, in the order of the GPUs; None where a GPU does not say.

    `classes` are PCI classes (0x0302); `vgpus` are hosts' drivers, False for GPUs that are not vGPUs. `kernel_module`
    is "open" or "proprietary", "" where it is not loaded.
    """

    machine: str = ""
    classes: tuple[int | None, ...] = ()
    vgpus: tuple[HostDriver | bool | None, ...] = ()
    kernel_module: str = ""


def read_host(
    sys_root: Path, addresses: Iterable[str], machine_file: str = "", *, proc_root: Path = Path("/proc")
) -> HostFacts:
    """Read it; `machine_file` in the place of the DMI product name. What cannot be read is missing, never an error."""
    devices = [sys_root / "bus/pci/devices" / address for address in addresses]
    machine = _read(Path(machine_file) if machine_file else sys_root / _MACHINE) or b""
    return HostFacts(
        machine.decode("utf-8", "replace").strip(),
        tuple(map(_read_class, devices)),
        tuple(map(_read_vgpu, devices)),
        _flavour(_read(proc_root / _BANNER)),
    )


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return None


def _flavour(banner: bytes | None) -> str:
    line = (banner or b"").partition(b"\n")[0]
    if b"Kernel Module" not in line:
        return ""
    return "open" if b"Open Kernel Module" in line else "proprietary"


def _read_class(device: Path) -> int | None:
    """Return the class without its last byte, the programming interface."""
    try:
        return int(_read(device / "class") or b"", 16) >> 8
    except ValueError:
        return None


def _read_vgpu(device: Path) -> HostDriver | bool | None:
    config = _read(device / "config")
    try:
        return None if config is None else find_host_driver(config) or False
    except ValueError:
        return None
