"""Verifies a driver: what is loaded, what programs would load, what the packages say, and that the GPUs answer."""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.change import NO_DRIVER
from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import is_loaded, loaded_version
from ansible_collections.grapnel.node.plugins.module_utils.machine.gpus import read_hardware
from ansible_collections.grapnel.node.plugins.module_utils.use.modules import loaded_modules

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.target import Target
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import InstalledPackage, PackageManager

_NVIDIA = "nvidia"
_BANNER = "/proc/driver/nvidia/version"
_LIBRARIES = ("libnvidia-ml.so.1", "libcuda.so.1")
_MAX_LINKS = 40
_SMI_TIMEOUT_S = 180.0  # without a persistence daemon every GPU is initialised for it
_SMI_GPU = re.compile(r"^GPU \d+: ", re.MULTILINE)
_PASSED_THROUGH = "vfio-pci"


def find_differences(host: Host, manager: PackageManager, target: Target) -> list[str]:
    """Return a line for each thing that is not as the target has it, none when the driver is verified."""
    change = target.change
    if change.version == NO_DRIVER:
        return [*_package_differences(host, manager, target), *_left_loaded(host, change)]
    return [
        *_module_differences(host, change),
        *_library_differences(host, change),
        *_package_differences(host, manager, target),
        *_gpu_differences(host, change),
    ]


def loaded_flavour(host: Host) -> str | None:
    """Return the flavour of the loaded module, or None or it does not say."""
    banner = host.read_text(_BANNER) if is_loaded(host, _NVIDIA) else None
    if not banner:
        return None
    return "open" if "Open Kernel Module" in banner.splitlines()[0] else "proprietary"


def _left_loaded(host: Host, change: DriverChange) -> list[str]:
    loaded = loaded_modules(host) if change.module == NO_DRIVER else []
    return [f"kernel module {name} is still loaded" for name in loaded]


def _module_differences(host: Host, change: DriverChange) -> list[str]:
    if change.module is None:
        return []
    if change.module == NO_DRIVER:
        return _left_loaded(host, change)
    version, flavour = loaded_version(host, _NVIDIA), loaded_flavour(host)
    found = []
    if version != change.module:
        found.append(f"the loaded kernel module is {version or 'none'}, not {change.module}")
    if change.has_module and flavour not in (None, change.flavour):
        found.append(f"the loaded kernel module is the {flavour} one, not the {change.flavour} one")
    return found


def _library_differences(host: Host, change: DriverChange) -> list[str]:
    """Compare the files that the loader's names lead to; where there are no packages, they are somebody else's."""
    if not change.packages:
        return []
    found = {name: library_version(host, name) for name in _LIBRARIES}
    if not any(found.values()):
        return [f"there is neither {' nor '.join(_LIBRARIES)} in the library folders"]
    return [
        f"{name} is {version}, not {change.version}" for name, version in found.items() if _differs(version, change)
    ]


def _differs(version: str | None, change: DriverChange) -> bool:
    return version not in (None, change.version)


def library_version(host: Host, name: str) -> str | None:
    """Return the version in the name of the file that a library's link leads to, None where there is no such file."""
    machine = os.uname().machine
    for folder in (f"/usr/lib/{machine}-linux-gnu", "/usr/lib64", "/usr/lib"):
        place = _resolve(host, f"{folder}/{name}")
        if place is not None:
            return place.rpartition("/")[2].partition(".so.")[2]
    return None


def _resolve(host: Host, path: str) -> str | None:
    """Follow the links of a file within the machine's root."""
    for _ in range(_MAX_LINKS):
        place = host.path(path)
        if not place.is_symlink():
            return path if place.is_file() else None
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), os.fspath(place.readlink())))
    return None


def _package_differences(host: Host, manager: PackageManager, target: Target) -> list[str]:
    change = target.change
    installed = manager.installed(host, {*change.names, *change.remove, *target.known})
    lines = [line for one in change.packages for line in _differences_of(one.name, one.version, installed)]
    lines += [f"package {name} is still installed" for name in change.remove if name in installed]
    return [*lines, *_hold_differences(target, installed, manager.held(host, {*change.names, *target.known}))]


def _differences_of(name: str, version: str, installed: Mapping[str, InstalledPackage]) -> list[str]:
    found = installed.get(name)
    if found is None:
        return [f"package {name} is not installed"]
    if found.version != version:
        return [f"package {name} is {found.version}, not {version}"]
    return [] if found.is_whole else [f"package {name} is not configured"]


def _hold_differences(target: Target, installed: Mapping[str, InstalledPackage], held: set[str]) -> list[str]:
    wanted = held_names(target, installed)
    if wanted is None:
        return []
    lines = [f"package {name} is not held" for name in sorted(wanted - held)]
    free = sorted(held - (target.held or frozenset())) if target.is_way_back else []
    return [*lines, *(f"package {name} is held" for name in free)]


def held_names(target: Target, installed: Collection[str]) -> set[str] | None:
    """Return which of the installed packages are to be held, None where that is left as it is."""
    if target.held is not None:
        return {*target.held}.intersection(installed)
    names = {*target.change.names} if target.change.hold else {*target.kept}.intersection(target.change.names)
    return names.intersection(installed) if names else None


def _gpu_differences(host: Host, change: DriverChange) -> list[str]:
    """Ask every GPU, where a module is to be loaded and nvidia-smi is installed."""
    smi = host.find_command("nvidia-smi") if change.module else None
    if smi is None or not change.packages:
        return []
    done = host.run([smi, "-L"], _SMI_TIMEOUT_S)
    if done.return_code:
        return [f"nvidia-smi fails with {done.return_code}: {done.complaint}"]
    listed, present = len(_SMI_GPU.findall(done.stdout)), len(_own_gpus(host))
    return [] if listed == present else [f"nvidia-smi lists {listed} GPUs, {present} are on the PCI bus"]


def _own_gpus(host: Host) -> list[str]:
    """Return the addresses of the GPUs that the driver would serve: not those that are passed through to a guest."""
    return [
        str(gpu["address"])
        for gpu in read_hardware(host)["gpus"]
        if _bound_driver(host, str(gpu["address"])) != _PASSED_THROUGH
    ]


def _bound_driver(host: Host, address: str) -> str:
    try:
        return host.path(f"/sys/bus/pci/devices/{address}/driver").readlink().name
    except OSError:
        return ""
