"""Reads the manifest of a runfile: its driver's version, its kernel modules, and what each of its files is. Pure.

The format is that of nvidia-installer (``parse_manifest`` in ``install-from-cwd.c``, ``packageEntryFileTypeTable`` in
``manifest.c``; 590.48.01). Line 1 describes the package, line 2 is the version, line 4 the kernel modules; lines 3
and 5 to 8 are not used. From line 9 on, each line is an entry: the file's name in the archive, its mode, its type, and
then, by type, ``NATIVE`` or ``COMPAT32``, a folder or how much of the name is not part of it, the target of a link.
What follows these is for the installer. An entry of a type that is not known here is left out, as newer drivers have
new ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.base.printable import printable
from provision.planning.supply.runfile.errors import RunfileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME: Final = ".manifest"
MAX_BYTES: Final = 4 * 1024 * 1024
_FIRST_ENTRY: Final = 9
_MAX_ENTRIES: Final = 50_000
_DESCRIPTION: Final = re.compile(r"^(?P<title>.{1,200}?) for (?P<system>[A-Za-z]+)-(?P<architecture>[A-Za-z0-9_]+)$")
_VERSION: Final = re.compile(r"[1-9][0-9]{2}\.[0-9]{1,3}(\.[0-9]{2})?")
_MODULE: Final = re.compile(r"nvidia(-[a-z0-9]+)*")
_DEPTH: Final = re.compile(r"INHERIT_PATH_DEPTH:([0-9])")
# A name as it may stand in a package: plain parts, no "..", nothing that a shell or a package manager reads otherwise.
_PLAIN: Final = re.compile(r"(?!\.{1,2}(/|$))[A-Za-z0-9._+@-]{1,200}(/(?!\.{1,2}(/|$))[A-Za-z0-9._+@-]{1,200})*")
_MODE: Final = re.compile(r"0?[0-7]{4}")
_HINT: Final = "take the file from its maker again; only its own checksum makes a runfile the right one"


@dataclass(frozen=True)
class _Kind:
    """Which fields an entry of a type has after its type."""

    has_architecture: bool = False
    has_folder: bool = False
    is_link: bool = False
    inherits_folder: bool = False


_OF_ARCHITECTURE: Final = _Kind(has_architecture=True)
_LINK: Final = _Kind(has_architecture=True, is_link=True)
_IN_FOLDER: Final = _Kind(has_architecture=True, has_folder=True)
_LINK_IN_FOLDER: Final = _Kind(has_architecture=True, has_folder=True, is_link=True)
_INHERITING: Final = _Kind(inherits_folder=True)
KINDS: Final = {
    "CUDA_LIB": _IN_FOLDER,
    "CUDA_SYMLINK": _LINK_IN_FOLDER,
    "OPENCL_LIB": _IN_FOLDER,
    "OPENCL_LIB_SYMLINK": _LINK_IN_FOLDER,
    "UTILITY_LIB": _OF_ARCHITECTURE,
    "UTILITY_LIB_SYMLINK": _LINK,
    "NVCUVID_LIB": _OF_ARCHITECTURE,
    "NVCUVID_LIB_SYMLINK": _LINK,
    "ENCODEAPI_LIB": _OF_ARCHITECTURE,
    "ENCODEAPI_LIB_SYMLINK": _LINK,
    "GRID_LIB": _Kind(has_folder=True),
    "GRID_LIB_SYMLINK": _Kind(has_folder=True, is_link=True),
    "FLEXERA_LIB": _Kind(has_folder=True),
    "FLEXERA_LIB_SYMLINK": _Kind(has_folder=True, is_link=True),
    "CUDA_ICD": _Kind(),
    "UTILITY_BINARY": _Kind(),
    "NVIDIA_MODPROBE": _Kind(has_folder=True),
    "EXPLICIT_PATH": _Kind(has_folder=True),
    "SYSTEMD_UNIT": _Kind(),
    "DOCUMENTATION": _Kind(has_folder=True),
    "FIRMWARE": _INHERITING,
    "KERNEL_MODULE_SRC": _INHERITING,
}


@dataclass(frozen=True)
class Entry:
    """One file or link. ``folder`` is relative to where its type belongs, or absolute for a type of its own place.

    ``target`` is that of a link, "" for a file; ``line`` is its place in the manifest.
    """

    file: str
    mode: int
    kind: str
    is_native: bool
    folder: str
    target: str
    line: int

    @property
    def name(self) -> str:
        """The file's name without folders."""
        return self.file.rpartition("/")[2]


