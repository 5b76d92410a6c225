"""Looks into archives of built modules, which ``dkms mktarball --binaries-only`` writes, before a bundle has them.

A node looks again, with its own tools, and at signatures too. This finds a wrong file while another can be had.
"""

from __future__ import annotations

import gzip
import lzma
import re
import struct
import tarfile
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from provision.bundle.errors import BundleError
from provision.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import IO

    from provision.bundle.model import Flavour

_MAX_MODULE_BYTES: Final = 512 * 1024 * 1024
_MAX_MEMBERS: Final = 10_000
_MODULE: Final = re.compile(r"\.ko(?:\.gz|\.xz|\.zst)?$")
_TREE, _BINARIES = "dkms_main_tree", "dkms_binaries_only"
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
    dkms, kernels, found = "", set[str](), list[dict[str, str]]()
    try:
        with tarfile.open(path) as opened:
            for parts, stream in _files(opened, path):
                if parts == (_BINARIES, "PACKAGE_NAME"):
                    dkms = stream.read(256).decode("utf-8", "replace").strip()
                elif parts[:1] == (_TREE,) and len(parts) > 2 and _MODULE.search(parts[-1]):  # noqa: PLR2004 - tree and kernel
                    kernels.add(parts[1])
                    found.append(_read_module(path, parts[-1], stream))
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise _unfit(path, f"it cannot be read: {printable(str(error))}") from error
    return _judge(path, dkms, kernels, found)


def _judge(path: Path, dkms: str, kernels: set[str], found: list[dict[str, str]]) -> BuiltModules:
    built_for = {module.get("vermagic", "").split(" ")[0] for module in found}
    versions = {module["version"] for module in found if "version" in module}
    if not dkms or not found:
        raise _unfit(path, "it has no modules of DKMS")
    if len(kernels | built_for) != 1:
        raise _unfit(
            path, f"its modules are for different kernels: {printable(', '.join(sorted(kernels | built_for)))}"
        )
    if len(versions) != 1:
        raise _unfit(path, f"its modules have no single version: {printable(', '.join(sorted(versions)) or 'none')}")
    closed = any(module.get("license") == _CLOSED_LICENSE for module in found)
    return BuiltModules(path, dkms, versions.pop(), "proprietary" if closed else "open", kernels.pop())


def _files(opened: tarfile.TarFile, path: Path) -> Iterator[tuple[tuple[str, ...], IO[bytes]]]:
    for count, member in enumerate(opened):
        if count >= _MAX_MEMBERS or member.size > _MAX_MODULE_BYTES:
            raise _unfit(path, "it holds more than a driver's modules can be")
        stream = opened.extractfile(member) if member.isreg() else None
        if stream is not None:
            yield PurePosixPath(member.name).parts, stream


def _read_module(path: Path, name: str, stream: IO[bytes]) -> dict[str, str]:
    """Return the first value of each field of a module's ``.modinfo``."""
    if name.endswith(".zst"):
        raise _unfit(path, f"{name} is packed with zstd, which cannot be looked into here")
    data = _unpacked(name, stream).read(_MAX_MODULE_BYTES)
    try:
        fields = _section(data, b".modinfo").split(b"\0")
    except (struct.error, ValueError) as error:
        raise _unfit(path, f"{name} is no kernel module") from error
    found: dict[str, str] = {}
    for field in fields:
        key, equals, value = field.decode("utf-8", "replace").partition("=")
        if equals:
            found.setdefault(key, value)
    return found


def _unpacked(name: str, stream: IO[bytes]) -> IO[bytes] | gzip.GzipFile | lzma.LZMAFile:
    if name.endswith(".xz"):
        return lzma.LZMAFile(stream)
    return gzip.GzipFile(fileobj=stream) if name.endswith(".gz") else stream


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


def _unfit(path: Path, why: str) -> BundleError:
    return BundleError(f"{path}: {why}", hint=_HINT)
