"""Keeps the archives of built modules on the controller, so that what one node has built is not built again.

One folder for each inventory, since nodes of one take modules from nodes of the same alone. An archive is written under
its digest, and counts once the record of its build names it; both appear whole or not at all. A file that is not as its
record says is built again. Everything here may be removed at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from provision.builds.archive import rewrite_archive
from provision.builds.errors import BuildsError
from provision.builds.model import BuiltModule, ModuleBuild
from provision.strict_json import MalformedError, decode

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES: Final = 4 * 1024 * 1024 * 1024  # of a shelf: a hundred kinds of nodes
_MAX_RECORD_BYTES: Final = 64 * 1024
_STALE_S: Final = 86_400.0  # nobody writes one file for a day
_RECORD, _ARCHIVE, _PARTIAL = ".json", ".tar.gz", ".partial-"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: Literal["grapnel.dev/built-module/v1alpha1"] = "grapnel.dev/built-module/v1alpha1"
    build: ModuleBuild
    node: str
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Shelf:
    """The archives in a folder, which is made when there is something to keep."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, build: ModuleBuild) -> BuiltModule | None:
        """Return what is kept of a build, None where that is nothing, or was changed since; raises `BuildsError`."""
        if not self._folder.is_dir():
            return None
        self._open()
        record = self._read(self._folder / f"{build.key}{_RECORD}")
        if record is None or record.build != build:
            return None
        path = self._folder / f"{record.sha256}{_ARCHIVE}"
        try:
            with path.open("rb") as stream:
                if hashlib.file_digest(stream, "sha256").hexdigest() != record.sha256:
                    return None
                size = stream.tell()
        except OSError:
            return None
        return BuiltModule(build=build, node=record.node, path=path, sha256=record.sha256, size_bytes=size)

    def keep(self, build: ModuleBuild, node: str, given: Path) -> BuiltModule:
        """Keep what a node gave as its build, as far as it is that; raises `BuildsError`."""
        self._open()
        with self.partial_folder() as folder:
            written = folder / "archive"
            digest = rewrite_archive(given, written, build)
            path = self._folder / f"{digest}{_ARCHIVE}"
            size = written.stat().st_size
            try:
                _sync(written)
                written.replace(path)
                record = folder / "record"
                record.write_bytes(msgspec.json.encode(_Record(build=build, node=node, sha256=digest)))
                _sync(record)
                record.replace(self._folder / f"{build.key}{_RECORD}")
            except OSError as error:
                raise _unusable(self._folder, error) from error
        return BuiltModule(build=build, node=node, path=path, sha256=digest, size_bytes=size)

    @contextlib.contextmanager
    def partial_folder(self) -> Iterator[Path]:
        """Give a folder for what is on its way, which is gone afterwards; raises `BuildsError`."""
        self._open()
        try:
            folder = Path(tempfile.mkdtemp(dir=self._folder, prefix=_PARTIAL))
        except OSError as error:
            raise _unusable(self._folder, error) from error
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def prune(self, now: float, limit_bytes: int = MAX_BYTES) -> None:
        """Remove what killed runs have left, archives without a record, and the oldest beyond ``limit_bytes``."""
        with contextlib.suppress(OSError):  # what another run removes meanwhile is gone as well
            for path in self._folder.glob(f"{_PARTIAL}*"):
                if path.stat().st_mtime < now - _STALE_S:
                    shutil.rmtree(path, ignore_errors=True)
            left = limit_bytes
            kept = set()
            for path in sorted(self._folder.glob(f"*{_RECORD}"), key=lambda one: one.stat().st_mtime, reverse=True):
                record = self._read(path)
                archive = self._folder / f"{record.sha256}{_ARCHIVE}" if record else path
                left -= archive.stat().st_size if archive.exists() else 0
                if record is None or left < 0:
                    path.unlink(missing_ok=True)
                else:
                    kept.add(archive)
            for path in self._folder.glob(f"*{_ARCHIVE}"):
                if path not in kept and path.stat().st_mtime < now - _STALE_S:
                    path.unlink(missing_ok=True)

    def _open(self) -> None:
        """Make the folder; what is in it runs in kernels, so nobody else may have a hand in it."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            status = self._folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                raise BuildsError(
                    f"{self._folder} is a link, or belongs to somebody else", hint="remove it, or set XDG_CACHE_HOME"
                )
            if status.st_mode & _OTHERS:
                self._folder.chmod(0o700)
        except OSError as error:
            raise _unusable(self._folder, error) from error

    def _read(self, path: Path) -> _Record | None:
        try:
            with path.open("rb") as stream:
                return decode(stream.read(_MAX_RECORD_BYTES + 1), _Record, limit_bytes=_MAX_RECORD_BYTES)
        except (OSError, MalformedError):
            return None


def _sync(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def _unusable(folder: Path, error: OSError) -> BuildsError:
    reason = (error.strerror or str(error)).lower()
    return BuildsError(
        f"built modules cannot be kept in {error.filename or folder}: {reason}",
        hint="free some space there, or set XDG_CACHE_HOME",
    )
