"""Turns an allotment into operations. Pure: what is planned can be shown and compared before anything happens."""

from __future__ import annotations

import os

from runtime_hook.container.devicerules import is_allowed
from runtime_hook.container.operations import AddDeviceNode, AllowDevice, BindFile, LinkName, MergeLoaderCache
from runtime_hook.errors import InventoryError
from runtime_hook.host.driverfiles import CONTROL_NODES, REQUIRED_SONAMES
from runtime_hook.loadercache.cache import CacheEntry
from runtime_hook.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_hook.bundle import DeviceRule
    from runtime_hook.container.operations import Operation
    from runtime_hook.host.inventory import Inventory, Library
    from runtime_hook.host.platforms import Platform
    from runtime_hook.request.allotment import Allotment

BINARY_FOLDER = "/usr/bin"
_ELF_CLASS = 64


@value
class Layout:
    """Where a container keeps libraries."""

    library_folder: str


def choose_layout(platform: Platform, *, is_debian: bool) -> Layout:
    """Return the layout of an image: Debian's multiarch folder, or everyone else's."""
    return Layout(f"/usr/lib/{platform.multiarch}" if is_debian else "/usr/lib64")


class Planner:
    """Plans for one container on one host. ``host_path`` tells where the host sees a file of the inventory."""

    def __init__(self, inventory: Inventory, platform: Platform, host_path: Callable[[str], str]) -> None:
        self._inventory = inventory
        self._platform = platform
        self._host_path = host_path

    def plan(self, allotment: Allotment, layout: Layout, rules: tuple[DeviceRule, ...]) -> list[Operation]:
        """Return the operations in order; the loader cache is last, as nothing is found before it is written."""
        libraries = self._libraries(allotment.capabilities)
        operations: list[Operation] = []
        for library in libraries:
            operations += self._give_library(library, layout.library_folder)
        operations += self._give_binaries(allotment.capabilities)
        if allotment.adds_devices:
            operations += self._give_devices(allotment, rules)
        if libraries:
            operations.append(MergeLoaderCache(self._cache_entries(libraries, layout.library_folder)))
        return operations

    def _libraries(self, capabilities: tuple[str, ...]) -> list[Library]:
        chosen = [
            library
            for library in self._inventory.libraries
            if library.capability in capabilities and library.elf_class == _ELF_CLASS
        ]
        present = {library.soname for library in chosen}
        for capability in capabilities:
            soname, package = REQUIRED_SONAMES.get(capability, ("", ""))
            if soname and soname not in present:
                raise InventoryError(
                    f"driver {self._inventory.driver_version} on this host has no {soname} for {capability}",
                    f"install {package} of the same version",
                )
        return chosen

    def _give_library(self, library: Library, folder: str) -> list[Operation]:
        source, name = self._host_path(library.path), os.path.basename(library.path)
        operations: list[Operation] = [BindFile(source, folder, name, is_mandatory=True)]
        if library.soname != name:
            operations.append(LinkName(folder, library.soname, name, source, is_mandatory=True))
        return operations + [
            LinkName(folder, link, library.soname, source, is_mandatory=False) for link in library.links
        ]

    def _give_binaries(self, capabilities: tuple[str, ...]) -> list[Operation]:
        return [
            BindFile(self._host_path(binary.path), BINARY_FOLDER, binary.name, is_mandatory=False)
            for binary in self._inventory.binaries
            if binary.capability in capabilities
        ]

    def _give_devices(self, allotment: Allotment, rules: tuple[DeviceRule, ...]) -> list[Operation]:
        wanted = [(gpu.path, gpu.major, gpu.minor) for gpu in allotment.gpus]
        for kind in self._control_kinds(allotment.capabilities):
            device = next((device for device in self._inventory.control if device.kind == kind), None)
            if device is not None:
                wanted.append((device.path, device.major, device.minor))
            elif kind != "uvm-tools":  # only profilers need it
                path = CONTROL_NODES[kind]
                raise InventoryError(f"device node {path} is missing on this host", "nvidia-modprobe -c0 -u makes it")
        operations: list[Operation] = [AddDeviceNode(*device, source=self._host_path(device[0])) for device in wanted]
        operations += [AllowDevice(*device) for device in wanted if not is_allowed(rules, *device[1:])]
        return operations

    @staticmethod
    def _control_kinds(capabilities: tuple[str, ...]) -> tuple[str, ...]:
        kinds: tuple[str, ...] = ("ctl",)
        if "compute" in capabilities:
            kinds += ("uvm", "uvm-tools")
        if "display" in capabilities:
            kinds += ("modeset",)
        return kinds

    def _cache_entries(self, libraries: list[Library], folder: str) -> tuple[CacheEntry, ...]:
        names = [name for library in libraries for name in (library.soname, *library.links)]
        return tuple(CacheEntry(name, f"{folder}/{name}", self._platform.cache_flags) for name in names)
