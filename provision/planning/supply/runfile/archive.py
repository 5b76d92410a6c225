"""Unpacks a runfile without running it: a shell script, and behind it a compressed tar archive.

The script says in a line ``skip=N`` where the archive begins; it is compressed with gzip, xz, or from driver 530 on
with zstd. Before anything of the file is read, all of it has the declared digest. Only plain files come out, below the
folder that is given: no link of the archive is made or followed.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import tarfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, cast

from provision.base.errors import os_reason
from provision.base.plain_tar import open_plain, plain_members
from provision.base.printable import printable
from provision.base.regular_file import open_regular
from provision.planning.supply.runfile.errors import RunfileError

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator
    from pathlib import Path

MAX_BYTES: Final = 8 * 1024**3  # unpacked: five times what the largest driver comes to
_MAX_FILES: Final = 50_000
_MAX_HEADER: Final = 32 * 1024**2  # newer ones carry a decompressor in the script
_CHUNK_BYTES: Final = 1024**2
_SKIP: Final = re.compile(rb"^(?:skip=|offset=`head -n )([0-9]{1,6})\b", re.MULTILINE)
_LEADS_OUT: Final = re.compile(r"(^|/)\.\.(/|$)|^/")
_PLAIN: Final = re.compile(r"[A-Za-z0-9._+@-]{1,255}(/[A-Za-z0-9._+@-]{1,255})*")
_HINT: Final = "take the file from its maker again, and its digest with it"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class Limits:
    """How much a runfile may come to, unpacked."""

    size_bytes: int = MAX_BYTES
    files: int = _MAX_FILES


def unpack(path: Path, sha256: str, folder: Path, limits: Limits | None = None) -> None:
    """Unpack a runfile into an empty folder; raises `RunfileError` for any other file than the declared one."""
    try:
        with open_regular(path) as stream:
            before = _identity(os.fstat(stream.fileno()))
            _require_digest(path, stream, sha256)
            offset = _find_archive(path, stream)
            stream.seek(offset)
            with _decompressed(path, stream, offset) as data:
                _unpack(path, data, folder, limits or Limits())
            if _identity(os.fstat(stream.fileno())) != before:
                raise RunfileError(f"{path} changed while it was read", hint="run it again once nobody writes to it")
    except OSError as error:
        raise unusable(path, error) from error
    except (tarfile.TarError, lzma.LZMAError, EOFError, zlib.error) as error:
        said = printable(str(error), limit=200)
        raise RunfileError(f"{path}: its archive is cut or damaged: {said}", hint=_HINT) from error


def _require_digest(path: Path, stream: io.BufferedReader, sha256: str) -> None:
    """Raise `RunfileError` unless an open file has a digest."""
    stream.seek(0)
    found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        raise RunfileError(
            f"{path} has the SHA-256 digest {found}, and driver.runfile.sha256 is {sha256}",
            hint="it is cut, changed or another file: compare with the checksum that its maker publishes",
        )


def unusable(path: Path, error: OSError) -> RunfileError:
    """Return an error of the file system, with what helps."""
    reason = os_reason(error)
    hint = "name a file that you can read" if error.errno in (errno.ENOENT, errno.EACCES) else _HINT
    if error.errno == errno.EINVAL:  # it is a folder, a device, a FIFO
        hint = "driver.runfile.path names the .run file itself"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "unpacking a driver takes 2 GB below $XDG_CACHE_HOME (~/.cache): make room there, or set it"
    return RunfileError(f"{error.filename or path}: {reason}", hint=hint)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _find_archive(path: Path, stream: IO[bytes]) -> int:
    """Return where the archive begins: at the line that the script counts to."""
    stream.seek(0)
    head = stream.read(_MAX_HEADER)
    found = _SKIP.search(head, 0, 64 * 1024) if head.startswith(b"#!") else None
    if found is None:
        raise RunfileError(
            f"{path} is no runfile: it does not begin with a script that says where its archive begins",
            hint="driver.runfile names NVIDIA-Linux-….run as NVIDIA publishes it",
        )
    lines = int(found[1]) - (1 if found[0].startswith(b"skip") else 0)
    offset = 0
    for _ in range(lines):
        offset = head.find(b"\n", offset) + 1
        if offset == 0:
            raise RunfileError(f"{path} ends before its archive, which begins at line {lines + 1}", hint=_HINT)
    return offset


@contextlib.contextmanager
def _decompressed(path: Path, stream: IO[bytes], offset: int) -> Iterator[IO[bytes]]:
    magic = stream.read(6)
    stream.seek(offset)
    if magic.startswith(b"\x1f\x8b"):
        yield cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    elif magic == b"\xfd7zXZ\x00":
        with lzma.open(stream) as data:
            yield data
    elif magic.startswith(b"BZh"):
        yield bz2.BZ2File(stream)
    elif magic.startswith(_ZSTD_MAGIC):
        with _zstd(path, stream, offset) as data:
            yield data
    else:
        raise RunfileError(f"{path}: its archive is compressed in a way that is not known", hint=_HINT)


@contextlib.contextmanager
def _zstd(path: Path, stream: IO[bytes], offset: int) -> Iterator[IO[bytes]]:
    """Have zstd decompress, which Python does from 3.14 on only."""
    program = shutil.which("zstd")
    if program is None:
        raise RunfileError(
            f"{path} is compressed with zstd, and this machine has no program of that name",
            hint="install zstd on the machine that runs grapnel",
        )
    os.lseek(stream.fileno(), offset, os.SEEK_SET)
    argv = [program, "--decompress", "--stdout", "--quiet"]
    with subprocess.Popen(argv, stdin=stream, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield cast("IO[bytes]", process.stdout)
        except tarfile.TarError as error:
            process.kill()
            said = process.communicate()[1].decode("utf-8", "replace").strip()
            raise RunfileError(f"{path}: zstd: {printable(said or str(error), limit=200)}", hint=_HINT) from error
        finally:
            process.kill()


def _unpack(path: Path, data: IO[bytes], folder: Path, limits: Limits) -> None:
    size, count = 0, 0
    with open_plain(fileobj=data, mode="r|") as archive:
        for member in plain_members(archive):
            name = member.name.removeprefix("./")
            if _LEADS_OUT.search(name):
                raise RunfileError(f"{path}: its archive leads out of its folder: {printable(name)}", hint=_HINT)
            of = _hard_linked(member, folder) if member.islnk() else None
            count, size = count + 1, size + (of.stat().st_size if of is not None else member.size)
            if count > limits.files or size > limits.size_bytes:
                raise RunfileError(f"{path}: its archive holds more than a driver can be", hint=_HINT)
            if not _PLAIN.fullmatch(name):
                continue  # what the manifest then misses is said there; so are folders, links and devices
            if of is not None:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(of, folder / name)
            elif member.isreg():
                _write(archive, member, folder / name)


def _hard_linked(member: tarfile.TarInfo, folder: Path) -> Path | None:
    """Return the unpacked file that a hard link is to, or None; the link becomes a copy of it."""
    other = member.linkname.removeprefix("./")
    return None if _LEADS_OUT.search(other) or not (folder / other).is_file() else folder / other


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    stream = archive.extractfile(member)
    with place.open("xb") as out:
        while stream is not None and (chunk := stream.read(_CHUNK_BYTES)):
            out.write(chunk)
    os.utime(place, (0, min(max(int(member.mtime), 0), 2**31 - 1)))
