"""Planning for a declared bundle: the packages in it say whose names they have, and which versions there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from provision.declaration.fleet.facts.driver import Kernel
from provision.declaration.fleet.facts.node import AvailablePackage, InstalledPackage, OperatingSystem
from provision.planning.driver_change import DriverChange
from provision.planning.planner.bundled import compare_with_bundle, declared_bundle
from provision.planning.planner.collection import choose_collected
from provision.planning.planner.drivers.versions import versions_for
from provision.planning.supply.bundle.offer import with_offer
from tests.provision.planner.test_bundled import DEBIAN, STACK, bare, bundle_with, collected, cut_off
from tests.provision.samples import GPU, make_facts, make_stack, plan, replace

if TYPE_CHECKING:
    from pathlib import Path

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import NodePlan

NEW, OLD = "550.163.01", "535.309.01"
KERNEL: Final = "6.8.0-63-generic"
MAIN, SERVER = "nvidia-graphics-drivers", "nvidia-graphics-drivers-580-server"
ON_DEBIAN = dict.fromkeys(
    ("libcuda1", "libnvidia-ml1", "nvidia-smi", "nvidia-kernel-dkms", "nvidia-kernel-support"), MAIN
)
# NVIDIA's repository for Debian has packages of the same names and source, and one more.
NVIDIAS = {**ON_DEBIAN, "nvidia-driver-cuda": MAIN}
SERVERS = dict.fromkeys(("libnvidia-compute-580-server", "nvidia-utils-580-server"), SERVER)
WITH_DKMS = {**SERVERS, "nvidia-dkms-580-server": SERVER}
COMPILED = {
    **SERVERS,
    "nvidia-headless-no-dkms-580-server": SERVER,
    f"linux-modules-nvidia-580-server-{KERNEL}": "linux-restricted-modules",
    f"linux-objects-nvidia-580-server-{KERNEL}": "linux-restricted-modules",
    f"linux-signatures-nvidia-{KERNEL}": "linux-restricted-signatures",
}
NVIDIAS_OF_UBUNTU = dict.fromkeys(("libnvidia-compute-580", "nvidia-utils-580", "nvidia-dkms-580"), "nvidia")


def stack_of(**more: Any) -> StackSpec:
    driver: dict[str, Any] = {
        "version": None if "branch" in more else NEW,
        "kernelModule": "proprietary",
        "companions": [],
        "source": "bundle",
        "repository": {"folder": "/srv/grapnel/drivers.bundle"},
    }
    return make_stack(driver={**driver, **more}, runtime={"enabled": False})


def offering(packages: dict[str, str], version: str, **more: Any) -> NodeFacts:
    """A node for which these packages are in the bundle."""
    offered = {name: (AvailablePackage(version=version, source=source),) for name, source in packages.items()}
    return replace(cut_off(), available=offered, **more)


def on_ubuntu(packages: dict[str, str], version: str) -> NodeFacts:
    facts = make_facts()
    system = OperatingSystem(id="ubuntu", version_id="24.04", codename="noble")
    kernels = (Kernel(release=KERNEL, running=True, default=True),)
    node = msgspec.structs.replace(facts.node, os=system, kernel=KERNEL)
    return replace(offering(packages, version), node=node, kernels=kernels, gpus=(GPU,))


def derived_source(made: NodePlan) -> dict[str, str]:
    return {one.value: one.reason for one in made.derived if one.key == "driver.packages"}


def test_a_node_has_the_plan_that_the_source_of_the_bundle_would_give_it(tmp_path: Path) -> None:
    bundle = bundle_with(collected(), tmp_path)
    known = with_offer(cut_off(), bundle.listing)

    made = compare_with_bundle(plan(known, stack_of()), known, bundle)

    expected = plan(bare(), STACK).roles.driver
    assert made.problems == ()
    assert expected is not None
    assert made.roles.driver is not None
    assert made.roles.driver.driver_change == expected.driver_change
    assert made.roles.driver.driver_sources == ()
    assert derived_source(made) == {
        "distribution": f"the first source whose packages of driver {NEW} are in the bundle"
    }


@pytest.mark.parametrize(
    ("facts", "version", "source"),
    [
        pytest.param(offering(ON_DEBIAN, f"{NEW}-2"), NEW, "distribution", id="Debian's own"),
        pytest.param(offering(NVIDIAS, f"{NEW}-1"), NEW, "nvidia", id="NVIDIA's for Debian"),
        pytest.param(on_ubuntu(WITH_DKMS, "580.95.05-0ubuntu1"), "580.95.05", "distribution", id="Ubuntu's with dkms"),
        pytest.param(on_ubuntu(COMPILED, "580.95.05-0ubuntu1"), "580.95.05", "canonical", id="Canonical's modules"),
        pytest.param(on_ubuntu(NVIDIAS_OF_UBUNTU, "580.95.05-1"), "580.95.05", "nvidia", id="NVIDIA's for Ubuntu"),
    ],
)
def test_the_packages_say_which_source_they_come_from(facts: NodeFacts, version: str, source: str) -> None:
    made = plan(facts, stack_of(version=version))

    assert list(derived_source(made)) == [source]


def test_what_a_node_has_installed_does_not_say_where_the_bundle_comes_from() -> None:
    """It has Debian's driver, of the same version as that of NVIDIA which is in the bundle."""
    facts = offering(NVIDIAS, f"{NEW}-1")
    here = {name: InstalledPackage(version=f"{NEW}-2", source=source) for name, source in ON_DEBIAN.items()}
    both = {
        name: (*facts.available[name], AvailablePackage(version=f"{NEW}-2", source=source, fetchable=False))
        for name, source in ON_DEBIAN.items()
    }

    made = plan(replace(facts, packages=here, available={**facts.available, **both}), stack_of())

    assert list(derived_source(made)) == ["nvidia"]


