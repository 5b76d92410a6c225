"""Reads a bundle: checks all of it first, and unpacks only what its list names.

A bundle comes from wherever it was carried: a file in it that is cut, changed, missing or not listed is an error that
names the file and its place, before anything of it is used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from provision.base.plain_tar import open_plain, plain_members
from provision.base.printable import printable
from provision.base.regular_file import open_regular
from provision.base.strict_json import MalformedError, decode
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.bundle.model import BundleList
from provision.planning.supply.bundle.signature import read_signature, read_signers, signature_beside, verify
from provision.planning.supply.bundle.write import LIST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from typing import IO

_MAX_LIST_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_HINT = "carry the bundle over again, or make it again with `grapnel bundle`"


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files lie unpacked and checked in a folder."""

    folder: Path
    listing: BundleList

    def path(self, place: str) -> Path:
        """Return where a listed file lies."""
        return self.folder / place


def verify_bundle(archive: Path, signers: Path | None = None) -> BundleList:
    """Return the list of a bundle of which every byte is as listed, signed if it has to be; raises `BundleError`."""
    with _trusted(archive, signers, None) as stream, _opened(archive, stream) as tar:
        listing = _read_list(archive, tar)
        for _ in _checked_members(archive, tar, listing, None):
            pass
    return listing


def open_bundle(archive: Path, cache: Path, signers: Path | None = None) -> Bundle:
    """Return a bundle, unpacked below ``cache`` under a name that stands for its content; raises `BundleError`.

    With ``signers``, a file of allowed signers, the bundle has to be signed by one of them. Without it a signature that
    lies beside the bundle has to be of this bundle.
    """
    with _trusted(archive, signers, cache) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return _unpack(archive, stream, cache / digest)


def unpack_bundle(archive: Path, folder: Path) -> Bundle:
    """Check a bundle and unpack it into a folder, which appears only when it is whole; raises `BundleError`.

    A folder that is there already is taken for a bundle unpacked before, and checked.
    """
    with _trusted(archive, None, folder.parent) as stream:
        return _unpack(archive, stream, folder)


def _unpack(archive: Path, stream: BufferedReader, folder: Path) -> Bundle:
    if folder.is_dir():
        return _same(archive, stream, open_unpacked(folder))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
        try:
            with _opened(archive, stream) as tar:
                listing = _read_list(archive, tar)
                for _ in _checked_members(archive, tar, listing, beside):
                    pass
                _copy(tar, tar.getmember(LIST), beside)
            beside.rename(folder)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BundleError(f"{error.filename or folder}: {reason}", hint="is there enough space?") from error
    return Bundle(folder, listing)


def _same(archive: Path, stream: IO[bytes], unpacked: Bundle) -> Bundle:
    """Return what was unpacked before, if its list is that of the archive; raises `BundleError`."""
    with _opened(archive, stream) as tar:
        if _read_list(archive, tar) != unpacked.listing:
            raise BundleError(f"{unpacked.folder} is not what {archive} has", hint=f"remove {unpacked.folder}")
    return unpacked


@contextmanager
def _trusted(archive: Path, signers: Path | None, cache: Path | None) -> Iterator[BufferedReader]:
    """Open a bundle, of which the signature is verified where there is one or has to be.

    What is verified is a copy without a name, in ``cache``: nobody can change it before it is unpacked.
    """
    try:
        stream = open_regular(archive)
    except OSError as error:
        raise BundleError(f"{archive}: {(error.strerror or str(error)).lower()}", hint=_HINT) from error
    with stream:
        beside = signature_beside(archive)
        try:
            signature = read_signature(beside)
        except FileNotFoundError:
            if signers is None:
                yield stream
                return
            raise BundleError(
                f"{archive} is not signed: there is no {beside}",
                hint="carry its .sig over too, or make it again with `grapnel bundle create --sign KEY`",
            ) from None
        allowed = None if signers is None else read_signers(signers)
        with _copied(archive, stream, cache) as copy:
            verify(copy, signature, allowed, str(archive))
            os.lseek(copy.fileno(), 0, os.SEEK_SET)
            with os.fdopen(os.dup(copy.fileno()), "rb") as verified:  # with no buffer of what was before
                yield verified


@contextmanager
def _copied(archive: Path, stream: IO[bytes], cache: Path | None) -> Iterator[IO[bytes]]:
    try:
        if cache is not None:
            cache.mkdir(parents=True, exist_ok=True)
        copy = tempfile.TemporaryFile(dir=cache)  # noqa: SIM115 - closed below, where errors are others'
    except OSError as error:
        raise BundleError(f"{cache}: {(error.strerror or str(error)).lower()}", hint="is it writable?") from error
    with copy:
        try:
            shutil.copyfileobj(stream, copy, _CHUNK_BYTES)
            copy.flush()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise BundleError(f"{archive} cannot be copied: {reason}", hint="is there enough space?") from error
        yield copy