@dataclass(frozen=True)
class Manifest:
    """What a runfile says it is."""

    description: str
    architecture: str
    version: str
    modules: tuple[str, ...]
    entries: tuple[Entry, ...]


def parse_manifest(text: str) -> Manifest:
    """Return what a manifest says; raises `RunfileError` with the number of a line that is wrong."""
    lines = text.split("\n")
    if len(lines) < _FIRST_ENTRY:
        raise _wrong(len(lines), "ends before its first entry")
    described = _DESCRIPTION.fullmatch(lines[0].strip())
    if described is None or described["system"] != "Linux":
        raise _wrong(1, f"describes no driver for Linux: {printable(lines[0], limit=120)!r}")
    version, modules = lines[1].strip(), tuple(lines[3].split())
    if not _VERSION.fullmatch(version):
        raise _wrong(2, f"has no driver version: {printable(version, limit=60)!r}")
    if not modules or not all(_MODULE.fullmatch(each) for each in modules):
        raise _wrong(4, f"does not list kernel modules: {printable(lines[3], limit=120)!r}")
    entries = tuple(_entries(lines[_FIRST_ENTRY - 1 :]))
    if len(entries) > _MAX_ENTRIES:
        raise _wrong(_FIRST_ENTRY, f"lists more than {_MAX_ENTRIES} files")
    return Manifest(lines[0].strip(), described["architecture"], version, modules, entries)


def _entries(lines: Sequence[str]) -> Iterator[Entry]:
    for number, line in enumerate(lines, _FIRST_ENTRY):
        if not line.strip():
            return  # the installer stops here as well
        words = line.split()
        if kind := KINDS.get("".join(words[2:3])):  # after name and mode
            yield _entry(number, words, kind)


def _entry(number: int, words: Sequence[str], kind: _Kind) -> Entry:
    file, mode, name, *rest = words
    fields = iter(rest)
    if not _MODE.fullmatch(mode):
        raise _wrong(number, f"{printable(file, limit=120)} has no mode: {printable(mode, limit=20)!r}")
    file = _plain(number, file)
    architecture = _next(number, file, fields) if kind.has_architecture else "NATIVE"
    if architecture not in ("NATIVE", "COMPAT32"):
        raise _wrong(number, f"{file} is neither NATIVE nor COMPAT32")
    folder = ""
    if kind.has_folder:
        folder = _folder(number, _next(number, file, fields))
    elif kind.inherits_folder:
        folder = _inherited(number, file, _next(number, file, fields))
    target = ""
    if kind.is_link:
        target = _next(number, file, fields)
        if "/" in target or not _PLAIN.fullmatch(target):
            raise _wrong(number, f"the link {file} leads out of its folder, to {printable(target, limit=120)!r}")
    return Entry(file, int(mode, 8), name, architecture == "NATIVE", folder, target, number)


def _next(number: int, file: str, fields: Iterator[str]) -> str:
    found = next(fields, None)
    if found is None:
        raise _wrong(number, f"{file} lacks a field of its type")
    return found


def _plain(number: int, text: str) -> str:
    """Return a name in the archive without the dot that it may begin with."""
    name = text.removeprefix("./")
    if not _PLAIN.fullmatch(name):
        raise _wrong(number, f"{printable(text, limit=120)!r} is no plain name of a file")
    return name


def _folder(number: int, text: str) -> str:
    """Return a folder: "/" and "." stand for none, others are plain parts, absolute or not."""
    inner = text.strip("/")
    if inner in ("", "."):
        return ""
    if not _PLAIN.fullmatch(inner) or "//" in text:
        raise _wrong(number, f"{printable(text, limit=120)!r} is no plain folder")
    return f"/{inner}" if text.startswith("/") else inner


def _inherited(number: int, file: str, text: str) -> str:
    """Return the folders of the file's own name without as many as it says at its beginning."""
    depth, folders = _DEPTH.fullmatch(text), file.split("/")[:-1]
    if depth is None or int(depth[1]) > len(folders):
        raise _wrong(number, f"{file} does not say which part of its name is its folder")
    return "/".join(folders[int(depth[1]) :])


def _wrong(line: int, said: str) -> RunfileError:
    return RunfileError(f"the runfile's manifest is not as expected: line {line} {said}", hint=_HINT)
