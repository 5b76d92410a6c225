"""Keeps the packages that were made of runfiles on the controller, so that each file is converted once.

One folder for each file, by its digest and by how packages are made; it appears when it is whole, and what is in it is
checked against its record before it is used. A conversion that was killed leaves a folder that counts for nothing and
is removed by the next one. Everything here may be removed at any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from provision.base.strict_json import MalformedError, decode
from provision.planning.driver.packages.distributions.runfile import MODULES, REVISION
from provision.planning.supply.runfile import manifest as manifests
from provision.planning.supply.runfile.archive import unpack, unusable
from provision.planning.supply.runfile.deb import write_deb
from provision.planning.supply.runfile.errors import RunfileError
from provision.planning.supply.runfile.fetch import download, open_url
from provision.planning.supply.runfile.layout import lay_out
from provision.planning.supply.runfile.packages import describe_packages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import Runfile
    from provision.planning.driver.terms import Flavour
    from provision.planning.supply.runfile.fetch import Opener

KEPT: Final = 8  # conversions; the one that was used longest ago goes first
_RECORD, _PARTIAL, _LOCK = "packages.json", ".partial-", ".lock"
_MAX_RECORD_BYTES: Final = 64 * 1024
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class MadePackage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One package file, by its name in the folder."""

    file: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][A-Za-z0-9.+_-]{0,200}\.deb$")]
    name: str
    version: str
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: Literal["grapnel.dev/runfile-packages/v1alpha1"] = "grapnel.dev/runfile-packages/v1alpha1"
    sha256: str
    description: str
    driver_version: str
    packages: tuple[MadePackage, ...]


@dataclass(frozen=True)
class Converted:
    """The packages of one runfile, checked, and the driver that it is."""

    folder: Path
    description: str
    driver_version: str
    packages: tuple[MadePackage, ...]

    @property
    def flavours(self) -> frozenset[Flavour]:
        """The flavours of the kernel module that the file has."""
        names = {each.name for each in self.packages}
        return frozenset(flavour for flavour, name in MODULES.items() if name in names)

    @property
    def architecture(self) -> str:
        """The architecture that the file is for, in the kernel's words: its description ends with it."""
        return self.description.rpartition("-")[2]

    def path(self, package: MadePackage) -> Path:
        """Return where a package file lies."""
        return self.folder / package.file


class RunfileStore:
    """The conversions in a folder, which is made when there is something to keep; ``opened`` opens a URL."""

    def __init__(self, folder: Path, opened: Opener = open_url) -> None:
        self._folder, self._opened = folder, opened

    def convert(self, declared: Runfile) -> Converted:
        """Return the packages of a declared runfile, made if they are not there yet; raises `RunfileError`."""
        name = f"{declared.sha256}-{REVISION}"
        with self._alone():
            found = self._find(name)
            if found is None:
                self._make(declared, self._folder / name)
                self._prune(name)
                found = self._find(name)
            if found is None:
                raise RunfileError(f"{self._folder / name} is not as it was just written", hint="see the disk")
            os.utime(found.folder)
            return found

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock of conversions, which the kernel lets go of when the process is killed."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            status = self._folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                raise RunfileError(
                    f"{self._folder} is a link, or belongs to somebody else", hint="remove it, or set XDG_CACHE_HOME"
                )
            if status.st_mode & _OTHERS:
                self._folder.chmod(0o700)  # what is in it is installed on nodes, so nobody else may have a hand in it
            lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise unusable(self._folder, error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left in self._folder.glob(f"{_PARTIAL}*"):  # of a run that was killed: nobody else is here
                shutil.rmtree(left, ignore_errors=True)
            yield
        finally:
            os.close(lock)

    def _find(self, name: str) -> Converted | None:
        """Return a conversion as it was written, or None or its files have changed."""
        folder = self._folder / name
        try:
            with (folder / _RECORD).open("rb") as stream:
                record = decode(stream.read(_MAX_RECORD_BYTES + 1), _Record, limit_bytes=_MAX_RECORD_BYTES)
            for package in record.packages:
                if _digest(folder / package.file) != package.sha256:
                    return None
        except (OSError, MalformedError):
            return None
        return Converted(folder, record.description, record.driver_version, record.packages)

    def _make(self, declared: Runfile, target: Path) -> None:
        try:
            partial = Path(tempfile.mkdtemp(dir=self._folder, prefix=_PARTIAL))
            try:
                source = Path(declared.path) if declared.path is not None else None
                if source is None:
                    source = download(str(declared.url), declared.sha256, partial, self._opened)
                _convert(source, declared.sha256, partial)
                shutil.rmtree(target, ignore_errors=True)
                (partial / "packages").rename(target)
                _sync(self._folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        except OSError as error:
            raise unusable(self._folder, error) from error

    def _prune(self, name: str) -> None:
        """Remove what was used longest ago; one that is used now is the newest."""
        with contextlib.suppress(OSError):
            kept = [path for path in self._folder.iterdir() if path.is_dir() and path.name != name]
            for path in sorted(kept, key=lambda one: one.stat().st_mtime, reverse=True)[KEPT - 1 :]:
                shutil.rmtree(path, ignore_errors=True)


def _convert(source: Path, sha256: str, folder: Path) -> None:
    """Make the packages of a runfile, with their record, in the folder ``packages`` below another one."""
    unpacked, made = folder / "unpacked", folder / "packages"
    unpacked.mkdir()
    made.mkdir()
    unpack(source, sha256, unpacked)
    manifest, time_s = read_manifest(source, unpacked)
    layout = lay_out(manifest, sha256)
    written = []
    for package in describe_packages(manifest, layout, sha256, unpacked):
        place = made / package.name
        write_deb(package, place, time_s)
        _sync(place)
        written.append(
            MadePackage(
                file=package.name,
                name=package.fields["Package"],
                version=package.fields["Version"],
                sha256=_digest(place),
            )
        )
    record = _Record(
        sha256=sha256,
        description=manifest.description,
        driver_version=manifest.version,
        packages=tuple(written),
    )
    place = made / _RECORD
    place.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
    _sync(place)


def read_manifest(source: Path, unpacked: Path) -> tuple[manifests.Manifest, int]:
    """Return the manifest of an unpacked runfile, and its time, which that of its packages is."""
    place = unpacked / manifests.NAME
    try:
        with place.open("rb") as stream:
            data = stream.read(manifests.MAX_BYTES + 1)
            time_s = int(os.fstat(stream.fileno()).st_mtime)
        text = data.decode("ascii")
    except FileNotFoundError:
        raise RunfileError(
            f"{source} has no manifest: it is not NVIDIA's installer of a driver", hint="name NVIDIA-Linux-….run itself"
        ) from None
    except UnicodeDecodeError as error:
        raise RunfileError(f"{source}: its manifest is no plain text", hint="take the file again") from error
    if len(data) > manifests.MAX_BYTES:
        raise RunfileError(f"{source}: its manifest is larger than {manifests.MAX_BYTES} bytes", hint="take it again")
    return manifests.parse_manifest(text), time_s


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
