"""Finds what a driver has besides libraries: programs, settings, modules of X, firmware, sockets of services."""

from __future__ import annotations

import os
import stat

from runtime_hook.host.driverfiles import (
    BINARY_FOLDERS,
    BINARY_NAMES,
    CONFIG_FOLDERS,
    CONFIGS,
    FIRMWARE_CAPABILITY,
    MPS_CAPABILITY,
    MPS_FOLDER,
    SERVICE_SOCKETS,
    VULKAN_FALLBACK_FOLDER,
    X_DEBIAN_FOLDER,
    X_FOLDERS,
    X_MODULES,
    X_ROOTS,
    X_USUAL_FOLDER,
)
from runtime_hook.host.fingerprint import mps_folder
from runtime_hook.host.inventory import Binary, DriverFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runtime_hook.host.hosttree import HostTree

_FIRMWARE_PATH = "/sys/module/firmware_class/parameters/path"
_FIRMWARE_FOLDER = "/lib/firmware"
_LIMIT_BYTES = 1 << 12


def find_binaries(tree: HostTree) -> tuple[Binary, ...]:
    """Return the driver's programs."""
    named = [(capability, name) for capability, names in BINARY_NAMES.items() for name in names]
    found = []
    for capability, name in named:
        path = _find_program(tree, name)
        if path:
            found.append(Binary(tree.resolve(path), name, capability))
    return tuple(found)


def _find_program(tree: HostTree, name: str) -> str:
    """Return the first of that name, a script only where there is no other: it may start what no container has."""
    places = [path for folder in BINARY_FOLDERS if tree.is_file(path := f"{folder}/{name}")]
    return next((path for path in places if not tree.is_script(path)), places[0] if places else "")


def find_files(tree: HostTree, folders: tuple[str, ...], version: str) -> tuple[DriverFile, ...]:
    """Return settings, modules of X, firmware and sockets; ``folders`` are those of the libraries."""
    return (
        *_find_configs(tree),
        *_find_x_modules(tree, folders, version),
        *_find_firmware(tree, version),
        *_find_sockets(tree),
    )


def _first_file(tree: HostTree, paths: Iterable[str]) -> str:
    return next((path for path in paths if tree.is_file(path)), "")


def _find_configs(tree: HostTree) -> Iterator[DriverFile]:
    machine = os.uname().machine
    for capability, configs in CONFIGS.items():
        for target_folder, pattern in configs:
            name = pattern.format(machine=machine)
            candidates = [f"{folder}/{name}" for folder in CONFIG_FOLDERS]
            if name.startswith("vulkan/"):
                candidates.append(VULKAN_FALLBACK_FOLDER + name)
            path = _first_file(tree, candidates)
            if path:
                yield DriverFile(tree.resolve(path), f"{target_folder}/{name}", capability, "config")


def _find_x_modules(tree: HostTree, folders: tuple[str, ...], version: str) -> Iterator[DriverFile]:
    places = [f"{root}/{folder}" for root in dict.fromkeys((*folders, *X_ROOTS)) for folder in X_FOLDERS]
    places = [place for place in places if tree.names(place)]
    for pattern, name in X_MODULES:
        file_name = pattern.format(version=version)
        path = _first_file(tree, (f"{place}/{file_name}" for place in (*places, X_DEBIAN_FOLDER)))
        if path:
            folder = os.path.dirname(path)
            target = X_USUAL_FOLDER if folder == X_DEBIAN_FOLDER else folder
            yield DriverFile(tree.resolve(path), f"{target}/{name}", "display", "config")


def _find_firmware(tree: HostTree, version: str) -> Iterator[DriverFile]:
    """Return the firmware in the first folder of the kernel's order that has some of this version.

    Source: the kernel's firmware loader (``drivers/base/firmware_loader/main.c``, ``fw_path``).
    """
    custom = (tree.read(_FIRMWARE_PATH, _LIMIT_BYTES) or b"").decode("utf-8", "replace").strip()
    release, usual = os.uname().release, _FIRMWARE_FOLDER
    places = (custom, f"{usual}/updates/{release}", f"{usual}/updates", f"{usual}/{release}", usual)
    for place in places:
        folder = f"{place}/nvidia/{version}"
        names = [name for name in tree.names(folder) if name.startswith("gsp") and name.endswith(".bin")]
        if place.startswith("/") and names:
            for name in names:
                target = f"{_FIRMWARE_FOLDER}/nvidia/{version}/{name}"
                yield DriverFile(tree.resolve(f"{folder}/{name}"), target, FIRMWARE_CAPABILITY, "firmware")
            return


def _find_sockets(tree: HostTree) -> Iterator[DriverFile]:
    for path, capability in SERVICE_SOCKETS:
        status = tree.own_status(path)  # not a link: the service's user could lead it to another socket
        if status is not None and stat.S_ISSOCK(status.st_mode):
            yield DriverFile(tree.resolve(path), path, capability, "socket")
    if mps_folder(tree) is not None:
        yield DriverFile(tree.resolve(MPS_FOLDER), MPS_FOLDER, MPS_CAPABILITY, "socket")
