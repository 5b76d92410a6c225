"""Looks into archives of built modules before a bundle has them.

A node looks again, with its own tools, and at signatures too. This finds a wrong file while another can be had.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.base.printable import printable
from provision.base.unpacking import open_gzip, open_xz
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.module_archive import UnfitArchive, open_archive

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

    from provision.planning.supply.bundle.model import Flavour
    from provision.planning.supply.module_archive import BuiltModule

_MAX_MODULE_BYTES: Final = 512 * 1024 * 1024
_CLOSED_LICENSE: Final = "NVIDIA"  # of the proprietary flavour; some of its modules are free, of the open one all are
_HINT: Final = "give the archive that `dkms mktarball --binaries-only` wrote, or leave it to --from, which builds"
# ELF64, little-endian: the header's fields for sections, and a section's name, offset and size (elf(5)).
_HEADER: Final = struct.Struct("<40xQ10xHHH")
_SECTION: Final = struct.Struct("<I20xQQ")
_ELF64_LE: Final = b"\x7fELF\x02\x01"


@dataclass(frozen=True)
class BuiltModules:
    """An archive, and what its modules say of themselves."""

    path: Path
    dkms: str
    version: str
    flavour: Flavour
    kernel: str


def read_module_archive(path: Path) -> BuiltModules:
    """Return what an archive holds: modules of one kernel and one version; raises `BundleError`."""
    kernels, found = set[str](), list[dict[str, str]]()
    try:
        with open_archive(path) as given:
            for module in given.modules():
                kernels.add(module.kernel)
                found.append(_read_module(module))
        return _judge(path, given.texts.get("PACKAGE_NAME", ""), kernels, found)
    except UnfitArchive as error:
        raise BundleError(f"{path}: {error}", hint=_HINT) from error
    except OSError as error:
        raise BundleError(f"{path}: it cannot be read: {(error.strerror or str(error)).lower()}", hint=_HINT) from error


def _judge(path: Path, dkms: str, kernels: set[str], found: list[dict[str, str]]) -> BuiltModules:
    built_for = {module.get("vermagic", "").split(" ")[0] for module in found}
    versions = {module["version"] for module in found if "version" in module}
    if not dkms or not found:
        raise UnfitArchive("it has no modules of DKMS")
    if len(kernels | built_for) != 1:
        raise UnfitArchive(f"its modules are for different kernels: {_listed(kernels | built_for)}")
    if len(versions) != 1:
        raise UnfitArchive(f"its modules have no single version: {_listed(versions) or 'none'}")
    closed = any(module.get("license") == _CLOSED_LICENSE for module in found)
    return BuiltModules(path, dkms, versions.pop(), "proprietary" if closed else "open", kernels.pop())


def _listed(values: set[str]) -> str:
    return printable(", ".join(sorted(values)), limit=200)


def _read_module(module: BuiltModule) -> dict[str, str]:
    """Return the first value of each field of a module's ``.modinfo``."""
    if module.name.endswith(".zst"):
        raise UnfitArchive(f"{module.name} is packed with zstd, which cannot be looked into here")
    data = _unpacked(module).read(_MAX_MODULE_BYTES)
    try:
        fields = _section(data, b".modinfo").split(b"\0")
    except (struct.error, ValueError) as error:
        raise UnfitArchive(f"{module.name} is no kernel module") from error
    found: dict[str, str] = {}
    for field in fields:
        key, equals, value = field.decode("utf-8", "replace").partition("=")
        if equals:
            found.setdefault(key, value)
    return found


def _unpacked(module: BuiltModule) -> IO[bytes]:
    if module.name.endswith(".xz"):
        return open_xz(module.content)
    return open_gzip(module.content) if module.name.endswith(".gz") else module.content


def _section(data: bytes, wanted: bytes) -> bytes:
    """Return a section of an object file; raises ValueError, struct.error."""
    if not data.startswith(_ELF64_LE):
        raise ValueError("not an ELF file of 64 bits")
    start, size, count, names_index = _HEADER.unpack_from(data)
    headers = [_SECTION.unpack_from(data, start + size * index) for index in range(count)]
    _, names_at, _ = headers[names_index] if names_index < count else (0, 0, 0)
    for name, offset, length in headers:
        if data.startswith(wanted + b"\0", names_at + name):
            return data[offset : offset + length]
    raise ValueError("no such section")
