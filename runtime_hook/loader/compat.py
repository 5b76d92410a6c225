"""Decides whether an image's newer libcuda is used on this host's older driver (CUDA forward compatibility). Pure.

An image brings it in ``/usr/local/cuda/compat``. The rules are those of NVIDIA's container toolkit
(``cmd/nvidia-cdi-hook/cudacompat``): the library says in an ELF note which branches of the driver it runs on. Used
means: its names come before the driver's in the loader cache. Nothing of the image is mounted, copied or executed.
"""

from __future__ import annotations

import struct

from runtime_hook.base.errors import one_line
from runtime_hook.base.jsonfast import loads
from runtime_hook.base.values import value
from runtime_hook.loader.cache import CacheEntry
from runtime_hook.loader.elf import identify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol, TypeVar

    from runtime_hook.loader.elf import ElfIdentity, ReadAt
    from runtime_hook.loader.platforms import Platform

    T = TypeVar("T")

    class CompatFolder(Protocol):
        """The image's folder, by single names; ``path`` is where a container sees it."""

        path: str

        def names(self, limit: int) -> list[str] | None:
            """Return the names in it; None when there are more."""

        def link(self, name: str) -> str | None:
            """Return the text of a symbolic link; None for anything else."""

        def inspect(self, name: str, parse: Callable[[ReadAt], T]) -> T | None:
            """Return what a parser makes of a regular file; None for anything else, and what cannot be opened."""


_SECTION = b".note.cuda.fwd_compatibility"
_OWNER = b"NVIDIA Corporation"
_LIBCUDA = "libcuda.so."
_MAX_NAMES = 128
_MAX_NAME_CHARACTERS = 255
_MAX_LINKS = 8
_MAX_VERSION_PARTS = 3
_MAX_PART_DIGITS = 9


@value
class CompatNote:
    """What a library says of itself: its CUDA version ("" where unknown) and the driver branches it runs on."""

    cuda_version: str
    driver_branches: tuple[int, ...]


@value
class Compat:
    """The decision on an image: whether the folder's libraries are used, why, and which names then come first."""

    folder: str
    is_used: bool
    reason: str
    entries: tuple[CacheEntry, ...] = ()


@value
class HostDriver:
    """The versions that the decision is about; "" where unknown."""

    driver_version: str
    cuda_version: str


def examine(folder: CompatFolder, host: HostDriver, platform: Platform) -> Compat:
    """Decide on an image that has the folder; whatever is odd about it leaves the host's driver in use."""
    listed = folder.names(_MAX_NAMES)
    if listed is None:
        return Compat(folder.path, is_used=False, reason=f"more than {_MAX_NAMES} names in {folder.path}")
    names = [name for name in sorted(listed) if _is_library_name(name)]
    candidates = [name for name in names if _is_candidate(folder, name)]
    if len(candidates) != 1:
        return Compat(folder.path, is_used=False, reason=f"{len(candidates)} libcuda.so.*.* in {folder.path}, not one")
    libcuda = candidates[0]
    if not _is_ours(folder.inspect(libcuda, identify), platform):
        return Compat(folder.path, is_used=False, reason=f"{folder.path}/{libcuda} is no library of this machine")
    note = parse_compat_note(folder.inspect(libcuda, read_compat_note))
    is_used, reason = decide(note, libcuda[len(_LIBCUDA) :], host)
    return Compat(folder.path, is_used, reason, _entries(folder, names, platform) if is_used else ())


def _is_library_name(name: str) -> bool:
    if not name.startswith("lib") or ".so" not in name or len(name) > _MAX_NAME_CHARACTERS:
        return False
    return name.isascii() and name.isprintable()


def _is_candidate(folder: CompatFolder, name: str) -> bool:
    """Tell whether a name is ``libcuda.so.*.*`` and a regular file: a link beside the library is not a second one."""
    is_named = name.startswith(_LIBCUDA) and "." in name[len(_LIBCUDA) :]
    return is_named and folder.inspect(name, lambda _: True) is not None


def _is_ours(identity: ElfIdentity | None, platform: Platform) -> bool:
    return identity is not None and identity.machine == platform.elf_machine


def read_compat_note(read_at: ReadAt) -> bytes | None:
    """Return the text of a library's note; None where it has none."""
    return read_note(read_at, _SECTION, _OWNER)


def parse_compat_note(text: bytes | None) -> CompatNote | None:
    """Return what a note says; None for one that cannot be read.

    The published libraries write ``CUDA version`` and ``driver``. Case does not count, as it does not for NVIDIA's
    reader, and as there a value of another type makes the note unreadable.
    """
    try:
        content = loads(text) if text else None
    except ValueError:
        return None
    if not isinstance(content, dict):
        return None
    fields = {key.casefold(): found for key, found in content.items() if found is not None}
    cuda_version, branches = fields.get("cuda version", ""), fields.get("driver", [])
    if not isinstance(cuda_version, str) or not isinstance(branches, list):
        return None
    if not all(type(branch) is int for branch in branches):
        return None
    return CompatNote(cuda_version, tuple(branches))


