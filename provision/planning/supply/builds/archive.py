r"""Writes the modules of an archive that came from a node into an archive of our own, and nothing else of it.

It goes to other nodes, where dkms unpacks it as root and sources a file of it as shell. So what is handed on is written
here: plain files of plain names, in one format, with a dkms.conf of our own, and only the modules of the one kernel.
What the modules themselves say is checked on each node, with modinfo; reading is
`provision.planning.supply.module_archive`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import tarfile
import tempfile
from typing import IO, TYPE_CHECKING, Final

from provision.base.errors import os_reason
from provision.base.printable import printable
from provision.planning.supply.builds.content import digest_content
from provision.planning.supply.builds.errors import ArchiveError
from provision.planning.supply.module_archive import BINARIES, TREE, WORD, UnfitArchive, open_archive

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from provision.planning.supply.builds.model import ModuleBuild
    from provision.planning.supply.module_archive import Archive, BuiltModule

MAX_BYTES: Final = 256 * 1024 * 1024  # the proprietary modules of 550 with their symbols: 43 MB
_FORMAT: Final = tarfile.USTAR_FORMAT
_MODE: Final = 0o644
_HINT: Final = "another node of its kind builds; find out who is root of this one"


def rewrite_archive(
    source: Path, target: Path, build: ModuleBuild, scratch: Path | None = None
) -> tuple[str, dict[str, str]]:
    """Write the modules of ``source`` to ``target``; return the SHA-256 of that, and the digests to compare it by.

    These are by name: of each module as it was built, and of what dkms is told; none for a declared builder, whose
    archive is not compared. ``scratch`` is for what is unpacked meanwhile, the folder of ``target`` if None. Raises
    `ArchiveError`, `BuildsError`.
    """
    try:
        with open_archive(source) as given, target.open("wb") as out:
            content = _rewrite(given, out, build, scratch or target.parent)
        with target.open("rb") as written:
            return hashlib.file_digest(written, "sha256").hexdigest(), content
    except UnfitArchive as error:
        raise ArchiveError(f"its archive of built modules was refused: {error}", hint=_HINT) from error
    except OSError as error:
        raise ArchiveError(f"{error.filename or target}: {os_reason(error)}") from error


def _rewrite(given: Archive, out: IO[bytes], build: ModuleBuild, scratch: Path) -> dict[str, str]:
    """Copy what belongs to the modules, in the order in which it comes."""
    names: list[str] = []
    content: dict[str, str] = {}
    with (
        gzip.GzipFile(fileobj=out, mode="wb", filename="", mtime=0, compresslevel=1) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=_FORMAT) as tar,
    ):
        for module in given.modules():
            _require_kernel(module, build)
            name = _plain_name(module.name)
            if name in names:
                raise UnfitArchive(f"{printable(module.name)} is in it twice")
            names.append(name)
            place = f"./{TREE}/{build.kernel}/{build.architecture}/module/{module.name}"
            with tempfile.TemporaryFile(dir=scratch) as copy:
                shutil.copyfileobj(module.content, copy)
                copy.seek(0)
                tar.addfile(_header(place, module.size), copy)
                copy.seek(0)
                if build.answers > 1:
                    content[name] = digest_content(module.name, copy, scratch)
        for name, text in _own_texts(given.texts, sorted(names), build).items():
            data = text.encode()
            tar.addfile(_header(f"./{BINARIES}/{name}", len(data)), io.BytesIO(data))
            if build.answers > 1:
                content[name] = hashlib.sha256(data).hexdigest()
    return content


def _plain_name(name: str) -> str:
    """Return the file name of a module before it was compressed."""
    return f"{name.partition('.ko')[0]}.ko"


def _require_kernel(module: BuiltModule, build: ModuleBuild) -> None:
    if (module.kernel, module.architecture) != (build.kernel, build.architecture):
        found = printable(f"{module.kernel} ({module.architecture})", limit=200)
        raise UnfitArchive(f"it has files for the kernel {found}, not {build.kernel} ({build.architecture}) alone")


def _own_texts(said: Mapping[str, str], modules: list[str], build: ModuleBuild) -> dict[str, str]:
    """Return what tells dkms what is in the archive; on a node it has the package's own dkms.conf for all else."""
    if not modules:
        raise UnfitArchive("it has no kernel module")
    if said.get("PACKAGE_NAME") != build.dkms:
        name = printable(said.get("PACKAGE_NAME", ""), limit=64)
        raise UnfitArchive(f"it is of the DKMS module {name}, not {build.dkms}")
    version = said.get("PACKAGE_VERSION", "")
    if not WORD.fullmatch(version):
        raise UnfitArchive("it does not say which version of the DKMS module it is of")
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
