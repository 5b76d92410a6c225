"""Decides what of a runfile a machine without a screen needs, and where on Debian and Ubuntu it belongs. Pure.

Left out: everything for X, OpenGL, EGL, Vulkan and 32-bit programs, NVIDIA's own installer and settings programs, what
laptops need (powerd, sleep scripts). Firmware goes where the kernel looks for it, libraries where ldconfig does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.planning.architecture import ARCHITECTURES
from provision.planning.driver.packages.distributions.runfile import dkms_name
from provision.planning.driver.terms import Flavour
from provision.planning.supply.runfile.errors import RunfileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from provision.planning.supply.runfile.manifest import Entry, Manifest

PROGRAMS: Final = "usr/bin"
FOLDERS: Final = {Flavour.PROPRIETARY: "kernel", Flavour.OPEN: "kernel-open"}
_LIBRARY_KINDS: Final = frozenset(
    {
        *("CUDA_LIB", "CUDA_SYMLINK", "OPENCL_LIB", "OPENCL_LIB_SYMLINK", "UTILITY_LIB", "UTILITY_LIB_SYMLINK"),
        *("NVCUVID_LIB", "NVCUVID_LIB_SYMLINK", "ENCODEAPI_LIB", "ENCODEAPI_LIB_SYMLINK"),
        *("GRID_LIB", "GRID_LIB_SYMLINK", "FLEXERA_LIB", "FLEXERA_LIB_SYMLINK"),
    }
)
# Libraries of the settings program, which needs a screen.
_UNWANTED_LIBRARIES: Final = ("libnvidia-gtk", "libnvidia-wayland-client")
_UNWANTED_PROGRAMS: Final = frozenset(
    {
        "mkprecompiled",
        "nvidia-installer",
        "nvidia-ngx-updater",
        "nvidia-pcc",
        "nvidia-powerd",
        "nvidia-settings",
        "nvidia-sleep.sh",
        "nvidia-xconfig",
    }
)
# Of the files that name their own place: settings and data of the driver's daemons, and what D-Bus lets them do.
_OWN_PLACES: Final = ("/etc/nvidia", "/usr/share/nvidia", "/usr/share/dbus-1", "/etc/dbus-1")
_PERSISTENCED: Final = "nvidia-persistenced"
_MODPROBE: Final = "nvidia-modprobe"
_LICENSE: Final = "usr/share/doc/nvidia-runfile/copyright"
_SETUID: Final = 0o4755  # of nvidia-modprobe alone: it loads the module and makes device nodes for ordinary users


@dataclass(frozen=True)
class Placed:
    """A file or link and its path in a package; ``source`` is its name in the archive, ``target`` that of a link."""

    path: str
    source: str
    mode: int
    target: str = ""
    line: int = 0


@dataclass(frozen=True)
class Layout:
    """What goes where: user space, the persistence daemon, and the sources of the module by flavour."""

    user_space: tuple[Placed, ...]
    persistenced: tuple[Placed, ...]
    modules: Mapping[Flavour, tuple[Placed, ...]]


def lay_out(manifest: Manifest, sha256: str) -> Layout:
    """Return what of a runfile goes where; raises `RunfileError` for one that is no driver for these machines."""
    if manifest.architecture not in ARCHITECTURES:
        known = " and ".join(ARCHITECTURES)
        raise RunfileError(
            f"the runfile is for {manifest.architecture}, and drivers are installed on {known} alone",
            hint="name the file NVIDIA-Linux-x86_64-….run, or NVIDIA-Linux-aarch64-….run",
        )
    placed = list(_user_space(manifest))
    user_space = _without_loose_links(one for one in placed if not one.path.endswith(f"/{_PERSISTENCED}"))
    persistenced = tuple(one for one in placed if one.path == f"{PROGRAMS}/{_PERSISTENCED}")
    modules = {
        flavour: files
        for flavour, folder in FOLDERS.items()
        if (files := tuple(_sources(manifest, flavour, folder, sha256)))
    }
    for files in (user_space, persistenced, *modules.values()):
        _require_apart(files)
    _require_driver(manifest, user_space, modules)
    return Layout(user_space, persistenced, modules)


def _libraries(manifest: Manifest) -> str:
    return f"usr/lib/{ARCHITECTURES[manifest.architecture].multiarch}"


def source_tree(manifest: Manifest, flavour: Flavour, sha256: str) -> str:
    """Return where the sources of a module lie, as dkms expects it."""
    return f"usr/src/{dkms_name(flavour, sha256)}-{manifest.version}"


def _user_space(manifest: Manifest) -> Iterator[Placed]:
    programs = {each.name for each in manifest.entries if each.kind == "UTILITY_BINARY"} - _UNWANTED_PROGRAMS
    for entry in manifest.entries:
        path = _path(manifest, entry, programs) if entry.is_native else None
        if path is not None:
            is_setuid = entry.name == _MODPROBE and entry.mode == _SETUID
            mode = _SETUID if is_setuid else entry.mode & 0o755 | 0o444
            yield Placed(path, entry.file, mode, entry.target, entry.line)


def _path(manifest: Manifest, entry: Entry, programs: set[str]) -> str | None:
    """Return where an entry goes, None for one that is left out."""
    kind = entry.kind
    if kind in _LIBRARY_KINDS:
        is_unwanted = entry.name.startswith(_UNWANTED_LIBRARIES)
        return None if is_unwanted else _join(_libraries(manifest), entry.folder.lstrip("/"), entry.name)
    if kind == "UTILITY_BINARY":
        return f"{PROGRAMS}/{entry.name}" if entry.name in programs else None
    if kind == "NVIDIA_MODPROBE":
        return f"{PROGRAMS}/{entry.name}" if entry.name == _MODPROBE else None
    if kind == "CUDA_ICD":
        return f"etc/OpenCL/vendors/{entry.name}"
    if kind == "FIRMWARE":
        return _join(f"usr/lib/firmware/nvidia/{manifest.version}", entry.folder, entry.name)
    if kind == "SYSTEMD_UNIT":
        is_ours = entry.name.removesuffix(".service") in programs - {_PERSISTENCED}
        return f"usr/lib/systemd/system/{entry.name}" if is_ours else None
    if kind == "EXPLICIT_PATH":
        is_known = any(entry.folder == place or entry.folder.startswith(f"{place}/") for place in _OWN_PLACES)
        return _join(entry.folder.lstrip("/"), entry.name) if is_known else None
    return _LICENSE if kind == "DOCUMENTATION" and entry.file == "LICENSE" else None


def _sources(manifest: Manifest, flavour: Flavour, folder: str, sha256: str) -> Iterator[Placed]:
    tree = source_tree(manifest, flavour, sha256)
    for entry in manifest.entries:
        if entry.kind == "KERNEL_MODULE_SRC" and entry.file.startswith(f"{folder}/"):
            path = _join(tree, entry.folder, entry.name)
            yield Placed(path, entry.file, entry.mode & 0o755 | 0o444, line=entry.line)


def _join(*parts: str) -> str:
    return "/".join(part for part in parts if part)


def _without_loose_links(files: Iterable[Placed]) -> tuple[Placed, ...]:
    """Return the files without links to what is left out."""
    kept = tuple(files)
    while True:
        paths = {one.path for one in kept}
        left = tuple(one for one in kept if not one.target or _leads_to(one) in paths)
        if len(left) == len(kept):
            return kept
        kept = left


def _leads_to(link: Placed) -> str:
    return f"{link.path.rpartition('/')[0]}/{link.target}"


def _require_apart(files: Iterable[Placed]) -> None:
    """Raise `RunfileError` where two different files would have one name, or a file that of a folder."""
    known: dict[str, Placed] = {}
    for one in files:
        other = known.setdefault(one.path, one)
        if (other.source, other.target) != (one.source, one.target):
            raise _collision(one, f"/{one.path} is also that of line {other.line}")
    for one in known.values():
        parent = one.path.rpartition("/")[0]
        while parent:
            if parent in known:
                raise _collision(one, f"/{parent} is a file by line {known[parent].line}")
            parent = parent.rpartition("/")[0]


def _collision(one: Placed, said: str) -> RunfileError:
    return RunfileError(
        f"the runfile's manifest contradicts itself: line {one.line} places {one.source}, and {said}",
        hint="no driver of NVIDIA's does this: take the file from its maker again",
    )


def _require_driver(
    manifest: Manifest, user_space: Iterable[Placed], modules: Mapping[Flavour, tuple[Placed, ...]]
) -> None:
    """Raise `RunfileError` for a runfile without what every node with GPUs needs."""
    version, names = manifest.version, {one.path for one in user_space}
    wanted = (
        f"{_libraries(manifest)}/libcuda.so.{version}",
        f"{_libraries(manifest)}/libnvidia-ml.so.{version}",
        f"{_libraries(manifest)}/libnvidia-ml.so.1",
        f"{PROGRAMS}/nvidia-smi",
    )
    lacking = [path.rpartition("/")[2] for path in wanted if path not in names]
    if not modules:
        lacking.append("the sources of a kernel module")
    if lacking:
        raise RunfileError(
            f"the runfile is no driver for a GPU node, it lacks {', '.join(lacking)}",
            hint="name a file of the driver, NVIDIA-Linux-….run: not the CUDA toolkit's, nor a vGPU manager's",
        )
