"""Writes Debian packages (deb(5)): the same content gives the same bytes, whoever writes it and when.

Files are root's and sorted, their times are one time. Nothing but Python is needed, so that a controller of any system
can make packages for a node.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_PRESET: Final = 1  # three times as fast as the default, for a tenth more bytes
_FOLDER_MODE: Final = 0o755
_CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True)
class PackedFile:
    """A file of a package by its path without the first slash: a copy of ``source``, ``content``, or a link."""

    path: str
    mode: int = 0o644
    source: Path | None = None
    content: bytes = b""
    target: str = ""

    def open(self) -> io.BytesIO | io.BufferedReader:
        """Open what it holds."""
        return io.BytesIO(self.content) if self.source is None else self.source.open("rb")

    @property
    def size_bytes(self) -> int:
        """Of what it holds."""
        return len(self.content) if self.source is None else self.source.stat().st_size


@dataclass(frozen=True)
class DebPackage:
    """A package: the fields of its control file in order, its files, its scripts and triggers by their names."""

    fields: Mapping[str, str]
    files: Sequence[PackedFile]
    scripts: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its file, as apt calls it in its cache."""
        return f"{self.fields['Package']}_{self.fields['Version']}_{self.fields['Architecture']}.deb"


def write_deb(package: DebPackage, place: Path, time_s: int) -> None:
    """Write a package; ``time_s`` is the time of everything in it. Raises OSError."""
    files = sorted(package.files, key=lambda file: file.path)
    with tempfile.TemporaryFile(dir=place.parent) as data, place.open("xb") as out:
        with lzma.open(data, "wb", preset=_PRESET) as compressed:
            digests = _write_data(compressed, files, time_s)
        out.write(b"!<arch>\n")
        _add(out, "debian-binary", io.BytesIO(b"2.0\n"), time_s)
        _add(out, "control.tar.xz", io.BytesIO(_control(package, files, digests, time_s)), time_s)
        _add(out, "data.tar.xz", data, time_s)


def _write_data(out: IO[bytes], files: Iterable[PackedFile], time_s: int) -> list[tuple[str, str]]:
    """Write the archive of the files; returns their MD5 digests, which dpkg lists, by path."""
    digests, folders = [], set[str]()
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for file in files:
            for folder in reversed(PurePosixPath(file.path).parents):
                if str(folder) not in folders:
                    folders.add(str(folder))
                    archive.addfile(_member(f"./{folder}" if folder.name else "./", _FOLDER_MODE, time_s, "folder"))
            if file.target:
                archive.addfile(_member(f"./{file.path}", 0o777, time_s, "link", target=file.target))
                continue
            with file.open() as stream:
                digests.append((file.path, hashlib.file_digest(stream, _md5).hexdigest()))
                stream.seek(0)
                archive.addfile(_member(f"./{file.path}", file.mode, time_s, "file", size=file.size_bytes), stream)
    return digests


def _md5() -> hashlib._Hash:
    return hashlib.md5(usedforsecurity=False)


_TYPES: Final = {"file": tarfile.REGTYPE, "folder": tarfile.DIRTYPE, "link": tarfile.SYMTYPE}


def _member(name: str, mode: int, time_s: int, kind: str, *, size: int = 0, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode, info.mtime, info.type, info.size, info.linkname = mode, time_s, _TYPES[kind], size, target
    info.uname = info.gname = "root"
    return info


def _control(
    package: DebPackage, files: Iterable[PackedFile], digests: Sequence[tuple[str, str]], time_s: int
) -> bytes:
    kilobytes = sum(-(-file.size_bytes // 1024) for file in files)
    described = {**package.fields, "Installed-Size": str(kilobytes)}
    described["Description"] = described.pop("Description")  # the last one, as people expect it
    texts = {
        "control": "".join(f"{key}: {value}\n" for key, value in described.items()),
        "md5sums": "".join(f"{digest}  {path}\n" for path, digest in digests),
        **package.scripts,
    }
    out = io.BytesIO()
    with (
        lzma.open(out, "wb", preset=_PRESET) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.GNU_FORMAT) as archive,
    ):
        archive.addfile(_member("./", _FOLDER_MODE, time_s, "folder"))
        for name, text in sorted(texts.items()):
            content = text.encode()
            mode = 0o755 if text.startswith("#!") else 0o644
            archive.addfile(_member(f"./{name}", mode, time_s, "file", size=len(content)), io.BytesIO(content))
    return out.getvalue()


def _add(out: IO[bytes], name: str, content: IO[bytes], time_s: int) -> None:
    """Add a member to an ar archive."""
    size = content.seek(0, io.SEEK_END)
    content.seek(0)
    out.write(f"{name:<16}{time_s:<12}{0:<6}{0:<6}{'100644':<8}{size:<10}`\n".encode())
    while chunk := content.read(_CHUNK_BYTES):
        out.write(chunk)
    if size % 2:
        out.write(b"\n")
