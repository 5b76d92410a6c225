"""Writes a bundle: a deterministic archive, whose list stands at its beginning.

Files are read twice, for the list and for the archive; one that changed in between is an error, and nothing is left.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from provision.base import decoding
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.bundle.model import BundledFile, BundleList
from provision.planning.supply.bundle.signature import sign, signature_beside
from provision.planning.supply.payload.archive import write_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

LIST = "list.json"
_CHUNK_BYTES = 1024 * 1024
_MODE = 0o644


def write_bundle(
    target: Path, sources: Mapping[str, Path], described: BundleList, key: Path | None = None
) -> BundleList:
    """Write files, by their places in the bundle, and return its list; ``described`` is the list without the files.

    With a key the signature is written beside it; without one, that of a former bundle goes.
    Raises `BundleError`; a bundle that was there before is then as it was.
    """
    try:
        files = tuple(_listed(place, source) for place, source in sorted(sources.items()))
        listing = decoding.convert(
            {**msgspec.to_builtins(described), "files": msgspec.to_builtins(files)}, BundleList
        )  # converted, so that what is written has the form that is read
        handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
        try:
            with os.fdopen(handle, "w+b") as stream:
                _write(stream, sources, listing)
                stream.flush()
                os.fsync(stream.fileno())
                signature = None if key is None else sign(stream, key)
            Path(partial).chmod(_MODE)
            signature_beside(target).unlink(missing_ok=True)
            Path(partial).replace(target)
            if signature is not None:
                write_file(signature_beside(target), signature)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BundleError(f"{error.filename or target}: {reason}", hint="nothing was written") from error
    except msgspec.ValidationError as error:
        raise BundleError(f"the bundle cannot be listed: {error}", hint="rename the file that it names") from error
    return listing


def _listed(place: str, source: Path) -> BundledFile:
    with source.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return BundledFile(place=place, sha256=digest, size_bytes=stream.tell())


def _write(stream: BinaryIO, sources: Mapping[str, Path], listing: BundleList) -> None:
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        text = msgspec.json.format(msgspec.json.encode(listing, order="deterministic"), indent=1) + b"\n"
        tar.addfile(_header(LIST, len(text)), io.BytesIO(text))
        for file in listing.files:
            with sources[file.place].open("rb") as source:
                checked = _Checked(source)
                tar.addfile(_header(file.place, file.size_bytes), cast("BinaryIO", checked))
            if checked.digest != file.sha256:
                raise BundleError(
                    f"{sources[file.place]} changed while it was read", hint="wait until nobody writes to it"
                )


class _Checked:
    """A stream that keeps the digest of what was read from it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._found = stream, hashlib.sha256()

    def read(self, size: int = _CHUNK_BYTES) -> bytes:
        data = self._stream.read(size)
        self._found.update(data)
        return data

    @property
    def digest(self) -> str:
        return self._found.hexdigest()


def _header(name: str, size_bytes: int) -> tarfile.TarInfo:
    """Return a header that is the same wherever and whenever it is written."""
    header = tarfile.TarInfo(name)
    header.size, header.mode = size_bytes, _MODE
    header.uname = header.gname = "root"
    return header
