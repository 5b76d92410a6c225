"""Chooses what of a bundle a node needs for its change, and describes it as the node's incoming folder has it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.planning.supply.bundle.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from provision.planning.driver_change import DriverChange
    from provision.planning.supply.bundle.model import BundledEngine, BundledModule, BundledPackage, Driver
    from provision.planning.supply.bundle.read import Bundle

LIST = "list.json"


@dataclass(frozen=True)
class HandedFile:
    """One file for a node: where it lies here, its place below the incoming folder, its digest.

    ``package`` are name and version of a package beside the driver's: a node that has it as new is not sent it.
    """

    source: Path
    place: str
    sha256: str
    package: tuple[str, str] | None = None


@dataclass(frozen=True)
class Handover:
    """The files for one node's change, and the list that goes with them, written last.

    ``is_complete``: the change is staged from them alone, without a network.
    """

    files: tuple[HandedFile, ...]
    is_complete: bool = True

    def list_text(self) -> str:
        """Return the list that the node checks the files by."""
        return json.dumps({file.place: file.sha256 for file in self.files}, indent=1, sort_keys=True) + "\n"


def choose_files(bundle: Bundle, distribution: str, change: DriverChange) -> Handover:
    """Return what a node of a distribution needs for a change; raises `BundleError` that names what is missing."""
    wanted = (change.version, change.flavour)
    drivers = [one for one in bundle.listing.drivers if one.distribution == distribution]
    driver = next((one for one in drivers if (one.version, one.flavour) == wanted), None)
    if driver is None:
        has = ", ".join(sorted(f"{one.version} ({one.flavour})" for one in drivers)) or "none"
        raise BundleError(
            f"the bundle has no driver {change.version} ({change.flavour}) for {distribution}; it has {has}",
            hint=f"make the bundle with it: grapnel bundle create --from NODE --version {change.version}",
        )
    _require_packages(driver, change)
    digests = {file.place: file.sha256 for file in bundle.listing.files}
    files = _package_files(bundle, driver.packages, {one.name for one in change.packages})
    files += [
        HandedFile(bundle.path(one.place), f"modules/{one.kernel}.tar.gz", digests[one.place])
        for one in _modules(driver, change)
    ]
    return Handover(tuple(sorted(files, key=lambda file: file.place)))


def choose_engine_files(bundle: Bundle, engine: BundledEngine, packages: Collection[str]) -> tuple[HandedFile, ...]:
    """Return what a node needs for an engine of which it is to have these packages."""
    return tuple(sorted(_package_files(bundle, engine.packages, packages), key=lambda file: file.place))


def _package_files(bundle: Bundle, packages: Collection[BundledPackage], own: Collection[str]) -> list[HandedFile]:
    digests = {file.place: file.sha256 for file in bundle.listing.files}
    return [
        HandedFile(
            bundle.path(one.place),
            f"packages/{one.place.rsplit('/', 1)[-1]}",
            digests[one.place],
            None if one.name in own else (one.name, one.version),
        )
        for one in packages
    ]


def _require_packages(driver: Driver, change: DriverChange) -> None:
    has = {(one.name, one.version) for one in driver.packages}
    missing = [f"{one.name} {one.version}" for one in change.packages if (one.name, one.version) not in has]
    if missing:
        raise BundleError(
            f"the bundle lacks packages for {driver.distribution}: {', '.join(missing)}",
            hint="make the bundle again, for a node like this one as well: it then has its companions too",
        )


def _modules(driver: Driver, change: DriverChange) -> list[BundledModule]:
    """Return the modules that fit; a kernel without one is built for on the node, if it can."""
    return [one for one in driver.modules if one.dkms == change.dkms and one.kernel in change.kernels]
