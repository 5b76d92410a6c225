"""Planning from a bundle: it is the only package source, and what it lacks is a problem of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from provision.declaration.fleet.facts.driver import BuildTools, Kernel, StagedChange
from provision.declaration.fleet.facts.node import (
    AvailablePackage,
    Engine,
    InstalledPackage,
    OperatingSystem,
    PackageManager,
    StagedEngine,
)
from provision.planning.driver_change import DriverChange
from provision.planning.node_plan import Action, Problem
from provision.planning.planner.bundled import compare_with_bundle, declare_carried, find_engine_handover
from provision.planning.planner.collection import choose_collected, choose_engine, names_engine
from provision.planning.render.package_source import apt_source_path
from provision.planning.supply.bundle.model import (
    BundledEngine,
    BundledFile,
    BundledModule,
    BundledPackage,
    BundleList,
    Driver,
)
from provision.planning.supply.bundle.offer import describe_engines, drivers_for, engines_for, with_offer
from provision.planning.supply.bundle.read import Bundle
from tests.provision.samples import GPU, RUNNING, available, edit_file, make_facts, make_stack, plan, replace

if TYPE_CHECKING:
    from pathlib import Path

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
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


def test_a_bundle_of_engines_alone_is_said_to_have_no_driver_rather_than_nothing(tmp_path: Path) -> None:
    made = planned(cut_off(), with_engines(tmp_path, "2.4.2-1"))

    (problem,) = made.problems
    assert f"the bundle has no driver for {DEBIAN}" in problem.hint
    assert "has nothing" not in problem.hint


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


def with_engines(folder: Path, *versions: str, distribution: str = DEBIAN) -> Bundle:
    """A bundle of engines alone, without its files."""
    engines = tuple(
        BundledEngine(
            distribution=distribution,
            package="containerd",
            version=version,
            packages=tuple(
                BundledPackage(
                    place=f"engines/{distribution}/packages/{name}_{version}.deb",
                    name=name,
                    version=version,
                    source=name,
                )
                for name in ("containerd", "runc")
            ),
        )
        for version in versions
    )
    places = [one.place for engine in engines for one in engine.packages]
    files = tuple(BundledFile(place=place, sha256="0" * 64, size_bytes=1) for place in places)
    return Bundle(folder, BundleList(grapnel="0.2.0", files=files, drivers=(), engines=engines))


def engine_stack(**runtime: object) -> StackSpec:
    return make_stack(driver={"enabled": False}, plugin={"enabled": False}, runtime={"entitlement": "env", **runtime})


def engine_planned(facts: NodeFacts, bundle: Bundle, **runtime: object) -> tuple[NodePlan, NodeFacts]:
    known = with_offer(facts, bundle.listing)
    return compare_with_bundle(plan(known, engine_stack(**runtime)), known, bundle), known


@pytest.mark.parametrize(("declared", "expected"), [("1.7.24", "1.7.24~ds1-6"), (None, "2.4.2-1")])
def test_an_engine_comes_from_the_bundle_and_says_so(tmp_path: Path, declared: str | None, expected: str) -> None:
    bundle = with_engines(tmp_path, "1.7.24~ds1-6", "2.4.2-1")

    made, known = engine_planned(replace(cut_off(), engines={}), bundle, version=declared)

    assert made.problems == ()
    (item,) = (one for one in made.items if one.action is Action.INSTALL)
    assert item.reason == "no container engine is installed; its packages come from the bundle"
    assert [(file.place, file.package) for file in find_engine_handover(made, known, bundle)] == [
        (f"packages/containerd_{expected}.deb", None),
        (f"packages/runc_{expected}.deb", ("runc", expected)),
    ]


def test_another_version_comes_from_another_bundle(tmp_path: Path) -> None:
    there = {"containerd": InstalledPackage(version="1.7.24~ds1-6", source="containerd")}
    engine = Engine(binary="/usr/bin/containerd", version="1.7.24")
    facts = replace(cut_off(), packages=there, engines={"containerd": engine}, services={"containerd.service": RUNNING})

    made, known = engine_planned(facts, with_engines(tmp_path, "2.4.2-1"), version="2.4.2")

    (item,) = (one for one in made.items if one.action is Action.UPGRADE)
    assert (item.from_, item.to) == ("1.7.24~ds1-6", "2.4.2-1")
    assert item.reason == "declared containerd is 2.4.2; its packages come from the bundle"
    assert len(find_engine_handover(made, known, with_engines(tmp_path, "2.4.2-1"))) == 2


def test_what_lies_on_the_node_of_an_engine_is_not_handed_over_again(tmp_path: Path) -> None:
    there = {"containerd": InstalledPackage(version="1.7.24~ds1-6", source="containerd")}
    engine, staged = (
        Engine(binary="/usr/bin/containerd", version="1.7.24"),
        StagedEngine(packages={"containerd": "2.4.2-1"}, complete=True),
    )
    facts = replace(cut_off(), packages=there, engines={"containerd": engine}, services={"containerd.service": RUNNING})
    bundle = with_engines(tmp_path, "2.4.2-1")

    before, known = engine_planned(facts, bundle, version="2.4.2")
    after, ready = engine_planned(replace(facts, engine_staged=staged), bundle, version="2.4.2")

    assert [one.action for one in before.items if one.target == "containerd"] == [Action.STAGE, Action.UPGRADE]
    assert len(find_engine_handover(before, known, bundle)) == 2
    assert [one.action for one in after.items if one.target == "containerd"] == [Action.UPGRADE]
    assert find_engine_handover(after, ready, bundle) == ()


@pytest.mark.parametrize(
    ("bundle", "code", "words"),
    [
        pytest.param((), "package-not-available", f"engines for {DEBIAN}: none; make it again", id="no engine"),
        pytest.param(
            ("2.4.2-1",),
            "engine-version-not-available",
            f"engines for {DEBIAN}: containerd 2.4.2-1; make",
            id="another",
        ),
    ],
)
def test_an_engine_that_the_bundle_lacks_is_a_problem_that_says_what_it_has(
    tmp_path: Path, bundle: tuple[str, ...], code: str, words: str
) -> None:
    """What the node's own lists have is no remedy: it cannot be fetched."""
    facts = replace(bare(), engines={})

    made, _ = engine_planned(facts, with_engines(tmp_path, *bundle), version="2.2.1" if bundle else None)

    (problem,) = made.problems
    assert problem.code == code
    assert words in problem.hint
    assert made.roles.runtime is None


