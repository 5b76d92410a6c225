"""The closure of a driver in rpm packages: many sources, epochs, streams, and names that only sound like the driver."""

from __future__ import annotations

import pytest

from provision.declaration.fleet.facts.node import AvailablePackage, InstalledPackage
from provision.declaration.spec.model import Capability, Companion, DriverSource
from provision.planning.driver.packages.catalogue import DISTRIBUTIONS, packages
from provision.planning.driver.packages.closure import DriverPackages, resolve_driver
from provision.planning.driver.packages.package_request import PackageRequest
from provision.planning.driver.terms import Flavour
from provision.planning.node_plan import Problem


def rpm(version: str, *depends: str, stream: str | None = None) -> AvailablePackage:
    return AvailablePackage(version=version, source="-", depends=depends, module_stream=stream)


# Names and versions of Amazon Linux 2023.10.20260120's release notes; what needs what is in nvidia-driver.spec.
AMAZON = {
    "kmod-nvidia-open-dkms": (rpm("3:580.126.09-1.amzn2023", "nvidia-kmod-common", "dkms"),),
    "libnvidia-cfg": (rpm("3:580.126.09-1.amzn2023"),),
    "libnvidia-ml": (rpm("3:580.126.09-1.amzn2023"), rpm("3:570.172.08-1.amzn2023")),
    "libnvidia-nscq": (rpm("580.126.09-1"),),
    "nvidia-container-toolkit": (rpm("1.18.1-1"),),
    "nvidia-driver-cuda": (
        rpm("3:580.126.09-1.amzn2023", "nvidia-driver-cuda-libs", "nvidia-kmod-common", "nvidia-persistenced"),
        rpm("3:570.172.08-1.amzn2023", "nvidia-driver-cuda-libs", "nvidia-kmod-common", "nvidia-persistenced"),
    ),
    "nvidia-driver-cuda-libs": (rpm("3:580.126.09-1.amzn2023", "libnvidia-ml", "libnvidia-cfg"),),
    "nvidia-kmod-common": (rpm("3:580.126.09-1.amzn2023", "dracut"),),
    "nvidia-persistenced": (rpm("3:580.126.09-1.amzn2023"),),
}


def amazon(
    wanted: str, *companions: Companion, flavour: Flavour = Flavour.OPEN, **changes: object
) -> DriverPackages | Problem:
    request = packages(
        next(each for each in DISTRIBUTIONS if each.id == "amzn"),
        DriverSource.NVIDIA,
        wanted,
        flavour,
        [Capability.COMPUTE, Capability.UTILITY],
        companions,
    )
    assert isinstance(request, PackageRequest)
    found = {"available": AMAZON, "installed": {}} | changes
    return resolve_driver(wanted=wanted, request=request, **found)  # type: ignore[arg-type]  # passed through


@pytest.mark.parametrize("wanted", ["580.126.09", "580"])
def test_packages_of_many_sources_are_one_driver(wanted: str) -> None:
    found = amazon(wanted, Companion.NSCQ)

    assert isinstance(found, DriverPackages)
    assert found.version == "580.126.09"
    assert {each.name: each.version for each in found.packages} == {
        name: "3:580.126.09-1.amzn2023" for name in AMAZON if name not in {"libnvidia-nscq", "nvidia-container-toolkit"}
    } | {"libnvidia-nscq": "580.126.09-1"}


def test_a_repository_without_some_package_of_a_driver_is_incomplete() -> None:
    found = amazon("570.172.08")

    assert isinstance(found, Problem)
    assert found.message == (
        "driver 570.172.08 is not complete in the node's package sources: no nvidia-driver-cuda-libs at 570.172.08"
    )


def test_what_only_sounds_like_the_driver_stays() -> None:
    installed = {
        "nvidia-container-toolkit": InstalledPackage(version="1.18.1-1", source="-"),
        "nvidia-imex-570": InstalledPackage(version="570.211.01-1", source="-"),
    }

    found = amazon("580.126.09", installed=installed)

    assert isinstance(found, DriverPackages)
    assert found.remove == ("nvidia-imex-570",)


PRECOMPILED = "kmod-nvidia-580.126.09-6.12.0-124.20.1"


@pytest.mark.parametrize(
    ("flavour", "removed"),
    [
        (Flavour.OPEN, ("cuda-drivers-580", PRECOMPILED, "kmod-nvidia-latest-dkms")),
        (Flavour.PROPRIETARY, (PRECOMPILED, "kmod-nvidia-open-dkms", "nvidia-open")),
        (Flavour.NONE, ()),
    ],
)
def test_the_other_flavour_s_module_goes_with_its_metapackage(flavour: Flavour, removed: tuple[str, ...]) -> None:
    both = ("cuda-drivers-580", "kmod-nvidia-latest-dkms", "kmod-nvidia-open-dkms", "nvidia-open", PRECOMPILED)
    new, old = "3:580.126.09-1.amzn2023", InstalledPackage(version="3:580.95.05-1.amzn2023", source="-")
    known = AMAZON | {
        "cuda-drivers-580": (rpm(new, "kmod-nvidia-latest-dkms"),),
        "kmod-nvidia-latest-dkms": (rpm(new, "nvidia-kmod-common"),),
        "nvidia-open": (rpm(new, "kmod-nvidia-open-dkms"),),
        PRECOMPILED: (rpm(new),),
    }

    found = amazon("580.126.09", flavour=flavour, available=known, installed=dict.fromkeys(both, old))

    assert isinstance(found, DriverPackages)
    assert found.remove == removed
    assert not set(removed) & set(found.names)


def test_a_package_of_several_streams_is_found_whichever_is_named() -> None:
    streams = {
        name: tuple(
            AvailablePackage(
                version=each.version,
                source=each.source,
                depends=each.depends,
                module_stream="nvidia-driver:580-dkms",
            )
            for each in versions
        )
        for name, versions in AMAZON.items()
    }

    assert amazon("580.126.09", available=streams) == amazon("580.126.09")
