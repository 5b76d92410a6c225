"""Makes a bundle's contents of sets that nodes have staged or collected, of built modules, and of whole folders.

Sets come from nodes, which may say anything: what is in one is taken by its own list, and links are refused.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from provision.base.strict_json import MalformedError, decode
from provision.planning.driver_change import DriverChange
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.bundle.model import (
    BundledEngine,
    BundledModule,
    BundledPackage,
    BundleList,
    Digest,
    Driver,
    Name,
    Place,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from provision.planning.supply.bundle.model import Flavour
    from provision.planning.supply.bundle.module_archive import BuiltModules

T = TypeVar("T")

_MAX_CHANGE_BYTES = 1024 * 1024
_MAX_SEAL_BYTES = 1024 * 1024
_MAX_HEADERS_BYTES = 4 * 1024 * 1024
_BYTECODE = "__pycache__"
_ARCHIVE = ".tar.gz"
_OLD = "it was staged by an older grapnel-driver: stage again, or use `grapnel bundle create --from`"
_HINT = "copy the folder of the staged set from the node again, with everything in it"


@dataclass(frozen=True)
class StagedSet:
    """A staged set, and the distribution of the node that staged it, such as ``debian-13``."""

    distribution: str
    folder: Path


class _Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a package file of a set says of itself."""

    file: Place
    name: Name
    version: Name
    source: Name
    depends: Annotated[tuple[Name, ...], msgspec.Meta(max_length=512)] = ()


