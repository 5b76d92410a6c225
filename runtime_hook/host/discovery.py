"""Finds the driver's files, GPUs and device nodes on the host and makes the inventory. Never NVML, never a process.

Works with Debian's layout (real files in ``nvidia/current``, reached through alternatives), with files directly in
the multiarch folder, and with ``/usr/lib64``.
"""

from __future__ import annotations

import os
import stat

from runtime_hook.errors import CacheError, InventoryError
from runtime_hook.host.driverfiles import ALWAYS_LINKED_STEMS, BINARY_NAMES, CONTROL_NODES, LIBRARY_STEMS
from runtime_hook.host.elf import identify
from runtime_hook.host.fingerprint import module_version, take_fingerprint
from runtime_hook.host.inventory import Binary, ControlDevice, Gpu, Inventory, Library
from runtime_hook.host.platforms import this_platform
from runtime_hook.loadercache.cache import CACHE_LIMIT_BYTES, LoaderCache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.host.elf import ElfIdentity
    from runtime_hook.host.hosttree import HostTree
    from runtime_hook.host.platforms import Platform

GPU_FOLDER = "/proc/driver/nvidia/gpus"
_ANCHORS = ("libnvidia-ml.so.1", "libcuda.so.1")
_BINARY_FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/lib/nvidia/current")
_INFORMATION_LIMIT_BYTES = 1 << 16


def discover(tree: HostTree) -> Inventory:
    """Scan the host; InventoryError when it has no driver libraries."""
    platform = this_platform()
    cached = _cached_paths(tree, platform)
    folders = _library_folders(tree, platform, cached)
    anchors = [path for name in _ANCHORS for path in _find_anchor(tree, name, cached, folders)]
    version = _driver_version(tree, anchors)
    gpus = _find_gpus(tree)
    return Inventory(
        driver_version=version,
        control=_find_control_nodes(tree),
        gpus=tuple(gpu for gpu in gpus if gpu.major >= 0),
        libraries=_find_libraries(tree, platform, folders, version),
        binaries=_find_binaries(tree),
        fingerprint=take_fingerprint(tree, anchors, [*CONTROL_NODES.values(), *(gpu.path for gpu in gpus)]),
    )


def _cached_paths(tree: HostTree, platform: Platform) -> dict[str, str]:
    """Return name → path of this architecture's entries in the host's loader cache, the loader's choice first."""
    data = tree.read("/etc/ld.so.cache", CACHE_LIMIT_BYTES)
    try:
        entries = LoaderCache(data).entries() if data else []
    except CacheError:
        return {}
    found: dict[str, str] = {}
    for entry in entries:
        if entry.flags == platform.cache_flags:
            found.setdefault(entry.name, entry.path)
    return found


def _library_folders(tree: HostTree, platform: Platform, cached: dict[str, str]) -> list[str]:
    """Return the folders that may hold driver libraries: where cached ones are, where those lead, the usual ones."""
    stems = tuple(f"{stem}.so" for stems in LIBRARY_STEMS.values() for stem in stems)
    folders = []
    for name, path in cached.items():
        if name.startswith(stems):
            folders += [os.path.dirname(path), os.path.dirname(tree.resolve(path))]
    usual = f"/usr/lib/{platform.multiarch}"
    folders += [usual, f"{usual}/nvidia/current", "/usr/lib64", "/usr/lib64/nvidia"]
    return list(dict.fromkeys(folders))


def _find_anchor(tree: HostTree, name: str, cached: dict[str, str], folders: list[str]) -> list[str]:
    candidates = [cached[name]] if name in cached else []
    candidates += [f"{folder}/{name}" for folder in folders]
    return [path for path in candidates if tree.is_file(path)][:1]


def _driver_version(tree: HostTree, anchors: list[str]) -> str:
    """Return the version of the libraries: the loaded module's where they have it, else the first anchor's own."""
    versions = [tree.resolve(path).rpartition(".so.")[2] for path in anchors]
    versions = [version for version in versions if "." in version]
    if not versions:
        raise InventoryError("no NVIDIA driver libraries on this host", "install libcuda1 and libnvidia-ml1")
    loaded = module_version(tree)
    return loaded if loaded in versions else versions[0]


def _find_libraries(tree: HostTree, platform: Platform, folders: list[str], version: str) -> tuple[Library, ...]:
    names = {folder: set(tree.names(folder)) for folder in folders}
    found = []
    for capability, stems in LIBRARY_STEMS.items():
        for stem in stems:
            file_name = f"{stem}.so.{version}"
            for folder in (folder for folder in folders if file_name in names[folder]):
                path = tree.resolve(f"{folder}/{file_name}")
                identity = _identify(tree, path)
                if identity is None or identity.machine != platform.elf_machine:
                    continue
                has_link = stem in ALWAYS_LINKED_STEMS or any(f"{stem}.so" in listed for listed in names.values())
                links = (f"{stem}.so",) if has_link else ()
                soname = identity.soname or file_name
                found.append(Library(path, soname, links, capability, identity.elf_class))
                break
    return tuple(found)


def _identify(tree: HostTree, path: str) -> ElfIdentity | None:
    try:
        descriptor = os.open(tree.host_path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return identify(lambda length, offset: os.pread(descriptor, length, offset))
    finally:
        os.close(descriptor)


def _find_binaries(tree: HostTree) -> tuple[Binary, ...]:
    found = []
    for capability, names in BINARY_NAMES.items():
        for name in names:
            for folder in _BINARY_FOLDERS:
                if tree.is_file(f"{folder}/{name}"):
                    found.append(Binary(tree.resolve(f"{folder}/{name}"), name, capability))
                    break
    return tuple(found)


def _find_control_nodes(tree: HostTree) -> tuple[ControlDevice, ...]:
    found = []
    for kind, path in CONTROL_NODES.items():
        numbers = device_numbers(tree, path)
        if numbers:
            found.append(ControlDevice(path, *numbers, kind))
    return tuple(found)


def device_numbers(tree: HostTree, path: str) -> tuple[int, int] | None:
    """Return major and minor of a character device, or None."""
    status = tree.status(path)
    if status is None or not stat.S_ISCHR(status.st_mode):
        return None
    return os.major(status.st_rdev), os.minor(status.st_rdev)


def _find_gpus(tree: HostTree) -> list[Gpu]:
    """Return the GPUs that the module knows, in PCI order as NVML counts them; major -1 where the node is missing."""
    found: list[Gpu] = []
    for address in tree.names(GPU_FOLDER):
        data = tree.read(f"{GPU_FOLDER}/{address}/information", _INFORMATION_LIMIT_BYTES)
        fields = _parse_information((data or b"").decode("utf-8", "replace"))
        minor_number, uuid = fields.get("Device Minor", ""), fields.get("GPU UUID", "")
        if not minor_number.isdigit() or not uuid.startswith("GPU-"):
            continue
        path = f"/dev/nvidia{minor_number}"
        major, minor = device_numbers(tree, path) or (-1, -1)
        found.append(Gpu(len(found), uuid, int(minor_number), address, path, major, minor))
    return found


def _parse_information(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): content.strip() for key, _, content in pairs}
