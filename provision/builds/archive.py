r"""Writes the modules of an archive that came from a node into an archive of our own, and nothing else of it.

Whoever is root of the node that built may have made the archive. It goes to other nodes, where dkms unpacks it as root
and sources a file of it as shell. So it is read within limits, everything but the modules of the one kernel is refused
or left behind, and what is handed on is written here: plain files of plain names, in one format, with a dkms.conf of
our own. What the modules themselves say is checked on each node, with modinfo.

::

    dkms_binaries_only/{PACKAGE_NAME,PACKAGE_VERSION,dkms.conf}
    dkms_main_tree/KERNEL/ARCHITECTURE/module/NAME.ko[.xz]
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import zlib
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Final

from provision.builds.errors import ArchiveError
from provision.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from provision.builds.model import ModuleBuild

MAX_BYTES: Final = 256 * 1024 * 1024  # the proprietary modules of 550 with their symbols: 43 MB
_MAX_UNPACKED_BYTES: Final = 2 * 1024 * 1024 * 1024
_MAX_MEMBERS: Final = 1000
_MAX_NAME_HEADER_BYTES: Final = 4096
_MAX_TEXT_BYTES: Final = 256
_FORMAT: Final = tarfile.USTAR_FORMAT
_MODE: Final = 0o644
_PLAIN: Final = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE})
_NAMES: Final = frozenset({tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME})  # of the member that follows
_TREE, _BINARIES = "dkms_main_tree", "dkms_binaries_only"
_MODULE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,63}\.ko(?:\.gz|\.xz|\.zst)?")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,63}")
# What dkms adds that nobody needs: the compiler's log, and the symbols for modules that build against these.
_LEFT_BEHIND: Final = frozenset({("log", "make.log"), ("module", "Module.symvers")})
_TEXTS: Final = frozenset({"PACKAGE_NAME", "PACKAGE_VERSION", "dkms.conf"})
_HINT: Final = "the next node of its kind builds; find out who is root of this one"


def rewrite_archive(source: Path, target: Path, build: ModuleBuild) -> str:
    """Write the modules of ``source`` to ``target``, and return the SHA-256 of that; raises `ArchiveError`."""
    try:
        with source.open("rb") as stream, gzip.GzipFile(fileobj=stream) as plain, target.open("wb") as out:
            _rewrite(plain, out, build)
    except (tarfile.TarError, OSError, EOFError, zlib.error, RecursionError, ValueError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise ArchiveError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from error
        raise _refusal(f"it cannot be read: {printable(str(error), limit=200)}") from error
    with target.open("rb") as written:
        return hashlib.file_digest(written, "sha256").hexdigest()


def _rewrite(plain: gzip.GzipFile, out: IO[bytes], build: ModuleBuild) -> None:
    """Copy what belongs to the modules, in the order in which it comes."""
    texts: dict[str, str] = {}
    modules: list[str] = []
    with (
        tarfile.open(fileobj=plain, mode="r|", tarinfo=_PlainMember) as given,
        gzip.GzipFile(fileobj=out, mode="wb", filename="", mtime=0, compresslevel=1) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=_FORMAT) as tar,
    ):
        for parts, member in _files(given):
            if parts[0] == _BINARIES:
                texts[parts[1]] = _text(given, member) if parts[1] != "dkms.conf" else ""
            elif name := _module_name(parts, build):
                if name in modules:
                    raise _refusal(f"{printable(name)} is in it twice")
                modules.append(name)
                place = f"./{_TREE}/{build.kernel}/{build.architecture}/module/{name}"
                tar.addfile(_header(place, member.size), given.extractfile(member))
        for name, text in _own_texts(texts, sorted(modules), build).items():
            data = text.encode()
            tar.addfile(_header(f"./{_BINARIES}/{name}", len(data)), io.BytesIO(data))


class _PlainMember(tarfile.TarInfo):
    """A header of a file, of a folder or of a long name; any other is refused before what follows it is read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _PlainMember:
        member = super().frombuf(buf, encoding, errors)
        names_next = member.type in _NAMES
        if not names_next and member.type not in _PLAIN:
            raise _refusal(f"{printable(member.name, limit=200)} in it is neither a file nor a folder")
        if names_next and member.size > _MAX_NAME_HEADER_BYTES:
            raise _refusal("it has a name that is too long")
        return member