@dataclass
class Contents:
    """What goes into a bundle: files by their places, and what they are for."""

    sources: dict[str, Path] = field(default_factory=dict)
    drivers: list[Driver] = field(default_factory=list)
    engines: list[BundledEngine] = field(default_factory=list)

    def add_set(self, staged: StagedSet) -> None:
        """Add a staged set, after checking it against its own seal; raises `BundleError`."""
        sealed, change = _open(staged)
        packages = self._packages(staged, sealed, "drivers")
        names = sorted(place for place in sealed if place.startswith("modules/"))
        modules = tuple(self._module(staged, change, place) for place in names)
        self.drivers.append(
            Driver(
                distribution=staged.distribution,
                version=change.version,
                flavour=change.flavour,
                packages=packages,
                modules=modules,
            )
        )

    def add_engine(self, staged: StagedSet, package: str) -> None:
        """Add what was collected of an engine, which is this package of the set; raises `BundleError`."""
        sealed, change = _open(staged)
        packages = self._packages(staged, sealed, "engines")
        version = next((one.version for one in change.packages if one.name == package), None)
        if version is None or not any((one.name, one.version) == (package, version) for one in packages):
            raise BundleError(f"{staged.folder} has no {package}", hint=_HINT)
        engine = BundledEngine(distribution=staged.distribution, package=package, version=version, packages=packages)
        self.engines.append(engine)

    def add_modules(self, distribution: str, built: BuiltModules) -> None:
        """Add built modules to the driver that they belong to; raises `BundleError` for modules without one."""
        key = (distribution, built.version, built.flavour)
        place = next(
            (index for index, one in enumerate(self.drivers) if (one.distribution, one.version, one.flavour) == key),
            None,
        )
        if place is None:
            raise BundleError(
                f"{built.path} has modules of driver {built.version} ({built.flavour}), which is not in the bundle for "
                f"{distribution}",
                hint=f"collect that driver too: --version {built.version}",
            )
        module = self._add_module(
            distribution, built.path, built.dkms, built.version, flavour=built.flavour, kernel=built.kernel
        )
        known = self.drivers[place]
        kept = tuple(one for one in known.modules if one.place != module.place)
        self.drivers[place] = msgspec.structs.replace(known, modules=(*kept, module))

    def add_files(self, place: str, folder: Path, names: Iterable[str]) -> str:
        """Add files of a folder by their names, and return the place where they are."""
        for name in names:
            self._add(f"{place}/{name}", folder / name)
        return place

    def add_folder(self, place: str, folder: Path) -> str:
        """Add all files of a folder but hidden ones and bytecode, and return the place where they are."""
        for path in sorted(folder.rglob("*")):
            parts = path.relative_to(folder).parts
            if path.is_file() and not any(part == _BYTECODE or part.startswith(".") for part in parts):
                self._add(f"{place}/{path.relative_to(folder).as_posix()}", path)
        return place

    def listing(self, grapnel: str, *, payload: str = "", collection: str = "", keys: str = "") -> BundleList:
        """Return the list without the files, with the places of payload, collection and keys."""
        drivers = tuple(merge(self.drivers))
        engines = {(one.distribution, one.package, one.version): one for one in self.engines}
        return BundleList(
            grapnel=grapnel,
            files=(),
            drivers=drivers,
            engines=tuple(engines[key] for key in sorted(engines)),
            payload=payload,
            collection=collection,
            keys=keys,
        )

    def _packages(self, staged: StagedSet, sealed: Iterable[str], kind: str) -> tuple[BundledPackage, ...]:
        headers = _read(staged.folder / "packages.json", tuple[_Header, ...], _MAX_HEADERS_BYTES)
        described = {f"packages/{one.file}": one for one in headers}
        names = sorted(place for place in sealed if place.startswith("packages/"))
        return tuple(self._package(staged, place, described, kind) for place in names)

    def _package(self, staged: StagedSet, place: str, described: Mapping[str, _Header], kind: str) -> BundledPackage:
        header = described.get(place)
        if header is None:
            raise BundleError(f"{staged.folder}/packages.json does not describe {place}", hint=_HINT)
        target = f"{kind}/{staged.distribution}/{place}"
        self._add(target, staged.folder / place)
        return BundledPackage(
            place=target, name=header.name, version=header.version, source=header.source, depends=header.depends
        )

    def _module(self, staged: StagedSet, change: DriverChange, place: str) -> BundledModule:
        kernel = place.removeprefix("modules/").removesuffix(_ARCHIVE)
        if change.dkms is None or change.flavour == "none":
            raise BundleError(f"{staged.folder}/{place} is a module of a change without one", hint=_HINT)
        return self._add_module(
            staged.distribution,
            staged.folder / place,
            change.dkms,
            change.version,
            flavour=change.flavour,
            kernel=kernel,
        )

    def _add_module(
        self, distribution: str, source: Path, dkms: str, version: str, *, flavour: Flavour, kernel: str
    ) -> BundledModule:
        place = f"drivers/{distribution}/modules/{flavour}/{dkms}-{version}/{kernel}{_ARCHIVE}"
        self._add(place, source)
        return BundledModule(place=place, kernel=kernel, dkms=dkms, version=version, flavour=flavour)

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


def _open(staged: StagedSet) -> tuple[dict[str, str], DriverChange]:
    """Return the seal of a set, which it was checked against, and its document."""
    sealed = _read(staged.folder / "complete", dict[Place, Digest], _MAX_SEAL_BYTES)
    change = _read(staged.folder / "change.json", DriverChange, _MAX_CHANGE_BYTES)
    for place, digest in sealed.items():
        _require_sealed(staged.folder, place, digest)
    if "packages.json" not in sealed:
        raise BundleError(f"{staged.folder} does not say what its packages need", hint=_OLD)
    return sealed, change


def _read(path: Path, kind: type[T], limit_bytes: int) -> T:
    try:
        return decode(path.read_bytes(), kind, limit_bytes=limit_bytes)
    except OSError as error:
        raise BundleError(f"{path}: {(error.strerror or str(error)).lower()}", hint=_HINT) from error
    except MalformedError as error:
        raise BundleError(f"{path}: {error}", hint=_HINT) from error


def _require_sealed(folder: Path, place: str, digest: str) -> None:
    path = folder / place
    if path.is_symlink() or not path.resolve().is_relative_to(folder.resolve()):
        raise BundleError(f"{path} is a link", hint=_HINT)
    try:
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise BundleError(f"{path}: {(error.strerror or str(error)).lower()}", hint=_HINT) from error
    if found != digest:
        raise BundleError(f"{path} is not as the node sealed it", hint=_HINT)
