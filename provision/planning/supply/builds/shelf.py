"""Keeps the archives of built modules on the controller, so that what nodes have built is not built again.

One folder for each inventory, since nodes of one take modules from nodes of the same alone. Each node's archive is
written under its digest, and counts once the record of its answer names it; both appear whole or not at all. A file
that is not as its record says counts for nothing. Whether an archive may be handed on is judged from all answers
(`provision.planning.supply.builds.proof`), so it stays so from run to run. Everything here may be removed at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from provision.base.errors import os_reason
from provision.base.strict_json import MalformedError, decode
from provision.planning.supply.builds.archive import rewrite_archive
from provision.planning.supply.builds.errors import BuildsError
from provision.planning.supply.builds.model import BuiltModule, GivenBuild, ModuleBuild
from provision.planning.supply.builds.proof import Standing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_BYTES: Final = 4 * 1024 * 1024 * 1024  # of a shelf: a hundred kinds of nodes
_MAX_RECORD_BYTES: Final = 64 * 1024
_STALE_S: Final = 86_400.0  # nobody writes one file for a day
_RECORD, _ARCHIVE, _PARTIAL = ".json", ".tar.gz", ".partial-"
_NODE_LENGTH: Final = 16
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class Shelf:
    """The archives in a folder, which is made when there is something to keep."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def standing(self, build: ModuleBuild) -> Standing:
        """Return which answers are kept of a build and were not changed since; raises `BuildsError`."""
        if not self._folder.is_dir():
            return Standing(build)
        self._open()
        found = [self._read(path) for path in self._folder.glob(f"{build.key}-*{_RECORD}")]
        answers = [one for one in found if one and one.build == build and self._is_whole(one)]
        return Standing(build, tuple(sorted(answers, key=lambda one: one.node)))

    def find(self, build: ModuleBuild) -> BuiltModule | None:
        """Return what may be handed on of a build, None where that is nothing; raises `BuildsError`."""
        proof = self.standing(build).proof
        if not proof:
            return None
        first, path = proof[0], self._path(proof[0])
        try:
            size = path.stat().st_size
        except OSError:  # somebody has just removed it
            return None
        nodes = tuple(answer.node for answer in proof)
        return BuiltModule(build=build, nodes=nodes, path=path, sha256=first.sha256, size_bytes=size)

    def keep(self, build: ModuleBuild, node: str, given: Path, machine: Sequence[str] = ()) -> GivenBuild:
        """Keep what a node gave as its build, as far as it is that; raises `BuildsError`."""
        self._open()
        with self.partial_folder() as folder:
            written = folder / "archive"
            digest, content = rewrite_archive(given, written, build)
            answer = GivenBuild(build=build, node=node, machine=tuple(machine), sha256=digest, content=content)
            name = hashlib.sha256(node.encode()).hexdigest()[:_NODE_LENGTH]
            try:
                _sync(written)
                written.replace(self._path(answer))
                record = folder / "record"
                record.write_bytes(msgspec.json.encode(answer))
                _sync(record)
                record.replace(self._folder / f"{build.key}-{name}{_RECORD}")
            except OSError as error:
                raise _unusable(self._folder, error) from error
        return answer

    def _path(self, answer: GivenBuild) -> Path:
        return self._folder / f"{answer.sha256}{_ARCHIVE}"

    def _is_whole(self, answer: GivenBuild) -> bool:
        try:
            with self._path(answer).open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest() == answer.sha256
        except OSError:
            return False

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
                left -= archive.stat().st_size if archive not in kept and archive.exists() else 0
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

    def _read(self, path: Path) -> GivenBuild | None:
        try:
            with path.open("rb") as stream:
                return decode(stream.read(_MAX_RECORD_BYTES + 1), GivenBuild, limit_bytes=_MAX_RECORD_BYTES)
        except (OSError, MalformedError):
            return None


def _sync(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def _unusable(folder: Path, error: OSError) -> BuildsError:
    reason = os_reason(error)
    return BuildsError(
        f"built modules cannot be kept in {error.filename or folder}: {reason}",
        hint="free some space there, or set XDG_CACHE_HOME",
    )