def _files(given: tarfile.TarFile) -> Iterator[tuple[tuple[str, ...], tarfile.TarInfo]]:
    """Yield the plain files with the parts of their names, each in a place where an archive of modules has files."""
    size = 0
    for count, member in enumerate(given):
        size += member.size
        if count >= _MAX_MEMBERS or size > _MAX_UNPACKED_BYTES:
            raise _refusal("it unpacks to more than a driver's modules can be")
        parts = PurePosixPath(member.name).parts
        name = printable(member.name, limit=200)
        if member.name.startswith("/") or ".." in parts or member.issparse():
            raise _refusal(f"{name} in it leads elsewhere")
        if member.isdir():
            continue
        is_text = len(parts) == 2 and parts[0] == _BINARIES and parts[1] in _TEXTS  # noqa: PLR2004 - folder, name
        if not is_text and not (len(parts) == 5 and parts[0] == _TREE):  # noqa: PLR2004 - kernel, architecture, folder, name
            raise _refusal(f"{name} in it does not belong to built modules")
        yield parts, member


def _module_name(parts: tuple[str, ...], build: ModuleBuild) -> str:
    """Return the name of a module's file, empty for a file that is left behind; raises `ArchiveError`."""
    _, kernel, architecture, folder, name = parts
    if (kernel, architecture) != (build.kernel, build.architecture):
        found = printable(f"{kernel} ({architecture})", limit=200)
        raise _refusal(f"it has files for the kernel {found}, not {build.kernel} ({build.architecture}) alone")
    if (folder, name) in _LEFT_BEHIND:
        return ""
    if folder != "module" or not _MODULE.fullmatch(name):
        raise _refusal(f"{printable('/'.join(parts), limit=200)} in it is no kernel module")
    return name


def _text(given: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    stream = given.extractfile(member)
    data = b"" if stream is None or member.size > _MAX_TEXT_BYTES else stream.read()
    return data.decode("ascii", "replace").strip()


def _own_texts(said: Mapping[str, str], modules: list[str], build: ModuleBuild) -> dict[str, str]:
    """Return what tells dkms what is in the archive; on a node it has the package's own dkms.conf for all else."""
    if not modules:
        raise _refusal("it has no kernel module")
    if said.get("PACKAGE_NAME") != build.dkms:
        raise _refusal(
            f"it is of the DKMS module {printable(said.get('PACKAGE_NAME', ''), limit=64)}, not {build.dkms}"
        )
    version = said.get("PACKAGE_VERSION", "")
    if not _WORD.fullmatch(version):
        raise _refusal("it does not say which version of the DKMS module it is of")
    lines = [f'PACKAGE_NAME="{build.dkms}"', f'PACKAGE_VERSION="{version}"']
    for index, name in enumerate(modules):
        lines += [f'BUILT_MODULE_NAME[{index}]="{name.partition(".ko")[0]}"']
        lines += [f'DEST_MODULE_LOCATION[{index}]="/updates/dkms"']
    return {
        "PACKAGE_NAME": f"{build.dkms}\n",
        "PACKAGE_VERSION": f"{version}\n",
        "dkms.conf": "".join(f"{line}\n" for line in lines),
    }


def _header(place: str, size: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(place)
    header.size, header.mode = size, _MODE
    header.uname = header.gname = "root"
    return header


def _refusal(why: str) -> ArchiveError:
    return ArchiveError(f"its archive of built modules was refused: {why}", hint=_HINT)
