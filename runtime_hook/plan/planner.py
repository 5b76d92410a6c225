"""Turns a grant into operations. Pure: a plan can be shown and compared before anything happens."""

from __future__ import annotations

import os

from runtime_hook.base.errors import InventoryError
from runtime_hook.container.operations.driverproc import MaskDriverProc
from runtime_hook.container.operations.files import BindFile, LinkName, NoteAbsent, WriteText
from runtime_hook.container.operations.loadercache import MergeLoaderCache
from runtime_hook.container.syscalls import KIND_FILE, KIND_FOLDER, KIND_SOCKET
from runtime_hook.host.driverfiles import MPS_FOLDER, REQUIRED_SONAMES
from runtime_hook.loader.cache import CacheEntry
from runtime_hook.plan.devices import DISPLAYING, check_given, link_drm, mig_parents, plan_devices
from runtime_hook.request.claim import SOURCE_DEVICES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_hook.container.operations.operation import Operation
    from runtime_hook.host.inventory import DriverLink, Inventory, Library
    from runtime_hook.inputs.bundle import DeviceNode, DeviceRule
    from runtime_hook.loader.layout import Layout
    from runtime_hook.loader.platforms import Platform
    from runtime_hook.request.grant import Grant

BINARY_FOLDER = "/usr/bin"
COMPAT32 = "compat32"
# What comes with a capability besides its own libraries (libnvidia-container, src/nvc_info.c and options.h).
_IMPLIED = {"video": "compute", "display": "graphics"}
_FLAGS_I386 = 0x0003  # glibc, sysdeps/generic/ldconfig.h: FLAG_ELF_LIBC6, no architecture
_PROFILE_FOLDER = "/etc/nvidia/nvidia-application-profiles-rc.d"
_PROFILE_NAME = "10-container.conf"
# cuFile reads udev's database. NVIDIA's toolkit mounts all of /run/udev, which includes udevd's control socket: udevd
# accepts commands from any peer with UID 0, including root in a container without a user namespace.
_GDS_FILES = (("/run/udev/data", KIND_FOLDER), ("/etc/cufile.json", KIND_FILE))