def test_an_engine_for_another_architecture_is_none(tmp_path: Path) -> None:
    bundle = with_engines(tmp_path, "2.4.2-1", distribution=f"{DEBIAN}-aarch64")

    made, _ = engine_planned(replace(cut_off(), engines={}), bundle)

    assert "package-not-available" in {one.code for one in made.problems}


def test_an_engine_is_found_beside_drivers_of_a_set_that_somebody_named_by_the_exact_release(tmp_path: Path) -> None:
    """`bundle create --set rocky-9.5=DIR --from build1`: what is collected has the name ``rocky-9``."""
    rocky = OperatingSystem(id="rocky", version_id="9.5")
    node = replace(bare().node, os=rocky)
    engines = with_engines(tmp_path, "2.4.2-1", distribution="rocky-9").listing
    drivers = (Driver(distribution="rocky-9.5", version=NEW, flavour="open", packages=()),)

    listing = replace(engines, drivers=drivers)

    assert [one.version for one in engines_for(listing, node)] == ["2.4.2-1"]
    assert [one.version for one in drivers_for(listing, node)] == [NEW]
    assert describe_engines(listing, node) == "the bundle has of engines for rocky-9: containerd 2.4.2-1"


def test_an_engine_whose_packages_only_a_driver_brings_is_not_in_the_bundle(tmp_path: Path) -> None:
    """The closure of a driver may have a package of an engine, and not all that the engine needs."""
    listed = with_engines(tmp_path, "2.4.2-1").listing
    (engine,) = listed.engines
    driver = Driver(distribution=DEBIAN, version=NEW, flavour="none", packages=engine.packages)
    bundle = Bundle(tmp_path, replace(listed, engines=(), drivers=(driver,)))

    made, _ = engine_planned(replace(cut_off(), engines={}), bundle, version="2.4.2")

    (problem,) = made.problems
    assert problem.code == "not-in-bundle"
    assert "the bundle has no engine containerd 2.4.2-1" in problem.message