def test_a_companion_that_the_bundle_lacks_does_not_make_it_another_source() -> None:
    facts = offering(NVIDIAS, "570.133.20-1")

    (problem,) = plan(facts, stack_of(version="570.133.20", companions=["nscq"])).problems

    assert "libnvidia-nscq-570" in problem.message


def test_a_version_that_the_bundle_lacks_is_a_problem_that_says_what_it_has(tmp_path: Path) -> None:
    bundle = bundle_with(collected(), tmp_path)
    known = with_offer(bare(), bundle.listing)

    (problem,) = compare_with_bundle(plan(known, stack_of(version=OLD)), known, bundle).problems

    assert problem.code == "version-not-available"
    assert f"the bundle has for {DEBIAN}: {NEW} (proprietary)" in problem.hint


def test_a_branch_is_what_the_bundle_has_of_it_from_any_source() -> None:
    facts = offering(NVIDIAS, "550.190.01-1")
    older = {name: (AvailablePackage(version=f"{NEW}-2", source=source),) for name, source in ON_DEBIAN.items()}
    mixed = replace(facts, available={name: (*facts.available[name], *older.get(name, ())) for name in NVIDIAS})

    assert versions_for(mixed, stack_of(branch="550").driver) == frozenset({NEW, "550.190.01"})
    assert versions_for(offering({}, NEW), stack_of(branch="550").driver) == frozenset()


def test_a_bundle_for_nodes_that_declare_one_is_collected_of_what_there_is() -> None:
    change = choose_collected(bare(), bare(), stack_of().driver, version=NEW)

    assert isinstance(change, DriverChange)
    assert change == collected()


@pytest.mark.parametrize("more", [{"enabled": False}, {"source": "distribution"}], ids=["left alone", "another source"])
def test_only_a_bundle_that_is_the_source_counts(more: dict[str, Any]) -> None:
    assert declared_bundle(stack_of(**more).driver) is None
    assert str(declared_bundle(stack_of().driver)) == "/srv/grapnel/drivers.bundle"
