"""The closure is what apt itself installs.

`data/available-*.json` are the packages that apt knew on real systems: Debian 12, and Debian 13 with Debian 12's
sources beside its own at priority -1. `data/apt-simulation-trixie.json` is what `apt-get -s install` of apt 3.0.3 on
the latter then installed of the driver's sources, asked for our closure by name=version: all of it and nothing else,
with and without the pin. `data/apt-simulation-modules.json` is the same with kernel modules, of apt 2.6.1 with Debian
13's lists of November 2026.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from provision.driver.catalogue import DISTRIBUTIONS, packages
from provision.driver.closure import DriverPackages, resolve_driver, upstream_versions
from provision.driver.package_request import PackageRequest
from provision.driver.pins.apt import render_pin
from provision.driver.terms import Flavour
from provision.driver_change import PackageVersion
from provision.fleet.facts import AvailablePackage, InstalledPackage
from provision.node_plan import Problem
from provision.spec.model import Capability, Companion, DriverSource
from tests.provision.samples import DATA, available

if TYPE_CHECKING:
    from collections.abc import Mapping

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


class Simulation(msgspec.Struct):
    """One answer of apt."""

    wanted: str
    capabilities: list[Capability]
    installs: dict[str, str]


SIMULATIONS = msgspec.json.decode(DATA.joinpath("apt-simulation-trixie.json").read_bytes(), type=list[Simulation])


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


@pytest.mark.parametrize("case", SIMULATIONS, ids=lambda case: f"{case.wanted} with {len(case.capabilities)} kinds")
def test_the_closure_is_what_apt_installs(case: Simulation) -> None:
    request = packages(TRIXIE, DriverSource.DISTRIBUTION, case.wanted, Flavour.NONE, case.capabilities)
    assert isinstance(request, PackageRequest)

    found = resolved(case.wanted, roots=list(request.roots))

    assert {package.name: package.version for package in found.packages} == case.installs


class ModuleSimulation(Simulation):
    """One answer of apt with a kernel module."""

    flavour: Flavour


MODULES = msgspec.json.decode(DATA.joinpath("apt-simulation-modules.json").read_bytes(), type=list[ModuleSimulation])


@pytest.mark.parametrize("case", MODULES, ids=lambda case: case.flavour.value)
def test_the_closure_with_a_module_is_what_apt_installs(case: ModuleSimulation) -> None:
    request = packages(TRIXIE, DriverSource.DISTRIBUTION, case.wanted, case.flavour, case.capabilities)
    assert isinstance(request, PackageRequest)

    found = resolve_driver(wanted=case.wanted, request=request, available=available("trixie"), installed={})

    assert isinstance(found, DriverPackages)
    assert {package.name: package.version for package in found.packages} == case.installs


def test_the_minimal_closure_has_exact_versions() -> None:
    found = resolved("550.163.01")

    assert found.packages == tuple(PackageVersion(name, "550.163.01-2") for name in CLOSURE)
    assert found.names == CLOSURE


@pytest.mark.parametrize(
    ("wanted", "version"),
    [("535.309.01", "535.309.01-0+deb12u1"), ("535.261.03", "535.261.03-1"), ("535.261.03-1", "535.261.03-1")],
)
def test_bookworm_has_its_own_versions(wanted: str, version: str) -> None:
    assert resolved(wanted, codename="bookworm").version == version


def package(version: str, *depends: str, source: str = "nvidia-graphics-drivers") -> AvailablePackage:
    return AvailablePackage(version=version, source=source, depends=depends)


def test_the_newest_revision_is_taken() -> None:
    known = {
        "a": (package("1.2-9", "b"), package("1.2-10~bpo1", "b"), package("1.2-10", "b")),
        "b": (package("1.2-9"), package("1.2-10~bpo1"), package("1.2-10")),
    }

    assert resolved("1.2", roots=["a"], known=known).version == "1.2-10"


def test_a_revision_that_is_not_complete_is_passed_over() -> None:
    known = {"a": (package("1.2-9", "b"), package("1.2-10", "b")), "b": (package("1.2-9"),)}

    assert resolved("1.2", roots=["a"], known=known).version == "1.2-9"


def test_a_driver_that_is_not_complete_is_a_problem() -> None:
    known = {"a": (package("1.2-1", "b"),), "b": (package("1.1-1"),)}

    found = resolve("1.2", roots=["a"], known=known)

    assert isinstance(found, Problem)
    assert found.message.endswith("no b at 1.2-1")


def test_a_driver_without_the_module_of_that_flavour_names_the_versions_that_have_it() -> None:
    members = debian_request().members
    request = PackageRequest(roots=("a",), module_roots=("a-open",), members=members, scheme=TRIXIE.scheme)
    known = {"a": (package("1.2-1"), package("1.3-1"), package("1.4-1")), "a-open": (package("1.3-1"),)}

    found = resolve_driver(wanted="1.2", request=request, available=known, installed={})

    assert isinstance(found, Problem)
    assert found.message == "driver 1.2 has no a-open in the node's package sources, which there is for 1.3"
    assert "declare another driver.kernelModule or driver version" in found.hint


def test_other_sources_packages_are_apt_s_business() -> None:
    known = {"a": (package("1.2-1", "libc6", "b"),), "b": (package("1.2-1", source="other"),)}

    assert resolved("1.2", roots=["a"], known=known).names == ("a",)


def test_a_rebuilt_binary_belongs_to_its_source_and_the_pin_admits_it() -> None:
    known = {"a": (package("1.2-1+b1", "b"),), "b": (package("1.2-1"),)}

    found = resolved("1.2", roots=["a"], known=known)

    assert found.packages == (PackageVersion("a", "1.2-1+b1"), PackageVersion("b", "1.2-1"))
    assert "Pin: version /^1\\.2-1(\\+b[0-9]+)?$/\n" in render_pin(found, MEMBERS)


def test_circles_end() -> None:
    known = {"a": (package("1-1", "b"),), "b": (package("1-1", "a"),)}

    assert resolved("1", roots=["a"], known=known).names == ("a", "b")


def test_what_is_installed_besides_moves_along_and_what_does_not_exist_goes() -> None:
    extra = InstalledPackage(version="550.163.01-2", source="nvidia-graphics-drivers")
    other = InstalledPackage(version="1", source="glx-alternatives")

    found = resolved(
        "535.309.01",
        installed={"libnvidia-gpucomp": extra, "nvidia-opencl-icd": extra, "glx-alternative-nvidia": other},
    )

    assert found.remove == ("libnvidia-gpucomp",)
    assert set(found.names) == {*CLOSURE, "nvidia-opencl-icd", "nvidia-opencl-common", "libnvidia-nvvm4"}


@pytest.mark.parametrize(
    ("wanted", "nearest"),
    [
        ("550.54.14", "550.163.01, 535.309.01, 535.261.03"),
        ("535.310.02", "535.309.01, 535.261.03, 550.163.01"),
        ("550.163.01-9", "550.163.01, 535.309.01, 535.261.03"),
    ],
)
def test_the_nearest_versions_come_first(wanted: str, nearest: str) -> None:
    found = resolve(wanted)

    assert isinstance(found, Problem)
    assert found.message == f"driver {wanted} is in no package source of the node; nearest: {nearest}"


def test_the_pin_covers_whole_sources() -> None:
    assert render_pin(resolved("535.309.01"), MEMBERS) == (
        "# managed by grapnel: the next apply puts back what is changed here\n"
        f"# packages: {' '.join(CLOSURE)}\n"
        "\n"
        "Package: src:nvidia-graphics-drivers src:nvidia-open-gpu-kernel-modules\n"
        "Pin: version 535.309.01-0+deb12u1\n"
        "Pin-Priority: 1001\n"
    )


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


def test_a_node_can_have_what_all_that_is_asked_for_exists_at() -> None:
    request = debian_request("libcuda1", "nvidia-smi")

    assert upstream_versions(request, available("trixie")) == {"550.163.01", "535.309.01", "535.261.03"}
    assert upstream_versions(debian_request("libcuda1", "nothing"), available("trixie")) == set()


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


def test_a_hostile_list_of_packages_is_resolved_too() -> None:
    """Each needs the next one and all are installed: walking the chain from each of them would take a minute."""
    names = [f"p{number}" for number in range(3000)]
    known = {name: (package("1-1", following),) for name, following in zip(names, [*names[1:], names[0]], strict=True)}
    installed = {name: InstalledPackage(version="0-1", source="nvidia-graphics-drivers") for name in names}

    found = resolved("1", roots=["p0"], known=known, installed=installed)

    assert len(found.packages) == len(names)
