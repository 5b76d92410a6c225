"""The closure is what apt itself installs.

`data/available-*.json` are the packages that apt knew on real systems: Debian 12, and Debian 13 with Debian 12's
sources beside its own at priority -1. `data/apt-simulation-trixie.json` is what `apt-get -s install` of apt 3.0.3 on
the latter then installed of the driver's sources, asked for our closure by name=version: all of it and nothing else,
with and without the pin. `data/apt-simulation-modules.json` is the same with kernel modules, of apt 2.6.1 with Debian
13's lists of November 2026.
"""

from __future__ import annotations

import msgspec
import pytest

from provision.declaration.fleet.facts.node import InstalledPackage
from provision.declaration.spec.model import Capability, DriverSource
from provision.planning.driver.packages.catalogue import packages
from provision.planning.driver.packages.closure import DriverPackages, resolve_driver, upstream_versions
from provision.planning.driver.packages.package_request import PackageRequest
from provision.planning.driver.packages.pins.apt import render_pin
from provision.planning.driver.terms import Flavour
from provision.planning.driver_change import PackageVersion
from provision.planning.node_plan import Problem
from tests.provision.driver.closures import CLOSURE, MEMBERS, TRIXIE, debian_request, package, resolve, resolved
from tests.provision.samples import DATA, available


class Simulation(msgspec.Struct):
    """One answer of apt."""

    wanted: str
    capabilities: list[Capability]
    installs: dict[str, str]


SIMULATIONS = msgspec.json.decode(DATA.joinpath("apt-simulation-trixie.json").read_bytes(), type=list[Simulation])


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


def test_a_node_can_have_what_all_that_is_asked_for_exists_at() -> None:
    request = debian_request("libcuda1", "nvidia-smi")

    assert upstream_versions(request, available("trixie")) == {"550.163.01", "535.309.01", "535.261.03"}
    assert upstream_versions(debian_request("libcuda1", "nothing"), available("trixie")) == set()


def test_a_hostile_list_of_packages_is_resolved_too() -> None:
    """Each needs the next one and all are installed: walking the chain from each of them would take a minute."""
    names = [f"p{number}" for number in range(3000)]
    known = {name: (package("1-1", following),) for name, following in zip(names, [*names[1:], names[0]], strict=True)}
    installed = {name: InstalledPackage(version="0-1", source="nvidia-graphics-drivers") for name in names}

    found = resolved("1", roots=["p0"], known=known, installed=installed)

    assert len(found.packages) == len(names)
