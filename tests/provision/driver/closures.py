"""What tests of the closure ask for, and of which packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.declaration.fleet.facts.node import AvailablePackage, InstalledPackage
from provision.declaration.spec.model import DriverSource
from provision.planning.driver.packages.catalogue import DISTRIBUTIONS
from provision.planning.driver.packages.closure import DriverPackages, resolve_driver
from provision.planning.driver.packages.package_request import PackageRequest
from tests.provision.samples import available

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.planning.node_plan import Problem

TRIXIE = DISTRIBUTIONS[1]
MINIMAL = ["libcuda1", "libnvidia-ml1", "nvidia-smi"]
CLOSURE = (
    "libcuda1",
    "libnvidia-ml1",
    "libnvidia-pkcs11-openssl3",
    "libnvidia-ptxjitcompiler1",
    "nvidia-alternative",
    "nvidia-legacy-check",
    "nvidia-smi",
)


def debian_request(*roots: str) -> PackageRequest:
    members = TRIXIE.offers[DriverSource.DISTRIBUTION](550).members
    return PackageRequest(roots=roots, members=members, scheme=TRIXIE.scheme)


MEMBERS = debian_request().members


def resolve(
    wanted: str,
    *,
    roots: list[str] | None = None,
    codename: str = "trixie",
    known: Mapping[str, tuple[AvailablePackage, ...]] | None = None,
    installed: Mapping[str, InstalledPackage] | None = None,
) -> DriverPackages | Problem:
    return resolve_driver(
        wanted=wanted,
        request=debian_request(*(MINIMAL if roots is None else roots)),
        available=available(codename) if known is None else known,
        installed=installed or {},
    )


def resolved(wanted: str, **changes: object) -> DriverPackages:
    found = resolve(wanted, **changes)  # type: ignore[arg-type]  # passed through as they are
    assert isinstance(found, DriverPackages), found
    return found


def package(version: str, *depends: str, source: str = "nvidia-graphics-drivers") -> AvailablePackage:
    return AvailablePackage(version=version, source=source, depends=depends)
