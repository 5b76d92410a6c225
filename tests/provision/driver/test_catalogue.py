"""What is supported, and how everything else is refused."""

from __future__ import annotations

import pytest

from provision.driver.catalogue import DISTRIBUTIONS, Distribution, find_distribution, root_packages
from provision.fleet.facts import OperatingSystem
from provision.node_plan import Problem
from provision.spec.model import Capability, KernelModule
from tests.provision.samples import available, make_facts, replace

NODE = make_facts().node


@pytest.mark.parametrize(("version_id", "codename"), [("12", "bookworm"), ("13", "trixie")])
def test_debian_s_releases_are_known(version_id: str, codename: str) -> None:
    node = replace(NODE, os=OperatingSystem(id="debian", version_id=version_id, codename=codename))

    found = find_distribution(node)

    assert isinstance(found, Distribution)
    assert found.codename == codename


@pytest.mark.parametrize("system", [("ubuntu", "24.04"), ("rocky", "9.5"), ("debian", "11"), ("debian", "")])
def test_other_systems_are_refused_by_name(system: tuple[str, str]) -> None:
    found = find_distribution(replace(NODE, os=OperatingSystem(id=system[0], version_id=system[1])))

    assert isinstance(found, Problem)
    assert found.code == "unsupported-os"
    assert system[0] in found.message
    assert "debian 13 (trixie)" in found.hint


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda each: each.codename)
def test_every_package_of_the_catalogue_exists(distribution: Distribution) -> None:
    named = {name for names in distribution.packages.values() for name in names}

    assert named <= set(available(distribution.codename))


def test_capabilities_add_up() -> None:
    roots = root_packages(DISTRIBUTIONS[1], KernelModule.NONE, [Capability.UTILITY, Capability.COMPUTE])

    assert roots == ("libcuda1", "libnvidia-ml1", "nvidia-smi")


def test_side_branches_are_another_driver() -> None:
    debian = DISTRIBUTIONS[1]

    assert debian.is_other_driver_source("nvidia-graphics-drivers-tesla-535")
    assert not debian.is_other_driver_source("nvidia-graphics-drivers")
    assert not debian.is_other_driver_source("containerd")