def decide(note: CompatNote | None, compat_version: str, host: HostDriver) -> tuple[bool, str]:
    """Tell whether a libcuda of this version is used on a host, and why."""
    compat, driver = parse_version(compat_version), parse_version(host.driver_version)
    brought = f"compat {one_line(compat_version, 40)} on driver {host.driver_version or 'of unknown version'}"
    if compat and driver:
        if note is None:
            return compat[0] > driver[0], f"{brought}: no note, branches compared"
        if driver[0] not in note.driver_branches:
            return False, f"{brought}: its note does not list branch {driver[0]}"
        return compat > driver, f"{brought}: its note lists branch {driver[0]}, versions compared"
    offered, supported = parse_version(note.cuda_version) if note else (), parse_version(host.cuda_version)
    return bool(offered and supported and offered > supported), f"{brought}: CUDA versions compared"


def parse_version(text: str) -> tuple[int, ...]:
    """Return a dotted version of up to three numbers as three; () for anything else."""
    parts = text.split(".")
    if len(parts) > _MAX_VERSION_PARTS:
        return ()
    if not all(part.isascii() and part.isdigit() and len(part) <= _MAX_PART_DIGITS for part in parts):
        return ()
    return tuple(int(part) for part in (*parts, "0", "0")[:_MAX_VERSION_PARTS])


def _entries(folder: CompatFolder, names: list[str], platform: Platform) -> tuple[CacheEntry, ...]:
    """Return what ldconfig would list for the folder: a library by its SONAME, and its development link.

    A link counts for the library in the same folder that it leads to. Where no name is the SONAME, ldconfig would
    make a link; the entry leads to the file instead.
    """
    links = {name: folder.link(name) for name in names}
    sonames = {name: _soname(folder, name, platform) for name in names if links[name] is None}
    files: dict[str, str] = {}
    for name in names:
        soname = sonames.get(_follow(name, links), "")
        if soname and (name == soname or (name.endswith(".so") and links[name] and soname.startswith(name))):
            files[name] = name
    for name, soname in sonames.items():
        if soname:
            files.setdefault(soname, name)
    return tuple(
        CacheEntry(name, f"{folder.path}/{file}", platform.cache_flags) for name, file in sorted(files.items())
    )


def _follow(name: str, links: dict[str, str | None]) -> str:
    for _ in range(_MAX_LINKS):
        target = links.get(name)
        if target is None:
            return name
        name = target
    return ""


def _soname(folder: CompatFolder, name: str, platform: Platform) -> str:
    """Return a library's SONAME, its name where it has none; "" for what is no library of this machine."""
    identity = folder.inspect(name, identify)
    if identity is None or not _is_ours(identity, platform):
        return ""
    soname = identity.soname or name
    return soname if _is_library_name(soname) and "/" not in soname else ""


# Reads a note of an ELF file by its section's name. Bounded reads, nothing loaded or executed. Source: the System V
# ABI, "Sections" and "Note Section"; 64-bit, little-endian.

_HEADER_BYTES = 64
_HEADER = struct.Struct("<40xQ10xHHH")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_NOTE = struct.Struct("<III")
_SHT_NOTE = 7
_MAX_SECTIONS = 1024
_MAX_BYTES = 1 << 16


def read_note(read_at: ReadAt, section: bytes, owner: bytes) -> bytes | None:
    """Return the description of the first note in a section, or None where there is none of this owner.

    Padding before the description is skipped whatever its alignment: NVIDIA's libraries differ in it. A damaged file
    has no notes.
    """
    try:
        data = _find_section(read_at, section)
        if data is None:
            return None
        name_bytes, description_bytes, _kind = _NOTE.unpack_from(data)
    except (struct.error, OverflowError, OSError):
        return None
    start = _NOTE.size + name_bytes
    if data[_NOTE.size : start].rstrip(b"\0") != owner:
        return None
    padded = len(data) - len(data[start:].lstrip(b"\0"))
    return data[padded : padded + description_bytes].rstrip(b"\0")


def _find_section(read_at: ReadAt, wanted: bytes) -> bytes | None:
    header = read_at(_HEADER_BYTES, 0)
    if len(header) < _HEADER_BYTES or header[:6] != b"\x7fELF\x02\x01":
        return None
    table_at, size, count, names_index = _HEADER.unpack_from(header)
    if size != _SECTION_HEADER.size or not names_index < count <= _MAX_SECTIONS:
        return None
    table = read_at(size * count, table_at)
    names = _content(read_at, _SECTION_HEADER.unpack_from(table, size * names_index))
    for fields in _SECTION_HEADER.iter_unpack(table):
        name_at, kind = fields[:2]
        if kind == _SHT_NOTE and names.startswith(wanted + b"\0", name_at):
            return _content(read_at, fields)
    return None


def _content(read_at: ReadAt, fields: tuple[int, ...]) -> bytes:
    return read_at(min(fields[5], _MAX_BYTES), fields[4])