class Planner:
    """Plans for one container on one host. ``host_path`` tells where the host sees a file of the inventory."""

    def __init__(self, inventory: Inventory, platform: Platform, host_path: Callable[[str], str]) -> None:
        self._inventory = inventory
        self._platform = platform
        self._host_path = host_path

    def plan(
        self,
        grant: Grant,
        layout: Layout,
        rules: tuple[DeviceRule, ...],
        devices: tuple[DeviceNode, ...] | None = None,
        *,
        can_change_mounts: bool = False,
    ) -> list[Operation]:
        """Return the operations in order; the loader cache is last, as nothing is found before it is written.

        ``rules`` and ``devices`` are those of the container's configuration; None for devices that are not known. What
        others may write in on the host is not given to a container that can change its mounts.
        """
        wanted = with_implied(grant.capabilities)
        libraries = self._libraries(wanted, 64)
        self._check_complete(libraries, grant.capabilities)
        operations = self._give_libraries(libraries, layout.library_folder)
        entries = self._cache_entries(libraries, layout.library_folder, self._platform.cache_flags)
        if COMPAT32 in wanted and layout.library_folder_32:
            libraries = self._libraries(wanted, 32)
            operations += self._give_libraries(libraries, layout.library_folder_32, is_mandatory=False)
            entries += self._cache_entries(libraries, layout.library_folder_32, _FLAGS_I386)
        links = [link for link in self._inventory.links if link.capability in wanted]
        operations += [_lead(link, layout.library_folder) for link in links]
        entries += [
            CacheEntry(link.name, f"{layout.library_folder}/{link.name}", self._platform.cache_flags)
            for link in links
            if not link.subfolder
        ]
        operations += self._give_binaries(wanted)
        operations += self._give_files(wanted, can_change_mounts=can_change_mounts)
        operations += self._give_devices(grant, rules, devices)
        operations += self._hide_other_gpus(grant)
        operations += plan_loader(entries, layout, self._platform)
        return operations

    def _libraries(self, wanted: frozenset[str], elf_class: int) -> list[Library]:
        """Return the libraries of these capabilities, each once: some are listed for two."""
        chosen = {
            library.path: library
            for library in self._inventory.libraries
            if library.elf_class == elf_class and library.capability in wanted
        }
        return list(chosen.values())

    def _check_complete(self, libraries: list[Library], capabilities: tuple[str, ...]) -> None:
        present = {library.soname for library in libraries}
        for capability in capabilities:
            soname, package = REQUIRED_SONAMES.get(capability, ("", ""))
            if soname and soname not in present:
                raise InventoryError(
                    f"driver {self._inventory.driver_version} on this host has no {soname} for {capability}",
                    f"install {package} of the same version",
                )

    def _give_libraries(
        self, libraries: list[Library], library_folder: str, *, is_mandatory: bool = True
    ) -> list[Operation]:
        """Return what shows libraries and leads their names to them; those of 32 bits are not worth a refusal."""
        operations: list[Operation] = []
        for library in libraries:
            folder = f"{library_folder}/{library.subfolder}" if library.subfolder else library_folder
            source, name = self._host_path(library.path), os.path.basename(library.path)
            operations.append(BindFile(source, folder, name, is_mandatory=is_mandatory))
            if library.soname != name:
                operations.append(LinkName(folder, library.soname, name, source, is_mandatory=is_mandatory))
            operations += [LinkName(folder, link, library.soname, source, is_mandatory=False) for link in library.links]
        return operations

    @staticmethod
    def _cache_entries(libraries: list[Library], folder: str, flags: int) -> list[CacheEntry]:
        """Return what ldconfig would list: libraries in the folder itself, those below are opened by path."""
        return [
            CacheEntry(name, f"{folder}/{name}", flags)
            for library in libraries
            if not library.subfolder
            for name in (library.soname, *library.links)
        ]

    def _give_binaries(self, wanted: frozenset[str]) -> list[Operation]:
        return [
            BindFile(self._host_path(binary.path), BINARY_FOLDER, binary.name, is_mandatory=False)
            for binary in self._inventory.binaries
            if binary.capability in wanted
        ]

    def _give_files(self, wanted: frozenset[str], *, can_change_mounts: bool) -> list[Operation]:
        """Return what shows configurations, firmware and the sockets of running services."""
        operations: list[Operation] = []
        for file in self._inventory.files:
            if file.capability not in wanted:
                continue
            if can_change_mounts and file.target == MPS_FOLDER:
                operations.append(NoteAbsent(file.target, "root of its user namespace could write in it"))
            else:
                folder, name = os.path.split(file.target)
                kind = KIND_SOCKET if file.kind == "socket" else KIND_FILE
                operations.append(BindFile(self._host_path(file.path), folder, name, is_mandatory=False, kind=kind))
        return operations

    def _give_devices(
        self, grant: Grant, rules: tuple[DeviceRule, ...], devices: tuple[DeviceNode, ...] | None
    ) -> list[Operation]:
        operations: list[Operation] = []
        if grant.adds_devices:
            operations += plan_devices(grant, self._inventory, rules, self._host_path)
        elif devices is not None:
            if grant.source == SOURCE_DEVICES:
                check_given(grant, self._inventory, devices)
            operations += link_drm(grant, {(device.major, device.minor) for device in devices})
        if "nvidia-fs" in grant.extras:
            for path, kind in _GDS_FILES:
                folder, name = os.path.split(path)
                operations.append(BindFile(self._host_path(path), folder, name, is_mandatory=False, kind=kind))
        return operations

    def _hide_other_gpus(self, grant: Grant) -> list[Operation]:
        """Return what leaves only the container's own GPUs in procfs and in the sight of EGL."""
        parents = mig_parents(grant, self._inventory)
        gpus = [*grant.gpus, *parents]
        shown = [f"gpus/{gpu.pci_address}" for gpu in gpus]
        if "mig-config" in grant.extras or "mig-monitor" in grant.extras:
            shown.append("capabilities")
        else:
            minors = {gpu.uuid: gpu.minor_number for gpu in parents}
            for device in grant.mig:
                instance = f"capabilities/gpu{minors[device.gpu_uuid]}/mig/gi{device.gpu_instance}"
                shown += [f"{instance}/access", f"{instance}/ci{device.compute_instance}/access"]
        operations: list[Operation] = [MaskDriverProc(tuple(dict.fromkeys(shown)))]
        if gpus and any(word in DISPLAYING for word in grant.capabilities):
            text = render_profile({gpu.minor_number for gpu in gpus})
            operations.append(WriteText(_PROFILE_FOLDER, _PROFILE_NAME, text))
        return operations


def _lead(link: DriverLink, library_folder: str) -> Operation:
    folder = f"{library_folder}/{link.subfolder}" if link.subfolder else library_folder
    return LinkName(folder, link.name, link.target, "", is_mandatory=False)


def plan_loader(entries: list[CacheEntry], layout: Layout, platform: Platform) -> list[Operation]:
    """Return the operations for the driver's names; an image of musl alone has no cache to write."""
    if not entries:
        return []
    if layout.is_musl:
        from runtime_hook.container.operations.loaderpaths import ListMuslFolder

        return [ListMuslFolder(layout.library_folder, platform.multiarch.partition("-")[0])]
    compat = layout.compat
    if compat is None:
        return [MergeLoaderCache(tuple(entries))]
    from runtime_hook.container.operations.loaderpaths import ListCompatFolder

    merged = MergeLoaderCache((*compat.entries, *entries))
    return [ListCompatFolder(compat.folder, is_used=compat.is_used, reason=compat.reason), merged]


def with_implied(capabilities: tuple[str, ...]) -> frozenset[str]:
    """Return the capabilities with those whose libraries they need."""
    return frozenset((*capabilities, *(_IMPLIED[word] for word in capabilities if word in _IMPLIED)))


def render_profile(minors: set[int]) -> str:
    """Return the application profile that limits EGL to these GPUs: bit N stands for ``/dev/nvidiaN``.

    Source: NVIDIA's driver README, "Application Profiles"; the file's name is libnvidia-container's.
    """
    mask = sum(1 << minor for minor in minors)
    return (
        f'{{"profiles": [{{"name": "_container_", "settings": ["EGLVisibleDGPUDevices", {mask:#x}]}}], '
        '"rules": [{"pattern": [], "profile": "_container_"}]}\n'
    )
