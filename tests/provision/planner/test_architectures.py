"""One declaration for nodes of two architectures: each gets what fits it, or is told why it gets nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.driver import Kernel
from provision.declaration.fleet.facts.node import OperatingSystem
from provision.declaration.spec.model import DriverSource, Repository
from provision.planning.architecture import ARCHITECTURES
from provision.planning.driver.packages import repository
from provision.planning.driver.packages.catalogue import DISTRIBUTIONS, find_distribution, packages
from provision.planning.driver.packages.distribution import Distribution
from provision.planning.driver.packages.package_request import PackageRequest
from provision.planning.driver.terms import Flavour
from provision.planning.engines.package import render_sources
from provision.planning.node_plan import Problem
from provision.planning.planner.collection import bundle_name
from provision.planning.planner.drivers.runfile import choose_packages
from provision.planning.supply.runfile.errors import RunfileError
from provision.planning.supply.runfile.store import Converted
from tests.provision.samples import GPU, available, make_facts, make_stack, plan, replace, simulate_apply, staged

if TYPE_CHECKING:
    from pathlib import Path

    from provision.declaration.fleet.facts.node import NodeFacts

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQINBGJ\n-----END PGP PUBLIC KEY BLOCK-----\n"
GRACE_HOPPER = replace(GPU, device="2342")  # NVIDIA GH200 480GB
HOPPER = replace(GPU, device="2330")  # NVIDIA H100 80GB HBM3
AUTO = {"kernelModule": "auto", "companions": []}


def node_of(architecture: str, system: tuple[str, str, str] = ("debian", "13", "trixie")) -> NodeFacts:
    """Return a bare machine with a Hopper GPU, as it is built with that architecture."""
    facts = make_facts()
    is_arm = architecture == "aarch64"
    kernel = f"6.12.107+deb13-{'arm64' if is_arm else 'amd64'}"
    identity = replace(
        facts.node,
        architecture=architecture,
        kernel=kernel,
        os=OperatingSystem(id=system[0], version_id=system[1], codename=system[2]),
    )
    return replace(
        facts,
        node=identity,
        gpus=(GRACE_HOPPER if is_arm else HOPPER,),
        kernels=(Kernel(release=kernel, running=True, default=True, headers=True),),
        available=available("trixie-arm64") if is_arm else available(),
    )


def test_one_declaration_gives_each_node_the_modules_that_it_runs() -> None:
    stack = make_stack(driver={"version": "550.163.01", **AUTO}, runtime={"enabled": False})

    modules = {}
    for architecture in ARCHITECTURES:
        made = plan(node_of(architecture), stack)
        assert made.problems == ()
        assert made.roles.driver is not None
        assert made.roles.driver.driver_change is not None
        modules[architecture] = made.roles.driver.driver_change.flavour

    assert modules == {"x86_64": "proprietary", "aarch64": "open"}


def test_a_node_of_arm_gets_debians_driver_and_is_done() -> None:
    facts = node_of("aarch64")
    stack = make_stack(driver={"version": "550.163.01", **AUTO}, runtime={"enabled": False}, plugin={"enabled": False})

    done = simulate_apply(staged(facts, stack), plan(staged(facts, stack), stack))

    assert {"libcuda1", "nvidia-smi", "nvidia-open-kernel-dkms", "firmware-nvidia-gsp"} <= set(done.packages)


def test_what_debian_does_not_build_for_arm_is_said_of_the_node_alone() -> None:
    stack = make_stack(driver={**AUTO, "capabilities": ["compute", "utility", "ngx"]}, runtime={"enabled": False})

    problems = {each: plan(node_of(each), stack).problems for each in ARCHITECTURES}

    assert problems["x86_64"] == ()
    [problem] = problems["aarch64"]
    assert problem.code == "unsupported-capability"
    assert "debian 13 (trixie) on aarch64" in problem.message


def test_every_name_of_debians_own_for_arm_is_one_that_apt_knows_there() -> None:
    distribution = find_distribution(node_of("aarch64").node)
    assert isinstance(distribution, Distribution)

    for flavour in (Flavour.OPEN, Flavour.PROPRIETARY):
        offered = distribution.offers[DriverSource.DISTRIBUTION](550)
        found = packages(
            distribution,
            DriverSource.DISTRIBUTION,
            "550.163.01",
            flavour,
            tuple(offered.user_space),
            tuple(offered.companions),
        )
        assert isinstance(found, PackageRequest)
        names = {*found.roots, *found.module_roots, *found.loose}
        assert names <= set(available("trixie-arm64"))


def test_a_source_without_packages_for_arm_is_refused_with_those_that_have_some() -> None:
    stack = make_stack(driver={**AUTO, "source": "nvidia", "repository": {"key": KEY}}, runtime={"enabled": False})

    [problem] = plan(node_of("aarch64", ("debian", "12", "bookworm")), stack).problems

    assert problem.code == "unsupported-driver-source"
    assert "debian 12 (bookworm) on aarch64" in problem.message
    assert "distribution" in problem.hint


@pytest.mark.parametrize(
    ("system", "folder"),
    [
        (("debian", "13", "trixie"), "debian13"),
        (("ubuntu", "24.04", "noble"), "ubuntu2404"),
        (("rocky", "9.6", ""), "rhel9"),
        (("amzn", "2023", ""), "amzn2023"),
        (("sles", "15.7", ""), "sles15"),
    ],
)
def test_nvidias_folder_for_arm_is_called_sbsa(system: tuple[str, str, str], folder: str) -> None:
    for architecture, name in (("x86_64", "x86_64"), ("aarch64", "sbsa")):
        distribution = find_distribution(node_of(architecture, system).node)
        assert isinstance(distribution, Distribution)
        files = repository.render(distribution, DriverSource.NVIDIA, Repository(key=KEY))
        assert not isinstance(files, Problem)
        assert f"/compute/cuda/repos/{folder}/{name}/" in files[1].content


@pytest.mark.parametrize(
    ("folder", "refused"),
    [("sbsa", ["x86_64"]), ("sbsa/", ["x86_64"]), ("x86_64/", ["aarch64"]), ("both", []), ("", [])],
)
def test_a_mirrors_folder_of_the_other_architecture_is_said_of_the_node(folder: str, refused: list[str]) -> None:
    declared = Repository(url=f"https://mirror.example/cuda/debian13/{folder}", key=KEY)

    found = {}
    for each in ARCHITECTURES:
        distribution = find_distribution(node_of(each).node)
        assert isinstance(distribution, Distribution)
        found[each] = repository.render(distribution, DriverSource.NVIDIA, declared)

    problems = {each: problem for each, problem in found.items() if isinstance(problem, Problem)}
    assert list(problems) == refused
    assert {each.code for each in problems.values()} <= {"repository-of-other-architecture"}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dockers_folder_has_the_kernels_name_of_the_architecture(architecture: str) -> None:
    facts = node_of(architecture, ("rocky", "9.6", ""))
    facts = replace(facts, package_manager=replace(facts.package_manager, name="dnf"))
    runtime = make_stack(runtime={"source": "docker", "repository": {"key": KEY}}).runtime

    assert f"/rhel/9/{architecture}/stable\n" in render_sources(facts, runtime)[1].content


def test_a_bundle_keeps_the_architectures_apart() -> None:
    assert bundle_name(node_of("x86_64")) == "debian-13"
    assert bundle_name(node_of("aarch64")) == "debian-13-aarch64"


def test_every_release_is_known_once_for_each_architecture() -> None:
    keys = [(each.id, each.version_id, each.architecture.name) for each in DISTRIBUTIONS]

    assert len(set(keys)) == len(keys)
    for each in ARCHITECTURES:
        assert {key[:2] for key in keys if key[2] == each} == {key[:2] for key in keys}


def test_another_architecture_is_refused_with_those_that_are_known() -> None:
    found = find_distribution(replace(make_facts().node, architecture="riscv64"))

    assert isinstance(found, Problem)
    assert (found.code, found.hint) == ("unsupported-os", "supported architectures: x86_64, aarch64")


def test_an_installer_file_of_the_other_architecture_is_refused(tmp_path: Path) -> None:
    facts = node_of("aarch64")
    declared = {"source": "runfile", "version": "550.163.01", "runfile": {"path": "/srv/a.run", "sha256": "0" * 64}}
    stack = make_stack(driver={**AUTO, **declared}, runtime={"enabled": False})
    variables = plan(facts, stack).roles.driver
    assert variables is not None
    assert variables.driver_change is not None
    converted = Converted(tmp_path, "NVIDIA Accelerated Graphics Driver for Linux-x86_64", "550.163.01", ())

    with pytest.raises(RunfileError) as caught:
        choose_packages(variables.driver_change, stack.driver, converted, facts.node.architecture)

    assert caught.value.message == "the declared runfile is for x86_64, and the node has aarch64"
    assert "NVIDIA-Linux-aarch64-550.163.01.run" in caught.value.hint
