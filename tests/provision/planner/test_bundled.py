"""Planning from a bundle: it is the only package source, and what it lacks is a problem of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from provision.declaration.fleet.facts.driver import BuildTools, Kernel, StagedChange
from provision.declaration.fleet.facts.node import InstalledPackage
from provision.planning.driver_change import DriverChange
from provision.planning.node_plan import Problem
from provision.planning.planner.bundled import compare_with_bundle, declare_carried
from provision.planning.planner.collection import choose_collected
from provision.planning.supply.bundle.model import BundledFile, BundledModule, BundledPackage, BundleList, Driver
from provision.planning.supply.bundle.offer import with_offer
from provision.planning.supply.bundle.read import Bundle
from tests.provision.samples import GPU, available, make_facts, make_stack, plan, replace

if TYPE_CHECKING:
    from pathlib import Path

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.node_plan import NodePlan

DEBIAN, KERNEL, OTHER = "debian-13", "6.12.107+deb13-amd64", "6.12.200+deb13-amd64"
NEW, OLD = "550.163.01", "535.309.01"
STACK = make_stack(driver={"kernelModule": "auto", "companions": []}, runtime={"enabled": False})
KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZQAA\n-----END PGP PUBLIC KEY BLOCK-----\n"
TOOLS = BuildTools(dkms="3.2.2", gcc=True, make=True)


def bare(**more: Any) -> NodeFacts:
    """A node with a GPU and a kernel, without a driver."""
    facts = make_facts()
    kernels = (Kernel(release=KERNEL, running=True, default=True),)
    return replace(facts, gpus=(GPU,), packages={}, kernels=kernels, available=available(), **more)


def cut_off(**more: Any) -> NodeFacts:
    """The same without package lists."""
    return replace(bare(**more), available={})


def collected(*, kernels: tuple[str, ...] = (KERNEL,), version: str = NEW) -> DriverChange:
    change = choose_collected(bare(), bare(), STACK.driver, version=version, kernels=kernels)
    assert isinstance(change, DriverChange)
    return change


def bundle_with(change: DriverChange, folder: Path, *, distribution: str = DEBIAN) -> Bundle:
    """A bundle of what was collected for a change, without its files."""
    known = available()
    packages = tuple(
        BundledPackage(
            place=f"drivers/{distribution}/packages/{one.name}.deb",
            name=one.name,
            version=one.version,
            source=each.source,
            depends=each.depends,
        )
        for one in change.packages
        for each in known[one.name]
        if each.version == one.version
    )
    modules = tuple(
        BundledModule(
            place=f"modules/{kernel}.tar.gz",
            kernel=kernel,
            dkms=str(change.dkms),
            version=change.version,
            flavour="proprietary",
        )
        for kernel in change.kernels
    )
    flavour: Any = change.flavour
    driver = Driver(
        distribution=distribution, version=change.version, flavour=flavour, packages=packages, modules=modules
    )
    places = [one.place for one in (*packages, *modules)]
    files = tuple(BundledFile(place=place, sha256="0" * 64, size_bytes=1) for place in places)
    return Bundle(folder, BundleList(grapnel="0.2.0", files=files, drivers=(driver,)))


def planned(facts: NodeFacts, bundle: Bundle, version: str = NEW) -> NodePlan:
    stack = replace(STACK, driver=replace(STACK.driver, version=version))
    known = with_offer(facts, bundle.listing)
    return compare_with_bundle(plan(known, stack), known, bundle)


def test_a_node_without_package_lists_has_the_plan_that_one_with_sources_has(tmp_path: Path) -> None:
    bundle = bundle_with(collected(), tmp_path)

    made = planned(cut_off(), bundle)

    expected = plan(bare(), STACK).roles.driver
    assert made.problems == ()
    assert made.roles.driver is not None
    assert expected is not None
    assert made.roles.driver.driver_change == expected.driver_change


def test_what_the_nodes_own_lists_have_beside_the_bundle_is_not_planned(tmp_path: Path) -> None:
    made = planned(bare(), bundle_with(collected(), tmp_path), OLD)

    (problem,) = made.problems
    assert problem.code == "version-not-available"
    assert f"the bundle has for {DEBIAN}: {NEW} (proprietary)" in problem.hint
    assert made.roles.driver is None


def test_a_bundle_for_another_distribution_is_a_problem_that_says_so(tmp_path: Path) -> None:
    made = planned(cut_off(), bundle_with(collected(), tmp_path, distribution="debian-12"))

    (problem,) = made.problems
    assert f"the bundle has nothing for {DEBIAN}; it is for debian-12" in problem.hint


def test_what_is_installed_stays_known(tmp_path: Path) -> None:
    """A node that has another driver than the bundle's is not told that its own does not exist."""
    here = {"libcuda1": InstalledPackage(version=f"{OLD}-0+deb12u1", source="nvidia-graphics-drivers")}

    known = with_offer(replace(bare(), packages=here), bundle_with(collected(), tmp_path).listing)

    assert {(one.version, one.fetchable) for one in known.available["libcuda1"]} == {
        (f"{OLD}-0+deb12u1", False),
        (f"{NEW}-2", True),
    }


