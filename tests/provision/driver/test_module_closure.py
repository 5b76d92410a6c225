"""The closure with packages that have versions of their own: modules, companions, another branch's."""

from __future__ import annotations

import pytest

from provision.declaration.fleet.facts.node import InstalledPackage
from provision.declaration.spec.model import Capability, Companion, DriverSource
from provision.planning.driver.packages.catalogue import DISTRIBUTIONS, packages
from provision.planning.driver.packages.closure import DriverPackages, resolve_driver
from provision.planning.driver.packages.package_request import PackageRequest
from provision.planning.driver.terms import Flavour
from provision.planning.driver_change import PackageVersion
from provision.planning.node_plan import Problem
from tests.provision.driver.closures import MEMBERS, TRIXIE, debian_request, package
from tests.provision.samples import available


def test_a_driver_without_the_module_of_that_flavour_names_the_versions_that_have_it() -> None:
    members = debian_request().members
    request = PackageRequest(roots=("a",), module_roots=("a-open",), members=members, scheme=TRIXIE.scheme)
    known = {"a": (package("1.2-1"), package("1.3-1"), package("1.4-1")), "a-open": (package("1.3-1"),)}

    found = resolve_driver(wanted="1.2", request=request, available=known, installed={})

    assert isinstance(found, Problem)
    assert found.message == "driver 1.2 has no a-open in the node's package sources, which there is for 1.3"
    assert "declare another driver.kernelModule or driver version" in found.hint


def test_the_open_module_has_its_own_revision_and_the_driver_s_version() -> None:
    request = packages(
        TRIXIE, DriverSource.DISTRIBUTION, "550.163.01", Flavour.OPEN, [Capability.COMPUTE], [Companion.PERSISTENCED]
    )
    assert isinstance(request, PackageRequest)
    known = dict(available("trixie")) | {
        "nvidia-open-kernel-dkms": (
            package("550.163.01-3", "firmware-nvidia-gsp", source="nvidia-open-gpu-kernel-modules"),
        ),
        "nvidia-persistenced": (
            package("535.171.04-1~deb12u1", source="nvidia-persistenced"),
            package("550.163.01-1", source="nvidia-persistenced"),
        ),
    }

    found = resolve_driver(wanted="550.163.01", request=request, available=known, installed={})

    assert isinstance(found, DriverPackages)
    versions = {each.name: each.version for each in found.packages}
    assert versions["nvidia-open-kernel-dkms"] == "550.163.01-3"
    assert versions["firmware-nvidia-gsp"] == "550.163.01-2"
    assert versions["nvidia-persistenced"] == "550.163.01-1"


@pytest.mark.parametrize(
    ("versions", "taken"),
    [
        (("535.171.04-1", "535.99.01-1", "550.163.01-1"), "535.171.04-1"),
        (("470.1-1", "525.1-1"), "525.1-1"),
        (("535.309.01-1", "535.171.04-9"), "535.309.01-1"),
    ],
    ids=["the newest of the branch", "else the newest", "the same version first"],
)
def test_a_package_of_a_version_line_of_its_own_is_the_nearest(versions: tuple[str, ...], taken: str) -> None:
    request = PackageRequest(roots=("a",), members=MEMBERS, scheme=TRIXIE.scheme, loose=("persistenced",))
    known = {
        "a": (package("535.309.01-1"),),
        "persistenced": tuple(package(each, source="persistenced") for each in versions),
    }

    found = resolve_driver(wanted="535.309.01", request=request, available=known, installed={})

    assert isinstance(found, DriverPackages)
    assert PackageVersion("persistenced", taken) in found.packages


def test_another_branch_s_packages_go() -> None:
    """Ubuntu's branches have names of their own, and conflict with each other."""
    noble = next(each for each in DISTRIBUTIONS if each.codename == "noble")
    request = packages(
        noble,
        DriverSource.CANONICAL,
        "580.178.04",
        Flavour.OPEN,
        [Capability.COMPUTE],
        kernels=["6.8.0-139-generic"],
    )
    assert isinstance(request, PackageRequest)
    version, source = "580.178.04-0ubuntu0.24.04.1", "nvidia-graphics-drivers-580-server"
    known = {name: (package(version, source=source),) for name in (*request.roots, *request.module_roots)} | {
        name: (package("6.8.0-139.139+1", source="linux-restricted-modules"),) for name in request.loose
    }
    old = InstalledPackage(version="570.211.01-0ubuntu0.24.04.1", source="nvidia-graphics-drivers-570-server")
    module = InstalledPackage(version="6.8.0-139.139", source="linux-restricted-modules")
    installed = {
        "libnvidia-compute-570-server": old,
        "linux-modules-nvidia-570-server-open-6.8.0-139-generic": module,
        "linux-modules-nvidia-580-server-open-6.8.0-139-generic": module,
        "nvidia-container-toolkit": InstalledPackage(version="1.18.1-1", source="nvidia-container-toolkit"),
    }

    found = resolve_driver(wanted="580.178.04", request=request, available=known, installed=installed)

    assert isinstance(found, DriverPackages)
    assert found.remove == ("libnvidia-compute-570-server", "linux-modules-nvidia-570-server-open-6.8.0-139-generic")
    assert {each.name: each.version for each in found.packages} == {
        "libnvidia-compute-580-server": version,
        "nvidia-headless-no-dkms-580-server-open": version,
        "linux-modules-nvidia-580-server-open-6.8.0-139-generic": "6.8.0-139.139+1",
        "linux-signatures-nvidia-6.8.0-139-generic": "6.8.0-139.139+1",
    }
