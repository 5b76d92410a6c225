"""Makes a bundle's contents from staged sets: folders that nodes have staged, copied to this machine as they are."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import msgspec

from provision.bundle.errors import BundleError
from provision.bundle.model import BundledModule, BundledPackage, BundleList, Driver
from provision.driver_change import DriverChange
from provision.strict_json import MalformedError, decode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

T = TypeVar("T")

_MAX_CHANGE_BYTES = 1024 * 1024
_MAX_SEAL_BYTES = 1024 * 1024
_ARCHIVE = ".tar.gz"
_HINT = "copy the folder of the staged set from the node again, with everything in it"


@dataclass(frozen=True)
class StagedSet:
    """A staged set, and the distribution of the node that staged it, such as ``debian-13``."""

    distribution: str
    folder: Path


@dataclass
class Contents:
    """What goes into a bundle: files by their places, and what they are for."""

    sources: dict[str, Path] = field(default_factory=dict)
    drivers: list[Driver] = field(default_factory=list)

    def add_set(self, staged: StagedSet) -> None:
        """Add a staged set, after checking it against its own seal; raises `BundleError`."""
        sealed = _read(staged.folder / "complete", dict[str, str], _MAX_SEAL_BYTES)
        change = _read(staged.folder / "change.json", DriverChange, _MAX_CHANGE_BYTES)
        for place, digest in sealed.items():
            _require_sealed(staged.folder, place, digest)
        names = sorted(place for place in sealed if place.startswith(("packages/", "modules/")))
        packages = tuple(self._package(staged, place) for place in names if place.startswith("packages/"))
        modules = tuple(self._module(staged, change, place) for place in names if place.startswith("modules/"))
        self.drivers.append(
            Driver(
                distribution=staged.distribution,
                version=change.version,
                flavour=change.flavour,
                packages=packages,
                modules=modules,
            )
        )

    def add_folder(self, place: str, folder: Path) -> str:
        """Add all files of a folder, such as the payload's, and return the place where they are."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self._add(f"{place}/{path.relative_to(folder).as_posix()}", path)
        return place

    def listing(self, grapnel: str, *, payload: str = "", collection: str = "", keys: str = "") -> BundleList:
        """Return the list without the files, with the places of payload, collection and keys."""
        drivers = tuple(merge(self.drivers))
        return BundleList(grapnel=grapnel, files=(), drivers=drivers, payload=payload, collection=collection, keys=keys)

    def _package(self, staged: StagedSet, place: str) -> BundledPackage:
        file = place.removeprefix("packages/")
        name, version = split_package_file(file)
        target = f"drivers/{staged.distribution}/packages/{file}"
        self._add(target, staged.folder / place)
        return BundledPackage(place=target, name=name, version=version)

    def _module(self, staged: StagedSet, change: DriverChange, place: str) -> BundledModule:
        kernel = place.removeprefix("modules/").removesuffix(_ARCHIVE)
        if change.dkms is None or change.flavour == "none":
            raise BundleError(f"{staged.folder}/{place} is a module of a change without one", hint=_HINT)
        folder = f"drivers/{staged.distribution}/modules/{change.dkms}-{change.version}"
        self._add(f"{folder}/{kernel}{_ARCHIVE}", staged.folder / place)
        return BundledModule(
            place=f"{folder}/{kernel}{_ARCHIVE}",
            kernel=kernel,
            dkms=change.dkms,
            version=change.version,
            flavour=change.flavour,
        )

    def _add(self, place: str, source: Path) -> None:
        known = self.sources.setdefault(place, source)
        if known != source and known.read_bytes() != source.read_bytes():
            raise BundleError(f"{known} and {source} differ and have one place in the bundle", hint="leave one out")


def merge(drivers: Iterable[Driver]) -> list[Driver]:
    """Put what several nodes staged for the same driver of the same distribution together."""
    merged: dict[tuple[str, str, str], Driver] = {}
    for driver in drivers:
        key = (driver.distribution, driver.version, driver.flavour)
        known = merged.get(key)
        if known is not None:
            packages = {one.place: one for one in (*known.packages, *driver.packages)}
            modules = {one.place: one for one in (*known.modules, *driver.modules)}
            driver = msgspec.structs.replace(  # noqa: PLW2901 - the same driver, with more of it
                driver,
                packages=tuple(packages[place] for place in sorted(packages)),
                modules=tuple(modules[place] for place in sorted(modules)),
            )
        merged[key] = driver
    return [merged[key] for key in sorted(merged)]


def split_package_file(file: str) -> tuple[str, str]:
    """Return name and version in the file name of a package: apt's ``name_version_arch.deb``, or an RPM's.

    An RPM's file name has no epoch; a version from it is compared without.
    """
    stem, dot, kind = file.rpartition(".")
    if dot and kind == "deb" and stem.count("_") == 2:  # noqa: PLR2004 - name, version, architecture
        name, version, _ = stem.split("_")
        return name, version.replace("%3a", ":")
    if dot and kind == "rpm":
        name_version = stem.rpartition(".")[0].rsplit("-", 2)
        if len(name_version) == 3:  # noqa: PLR2004 - name, version, release
            return name_version[0], "-".join(name_version[1:])
    raise BundleError(f"{file} is not the file name of a package", hint=_HINT)


def _read(path: Path, kind: type[T], limit_bytes: int) -> T:
    try:
        return decode(path.read_bytes(), kind, limit_bytes=limit_bytes)
    except OSError as error:
        raise BundleError(f"{path}: {(error.strerror or str(error)).lower()}", hint=_HINT) from error
    except MalformedError as error:
        raise BundleError(f"{path}: {error}", hint=_HINT) from error


def _require_sealed(folder: Path, place: str, digest: str) -> None:
    path = folder / place
    try:
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise BundleError(f"{path}: {(error.strerror or str(error)).lower()}", hint=_HINT) from error
    if found != digest:
        raise BundleError(f"{path} is not as the node sealed it", hint=_HINT)