def test_a_repository_that_the_node_cannot_reach_is_not_written_on_it(tmp_path: Path) -> None:
    """With one that does not answer, dnf and zypper fail whatever they are asked for."""
    repository = {"url": "https://mirror.example/cuda/debian13/", "key": KEY}
    stack = make_stack(driver={"version": NEW, "source": "nvidia", "repository": repository})
    bundle = bundle_with(collected(), tmp_path)

    carried = declare_carried(stack, bundle)

    assert "/etc/apt/sources.list.d/grapnel-nvidia.sources" in {one.target for one in plan(bare(), stack).items}
    made = plan(with_offer(cut_off(), bundle.listing), carried)
    assert not [item for item in made.items if "/etc/apt" in item.target and "preferences" not in item.target]
    assert made.roles.driver is None or made.roles.driver.driver_sources == ()
    assert "repository-key-missing" not in {one.code for one in made.problems}


def test_lists_that_could_not_be_refreshed_are_of_no_interest(tmp_path: Path) -> None:
    facts = cut_off()
    stale = replace(facts, package_manager=replace(facts.package_manager, lists_error="no route to host"))

    known = with_offer(stale, bundle_with(collected(), tmp_path).listing)

    assert known.package_manager.lists_error is None


def test_a_kernel_that_is_not_in_the_bundle_is_a_problem_where_it_cannot_be_built(tmp_path: Path) -> None:
    made = planned(cut_off(build_tools=None), bundle_with(collected(kernels=(OTHER,)), tmp_path))

    (problem,) = made.problems
    assert problem.code == "kernel-not-in-bundle"
    assert f"no module of driver {NEW} (proprietary) for kernel {KERNEL}" in problem.message
    assert "cannot build it without dkms, gcc, make, headers" in problem.message
    assert f"modules for {OTHER}" in problem.message
    assert f"--kernel {KERNEL}" in problem.hint


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(
            {"build_tools": TOOLS, "kernels": (Kernel(release=KERNEL, running=True, headers=True),)},
            id="the node can build it",
        ),
        pytest.param({"staged": True}, id="the node has it in another set"),
    ],
)
def test_a_kernel_that_is_not_in_the_bundle_may_be_provided_by_the_node(tmp_path: Path, more: dict[str, Any]) -> None:
    facts = cut_off()
    if more.pop("staged", False):
        there = StagedChange(id="0123456789ab", version=NEW, complete=True)
        facts = replace(facts, driver=replace(facts.driver, staged=(there,)))
    made = planned(replace(facts, **more), bundle_with(collected(kernels=(OTHER,)), tmp_path))

    assert made.problems == ()


def test_what_a_build_would_need_is_no_warning_where_the_bundle_has_the_module(tmp_path: Path) -> None:
    bundle = bundle_with(collected(), tmp_path)
    known = with_offer(cut_off(), bundle.listing)

    made = plan(known, STACK)

    assert "kernel-headers-missing" in {one.code for one in made.warnings}
    assert "kernel-headers-missing" not in {one.code for one in compare_with_bundle(made, known, bundle).warnings}


def test_an_engine_is_not_promised_of_a_bundle(tmp_path: Path) -> None:
    bundle = bundle_with(collected(), tmp_path)
    known = with_offer(replace(cut_off(), engines={}), bundle.listing)

    made = compare_with_bundle(plan(known, make_stack(driver={"kernelModule": "auto"})), known, bundle)

    assert {one.hint for one in made.problems if one.code == "package-not-available"} == {
        "a bundle has drivers alone: install the engine by other means"
    }


@pytest.mark.parametrize("version", [NEW, "550"])
def test_what_is_collected_does_not_depend_on_what_the_collecting_node_has(version: str) -> None:
    here = {
        name: InstalledPackage(version=f"{OLD}-0+deb12u1", source="nvidia-graphics-drivers")
        for name in ("libcuda1", "nvidia-settings")
    }
    collector = replace(bare(), packages=here, gpus=())

    change = choose_collected(collector, bare(), STACK.driver, version=version)

    assert change == collected()


def test_without_gpus_somebody_has_to_say_which_module() -> None:
    nowhere = replace(bare(), gpus=())

    unknown = choose_collected(bare(), nowhere, STACK.driver, version=NEW)
    said = choose_collected(
        bare(), nowhere, make_stack(driver={"kernelModule": "proprietary"}).driver, version=NEW, kernels=(OTHER,)
    )

    assert isinstance(unknown, Problem)
    assert "--flavour" in unknown.hint
    assert isinstance(said, DriverChange)
    assert (said.flavour, said.kernels, said.dkms) == ("proprietary", (OTHER,), "nvidia-current")
    assert msgspec.json.decode(msgspec.json.encode(said), type=DriverChange) == said
