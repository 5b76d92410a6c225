"""Finds the driver's libraries: where the loader has them, what version they are, what further names they have.

Works with Debian's layout (real files in ``nvidia/current``, reached through alternatives), with files directly in
the multiarch folder, and with ``/usr/lib64``.
"""

from __future__ import annotations

import os
import stat

from runtime_hook.base.errors import CacheError, InventoryError
from runtime_hook.base.values import value
from runtime_hook.host.driverfiles import (
    ALWAYS_LINKED_STEMS,
    LIBRARY_STEMS,
    LINKS,
    OWN_VERSION_STEMS,
    SUBFOLDERS,
)
from runtime_hook.host.fingerprint import is_number, module_version
from runtime_hook.host.inventory import DriverLink, Library
from runtime_hook.loader.cache import CACHE_LIMIT_BYTES, LoaderCache
from runtime_hook.loader.elf import identify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.host.hosttree import HostTree
    from runtime_hook.loader.elf import ElfIdentity
    from runtime_hook.loader.platforms import Platform

LOADER_CACHE = "/etc/ld.so.cache"
_ANCHORS = ("libnvidia-ml.so.1", "libcuda.so.1")


@value
class Abi:
    """One kind of program that runs here: the loader's names of libraries for it, and the folders they may be in."""

    elf_class: int
    machine: int
    cached: dict[str, str]
    folders: tuple[str, ...]


def find_abis(tree: HostTree, platform: Platform) -> tuple[Abi, Abi]:
    """Return the machine's own ABI and its 32-bit one."""
    native, compat32 = _cached_paths(tree, (platform.cache_flags, platform.cache_flags32))
    multiarch, multiarch32 = f"/usr/lib/{platform.multiarch}", f"/usr/lib/{platform.multiarch32}"
    usual = (multiarch, f"{multiarch}/nvidia/current", "/usr/lib64", "/usr/lib64/nvidia")
    usual32 = (multiarch32, f"{multiarch32}/nvidia/current", "/usr/lib32", "/usr/lib32/nvidia", "/usr/lib")
    return (
        Abi(64, platform.elf_machine, native, _folders(tree, native, usual)),
        Abi(32, platform.elf_machine32, compat32, _folders(tree, compat32, usual32)),
    )


def _cached_paths(tree: HostTree, wanted: tuple[int, ...]) -> list[dict[str, str]]:
    """Return name → path of the host's loader cache for each of the wanted flags, the loader's choice first."""
    found: list[dict[str, str]] = [{} for _ in wanted]
    data = tree.read(LOADER_CACHE, CACHE_LIMIT_BYTES)
    try:
        entries = LoaderCache(data).entries() if data else []
    except CacheError:
        return found
    for entry in entries:
        if entry.flags in wanted:
            found[wanted.index(entry.flags)].setdefault(entry.name, entry.path)
    return found