def test_the_repository_of_an_engine_is_neither_written_on_nor_taken_off_a_node_with_a_bundle(tmp_path: Path) -> None:
    source = apt_source_path("docker")
    declared = engine_stack(source="docker", repository={"key": KEY})
    facts = edit_file(bare(), source, "Types: deb\n")

    carried = declare_carried(declared, with_engines(tmp_path, "2.4.2-1"))

    assert source in {item.target for item in plan(facts, declared).items}
    assert source not in {item.target for item in plan(facts, carried).items}


def test_an_engine_is_collected_where_it_is_named_at_the_version_that_sources_have() -> None:
    offered = tuple(
        AvailablePackage(version=one, source="containerd") for one in ("1.7.24~ds1-6", "2.4.2-1", "2.4.2-2")
    )
    facts = replace(bare(), available={"containerd": offered})

    assert not names_engine(engine_stack().runtime)
    assert not names_engine(engine_stack(version="2.4.2", enabled=False).runtime)
    assert names_engine(engine_stack(version="2.4.2").runtime)
    assert names_engine(engine_stack(source="docker", repository={"key": KEY}).runtime)
    found = choose_engine(facts, engine_stack(version="2.4.2"))
    assert isinstance(found, DriverChange)
    assert [(one.name, one.version) for one in found.packages] == [("containerd", "2.4.2-2")]
    missing = choose_engine(facts, engine_stack(version="2.2.1"))
    assert isinstance(missing, Problem)
    assert missing.code == "engine-version-not-available"


def test_what_the_collecting_node_has_itself_and_no_source_any_more_is_not_collected() -> None:
    """Nobody could download it: that would be told only when everything else had been."""
    offered = tuple(
        AvailablePackage(version=version, source="containerd", fetchable=fetchable)
        for version, fetchable in (("2.2.1-1", True), ("2.4.2-1", False))
    )
    facts = replace(bare(), available={"containerd.io": offered})
    ready = replace(facts, engine_staged=StagedEngine(packages={"containerd.io": "2.4.2-1"}, complete=True))
    of_docker = engine_stack(source="docker", repository={"key": KEY})

    found = choose_engine(facts, of_docker)
    missing = choose_engine(ready, engine_stack(source="docker", repository={"key": KEY}, version="2.4.2"))

    assert isinstance(found, DriverChange)
    assert [(one.name, one.version) for one in found.packages] == [("containerd.io", "2.2.1-1")]
    assert isinstance(missing, Problem)
    assert missing.code == "engine-version-not-available"


def test_what_an_engine_does_not_ask_for_is_collected_with_it_at_its_own_version() -> None:
    suse = OperatingSystem(id="sles", version_id="15.6")
    offered = {
        name: tuple(AvailablePackage(version=one, source="containerd") for one in ("2.2.1-1", "2.4.2-1"))
        for name in ("containerd", "containerd-ctr")
    }
    facts = replace(bare(), package_manager=PackageManager(name="zypper", lists_age_s=1), available=offered)
    facts = replace(facts, node=replace(facts.node, os=suse))

    found = choose_engine(facts, engine_stack(version="2.2.1"))
    del offered["containerd-ctr"]
    missing = choose_engine(replace(facts, available=offered), engine_stack(version="2.2.1"))

    assert isinstance(found, DriverChange)
    assert [(one.name, one.version) for one in found.packages] == [
        ("containerd", "2.2.1-1"),
        ("containerd-ctr", "2.2.1-1"),
    ]
    assert isinstance(missing, Problem)
    assert "has containerd-ctr" in missing.message


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
