"""Reads archives of built modules, as ``dkms mktarball --binaries-only`` writes them, whoever wrote this one.

::

    dkms_binaries_only/{PACKAGE_NAME,PACKAGE_VERSION,dkms.conf}
    dkms_main_tree/KERNEL/ARCHITECTURE/{module/NAME.ko[.gz|.xz|.zst],module/Module.symvers,log/{make.log,.config}}

Whoever is root of a node may have made one. So it is read within limits, in one pass; whatever is not a plain file in
one of these places is refused before what follows its header is read. Nothing is written here, and what modules say
of themselves is for others to read.
"""

from __future__ import annotations

import contextlib
import re
import tarfile
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Final

from provision.base.plain_tar import PlainMember, plain_members
from provision.base.printable import printable
from provision.base.regular_file import open_regular
from provision.base.unpacking import BROKEN, open_gzip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

BINARIES: Final = "dkms_binaries_only"
TREE: Final = "dkms_main_tree"
WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,63}")
_MAX_UNPACKED_BYTES: Final = 2 * 1024 * 1024 * 1024
_MAX_MEMBERS: Final = 1000
_MAX_NAME_HEADER_BYTES: Final = 4096
_MAX_TEXT_BYTES: Final = 256
_PLAIN: Final = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE})
_NAMES: Final = frozenset({tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME})  # of the member that follows
_MODULE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,63}\.ko(?:\.gz|\.xz|\.zst)?")
# What dkms adds that nobody needs: the compiler's log and the kernel's configuration, and the symbols for modules that
# build against these.
_LEFT_BEHIND: Final = frozenset({("log", "make.log"), ("log", ".config"), ("module", "Module.symvers")})
_TEXTS: Final = frozenset({"PACKAGE_NAME", "PACKAGE_VERSION"})
_SCRIPT: Final = "dkms.conf"  # dkms sources it as shell: it is never read
_BROKEN: Final = (tarfile.TarError, RecursionError, *BROKEN)


class UnfitArchive(Exception):
    """An archive was refused; its text says why, and can be printed."""


@dataclass(frozen=True)
class BuiltModule:
    """The file of one module, and its kernel. The content can be read until the next module is asked for."""

    kernel: str
    architecture: str
    name: str
    size: int
    content: IO[bytes]


@dataclass
class Archive:
    """An archive that is open. ``texts`` are the files by which dkms knows it, as far as they have been read."""

    tar: tarfile.TarFile
    texts: dict[str, str]

    def modules(self) -> Iterator[BuiltModule]:
        """Yield the modules in the order in which they come; raises `UnfitArchive`."""
        for parts, member in _files(self.tar):
            if parts[0] == BINARIES:
                if parts[1] != _SCRIPT:
                    self.texts[parts[1]] = _text(self.tar, member)
            elif parts[3:] not in _LEFT_BEHIND:
                yield _module(self.tar, parts, member)


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive; whatever is wrong with it raises `UnfitArchive`, also while a module's content is read.

    An OSError is of a file of this machine: this one, or one that the caller writes.
    """
    try:
        with (
            open_regular(path) as stream,
            tarfile.open(fileobj=open_gzip(stream), mode="r|", tarinfo=_PlainMember) as tar,
        ):
            yield Archive(tar, {})
    except _BROKEN as error:
        raise UnfitArchive(f"it cannot be read: {printable(str(error), limit=200)}") from error


class _PlainMember(PlainMember):
    """A header of a file, of a folder or of a long name; any other is refused before what follows it is read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        names_next = member.type in _NAMES
        if not names_next and member.type not in _PLAIN:
            raise UnfitArchive(f"{printable(member.name, limit=200)} in it is neither a file nor a folder")
        if names_next and member.size > _MAX_NAME_HEADER_BYTES:
            raise UnfitArchive("it has a name that is too long")
        return member


def _files(tar: tarfile.TarFile) -> Iterator[tuple[tuple[str, ...], tarfile.TarInfo]]:
    """Yield the plain files with the parts of their names, each in a place where an archive of modules has files."""
    size = 0
    for count, member in enumerate(plain_members(tar)):
        size += member.size
        if count >= _MAX_MEMBERS or size > _MAX_UNPACKED_BYTES:
            raise UnfitArchive("it unpacks to more than a driver's modules can be")
        parts = PurePosixPath(member.name).parts
        name = printable(member.name, limit=200)
        if member.name.startswith("/") or ".." in parts or member.issparse():
            raise UnfitArchive(f"{name} in it leads elsewhere")
        if member.isdir():
            continue
        if not _is_text(parts) and not _is_of_a_kernel(parts):
            raise UnfitArchive(f"{name} in it does not belong to built modules")
        yield parts, member


def _is_text(parts: tuple[str, ...]) -> bool:
    return parts in {(BINARIES, name) for name in (*_TEXTS, _SCRIPT)}


def _is_of_a_kernel(parts: tuple[str, ...]) -> bool:
    match parts:
        case (top, kernel, architecture, _folder, _name):
            return top == TREE and all(WORD.fullmatch(part) for part in (kernel, architecture))
    return False


def _module(tar: tarfile.TarFile, parts: tuple[str, ...], member: tarfile.TarInfo) -> BuiltModule:
    _, kernel, architecture, folder, name = parts
    content = tar.extractfile(member)
    if folder != "module" or not _MODULE.fullmatch(name) or content is None:
        raise UnfitArchive(f"{printable('/'.join(parts), limit=200)} in it is no kernel module")
    return BuiltModule(kernel, architecture, name, member.size, content)


def _text(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    stream = tar.extractfile(member)
    data = b"" if stream is None or member.size > _MAX_TEXT_BYTES else stream.read()
    return data.decode("ascii", "replace").strip()