def _folders(tree: HostTree, cached: dict[str, str], usual: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders that may hold driver libraries: where cached ones are, where those lead, the usual ones."""
    tables = (*LIBRARY_STEMS.values(), *OWN_VERSION_STEMS.values())
    stems = tuple(f"{stem}.so" for stems in tables for stem in stems)
    folders = []
    for name, path in cached.items():
        if name.startswith(stems):
            folders += [os.path.dirname(path), os.path.dirname(tree.resolve(path))]
    return tuple(dict.fromkeys((*folders, *usual)))


def find_anchors(tree: HostTree, abi: Abi) -> list[str]:
    """Return what the loader takes for libnvidia-ml and libcuda, as far as they are there."""
    found = []
    for name in _ANCHORS:
        candidates = [abi.cached[name]] if name in abi.cached else []
        candidates += [f"{folder}/{name}" for folder in abi.folders]
        found += [path for path in candidates if tree.is_file(path)][:1]
    return found


def driver_version(tree: HostTree, anchors: list[str]) -> str:
    """Return the version of the libraries: the loaded module's where they have it, else the first anchor's own."""
    versions = [tree.resolve(path).rpartition(".so.")[2] for path in anchors]
    versions = [version for version in versions if "." in version]
    if not versions:
        raise InventoryError("no NVIDIA driver libraries on this host", "install libcuda1 and libnvidia-ml1")
    loaded = module_version(tree)
    return loaded if loaded in versions else versions[0]


def find_libraries(tree: HostTree, abi: Abi, version: str) -> tuple[Library, ...]:
    """Return the driver's libraries of one ABI, by capability."""
    search = _Search(tree, abi, version)
    found = [(capability, stem) for capability, stems in LIBRARY_STEMS.items() for stem in stems]
    libraries = [search.library(capability, stem) for capability, stem in found]
    found = [(capability, stem) for capability, stems in OWN_VERSION_STEMS.items() for stem in stems]
    libraries += [search.library_of_own_version(capability, stem) for capability, stem in found]
    return tuple(library for library in libraries if library is not None)


def find_links(libraries: tuple[Library, ...], version: str) -> tuple[DriverLink, ...]:
    """Return the links that belong to libraries that are there."""
    present = {(library.capability, os.path.basename(library.path)) for library in libraries}
    return tuple(
        DriverLink(subfolder, name, target.format(version=version), capability)
        for capability, links in LINKS.items()
        for stem, subfolder, name, target in links
        if (capability, f"{stem}.so.{version}") in present
    )


class _Search:
    """One search through the folders of an ABI."""

    def __init__(self, tree: HostTree, abi: Abi, version: str) -> None:
        self._tree = tree
        self._abi = abi
        self._version = version
        self._names: dict[str, set[str]] = {}

    def _listed(self, folder: str) -> set[str]:
        if folder not in self._names:
            self._names[folder] = set(self._tree.names(folder))
        return self._names[folder]

    def _places(self, stem: str) -> list[str]:
        """Return the folders that may hold a library, the subfolder that its loader looks in included."""
        subfolder = SUBFOLDERS.get(stem)
        inner = [f"{folder}/{subfolder}" for folder in self._abi.folders] if subfolder else []
        return [*self._abi.folders, *inner]

    def library(self, capability: str, stem: str) -> Library | None:
        """Return a library that has the driver's version in its name."""
        name = f"{stem}.so.{self._version}"
        return self._first(capability, stem, [f"{folder}/{name}" for folder in self._holding(stem, name)])

    def _holding(self, stem: str, name: str) -> list[str]:
        return [folder for folder in self._places(stem) if name in self._listed(folder)]

    def library_of_own_version(self, capability: str, stem: str) -> Library | None:
        """Return a library with a version of its own, the newest where there are several."""
        beginning = f"{stem}.so."
        found = []
        for folder in self._places(stem):
            for name in self._listed(folder):
                tail = name[len(beginning) :] if name.startswith(beginning) else ""
                numbers = tail.split(".")
                if all(map(is_number, numbers)):
                    found.append((list(map(int, numbers)), f"{folder}/{name}"))
        return self._first(capability, stem, [path for _, path in sorted(found, reverse=True)])

    def _first(self, capability: str, stem: str, candidates: list[str]) -> Library | None:
        for candidate in candidates:
            path = self._tree.resolve(candidate)
            identity = _identify(self._tree, path)
            if identity is not None and (identity.elf_class, identity.machine) == (
                self._abi.elf_class,
                self._abi.machine,
            ):
                soname = identity.soname or os.path.basename(candidate)
                links = self._links(stem, soname)
                return Library(path, soname, links, capability, identity.elf_class, SUBFOLDERS.get(stem, ""))
        return None

    def _links(self, stem: str, soname: str) -> tuple[str, ...]:
        """Return the development link, where programs look for it or the host has it."""
        link = f"{stem}.so"
        is_linked = stem in ALWAYS_LINKED_STEMS or any(link in self._listed(folder) for folder in self._places(stem))
        return (link,) if is_linked and link != soname else ()


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