def open_place(place: Path, cache: Path, signers: Path | None = None) -> Bundle:
    """Return the bundle at a place, an archive or the folder that somebody unpacked one into; raises `BundleError`.

    An archive is unpacked below ``cache``, under a name that stands for its content.
    """
    if place.is_dir():
        if signers is not None:
            raise BundleError(
                f"{place} is an unpacked bundle, which has no signature, and signers are given",
                hint="name the file that `grapnel bundle create` wrote, with its .sig beside it",
            )
        if not (place / LIST).is_file():
            hint = "name the file that `grapnel bundle create` wrote, or the folder that it was unpacked into"
            raise BundleError(f"{place} is not an unpacked bundle: it has no {LIST}", hint=hint)
        return open_unpacked(place, hint=_HINT)
    if place.exists() and not place.is_file():
        raise BundleError(f"{place} is neither a file nor a folder", hint=_HINT)
    return open_bundle(place, cache, signers)


def open_unpacked(folder: Path, hint: str = "") -> Bundle:
    """Return a bundle that was unpacked before, checked again; raises `BundleError`, with ``hint`` if there is one."""
    path, hint = folder / LIST, hint or f"remove {folder}"
    try:
        listing = _decode(str(path), path.read_bytes())
        for file in listing.files:
            place = folder / file.place
            if place.resolve() != folder.resolve() / file.place:  # its digest would tell whether a guess is right
                raise BundleError(f"{place} is a link, or lies behind one", hint=hint)
            with place.open("rb") as stream:
                if hashlib.file_digest(stream, "sha256").hexdigest() != file.sha256:
                    raise BundleError(f"{place} is not as the bundle's list says", hint=hint)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BundleError(f"{error.filename}: {reason}", hint=hint) from error
    return Bundle(folder, listing)


@contextmanager
def _opened(archive: Path, stream: IO[bytes]) -> Iterator[tarfile.TarFile]:
    stream.seek(0)
    try:
        tar = open_plain(fileobj=stream, mode="r:")
    except tarfile.TarError as error:
        raise BundleError(f"{archive} is not a bundle: {printable(str(error))}", hint=_HINT) from error
    with tar:
        yield tar


def _read_list(archive: Path, tar: tarfile.TarFile) -> BundleList:
    try:
        member = next(plain_members(tar), None)
        if member is None or member.name != LIST or not member.isreg() or member.size > _MAX_LIST_BYTES:
            raise BundleError(f"{archive} is not a bundle: it does not begin with {LIST}", hint=_HINT)
        stream = tar.extractfile(member)
        data = stream.read() if stream is not None else b""
    except (tarfile.TarError, OSError) as error:
        raise BundleError(f"{archive}: {LIST} cannot be read: {printable(str(error))}", hint=_HINT) from error
    return _decode(f"{archive}: {LIST}", data)


def _decode(where: str, data: bytes) -> BundleList:
    try:
        listing = decode(data, BundleList, limit_bytes=_MAX_LIST_BYTES)
    except MalformedError as error:
        raise BundleError(f"{where}: {error}", hint=_HINT) from error
    places = [file.place for file in listing.files]
    used = {package.place for driver in listing.drivers for package in driver.packages}
    used |= {package.place for engine in listing.engines for package in engine.packages}
    used |= {module.place for driver in listing.drivers for module in driver.modules}
    if len(set(places)) < len(places):
        raise BundleError(f"{where}: a file is listed twice", hint=_HINT)
    missing = sorted(used - set(places))
    if missing:
        raise BundleError(f"{where}: {missing[0]} is used and not listed", hint=_HINT)
    return listing


def _checked_members(archive: Path, tar: tarfile.TarFile, listing: BundleList, target: Path | None) -> Iterator[str]:
    """Check every file of the archive, and write it below ``target`` if there is one; all listed ones must be there."""
    wanted = {file.place: file for file in listing.files}
    seen: set[str] = set()
    try:
        for member in plain_members(tar):
            name, where = member.name, f"{archive}: {printable(member.name)} at byte {member.offset}"
            if name not in wanted or name in seen or not member.isreg():
                raise BundleError(f"{where} is not in the bundle's list, or is there twice", hint=_HINT)
            if _copy(tar, member, target) != (wanted[name].sha256, wanted[name].size_bytes):
                raise BundleError(f"{where} is damaged: it does not have the digest that is listed", hint=_HINT)
            seen.add(name)
            yield name
    except tarfile.TarError as error:
        raise BundleError(f"{archive} is cut or damaged at byte {tar.offset}: {error}", hint=_HINT) from error
    missing = sorted(set(wanted) - seen)
    if missing:
        raise BundleError(f"{archive} is cut: {missing[0]} and {len(missing) - 1} more files are missing", hint=_HINT)


def _copy(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path | None) -> tuple[str, int]:
    """Read a file, and write it if there is a target; returns its digest and size."""
    source = tar.extractfile(member)
    found, size = hashlib.sha256(), 0
    place = None if target is None else target / member.name
    if place is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
    with open(os.devnull if place is None else place, "wb") as out:  # a device or a path
        while source is not None and (chunk := source.read(_CHUNK_BYTES)):
            found.update(chunk)
            size += len(chunk)
            if place is not None:
                out.write(chunk)
    return found.hexdigest(), size
