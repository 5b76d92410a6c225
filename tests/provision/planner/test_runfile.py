"""Planning a driver of an installer file: from the declaration alone, and back to a distribution's driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from provision.declaration.fleet.facts.driver import ForeignDriver, Kernel, ModuleFile
from provision.declaration.fleet.facts.node import AvailablePackage, InstalledPackage
from provision.planning.driver_change import DriverChange, PackageVersion
from tests.provision.samples import GPU, available, make_facts, make_stack, plan, replace, simulate_apply, staged

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

KERNEL = "6.12.107+deb13-amd64"
VERSION, DIGEST = "550.54.15", "ab12cd34" + "0" * 56
FULL = f"{VERSION}-1+rab12cd34"
FILE = {"path": "/srv/driver.run", "sha256": DIGEST}
USER_SPACE, MODULE, DAEMON = "nvidia-runfile", "nvidia-runfile-dkms", "nvidia-runfile-persistenced"
DISTRIBUTION = make_stack(driver={"kernelModule": "auto", "companions": []}, runtime={"enabled": False})


def declared(**more: Any) -> StackSpec:
    driver = {"source": "runfile", "version": VERSION, "kernelModule": "auto", "runfile": FILE, **more}
    return make_stack(driver=driver, runtime={"enabled": False})


def bare(**more: Any) -> NodeFacts:
    kernels = (Kernel(release=KERNEL, running=True, default=True, headers=True),)
    return replace(make_facts(), gpus=(GPU,), kernels=kernels, available=available(), **more)


def change_of(facts: NodeFacts, stack: StackSpec) -> DriverChange:
    made = plan(facts, stack)
    assert made.problems == ()
    assert made.roles.driver is not None
    assert made.roles.driver.driver_change is not None
    return made.roles.driver.driver_change


def installed(stack: StackSpec) -> NodeFacts:
    """A node that has come to a declaration; what staging is handed its package manager knows afterwards."""
    facts = staged(bare(), stack)
    change = change_of(bare(), stack)
    known = {one.name: (_as_installed(one.version),) for one in change.packages if one.name.startswith(USER_SPACE)}
    facts = replace(facts, available={**facts.available, **known})
    done = simulate_apply(facts, plan(facts, stack))
    modules = (ModuleFile(version=change.version, flavour="proprietary"),)
    return replace(done, kernels=tuple(replace(each, modules=modules) for each in done.kernels))


def _as_installed(version: str) -> AvailablePackage:
    return AvailablePackage(version=version, source=USER_SPACE, fetchable=False)


def test_a_bare_node_gets_what_the_file_has() -> None:
    change = change_of(bare(), declared())

    assert change.packages == tuple(PackageVersion(name, FULL) for name in (USER_SPACE, MODULE, DAEMON))
    assert (change.version, change.flavour, change.dkms) == (VERSION, "proprietary", "nvidia-runfile-ab12cd34")
    assert change.services == ("nvidia-persistenced.service",)
    assert change.remove == ()


def test_the_flavour_is_the_one_that_the_gpus_need() -> None:
    change = change_of(bare(), declared(version="580.65.06"))

    assert (change.flavour, change.dkms) == ("open", "nvidia-runfile-open-ab12cd34")
    assert PackageVersion("nvidia-runfile-open-dkms", "580.65.06-1+rab12cd34") in change.packages


def test_another_file_of_the_same_version_is_another_change() -> None:
    other = FILE | {"sha256": "0" * 64}

    assert change_of(bare(), declared()) != change_of(bare(), declared(runfile=other))


def test_where_the_file_lies_changes_nothing() -> None:
    moved = {"url": "https://mirror.example.com/driver.run", "sha256": DIGEST}

    assert change_of(bare(), declared()) == change_of(bare(), declared(runfile=moved))


def test_a_node_that_has_it_has_nothing_to_do() -> None:
    assert plan(installed(declared()), declared()).items == ()


def test_the_distribution_s_driver_goes_in_the_same_transaction() -> None:
    with_it = simulate_apply(staged(bare(), DISTRIBUTION), plan(staged(bare(), DISTRIBUTION), DISTRIBUTION))
    toolkit = {"nvidia-container-toolkit": InstalledPackage(version="1.18.1-1", source="nvidia-container-toolkit")}
    with_it = replace(with_it, packages=with_it.packages | toolkit)

    change = change_of(with_it, declared())

    assert {"libcuda1", "libnvidia-ml1", "nvidia-smi", "nvidia-kernel-dkms"} <= set(change.remove)
    assert "nvidia-container-toolkit" not in change.remove
    assert not {one.name for one in change.packages} & set(change.remove)


@pytest.mark.parametrize("module", ["auto", "none"])
def test_the_file_s_packages_go_when_the_distribution_s_come(module: str) -> None:
    stack = make_stack(driver={"kernelModule": module, "companions": []}, runtime={"enabled": False})
    facts = installed(declared())
    if module == "none":
        facts = replace(facts, module=replace(facts.module, on_disk="550.163.01"))

    change = change_of(facts, stack)

    assert change.remove == (USER_SPACE, MODULE, DAEMON)
    assert "libcuda1" in {one.name for one in change.packages}


def test_of_the_same_upstream_version_they_go_as_well() -> None:
    """Both are 550.163.01: that they have a version in common does not make them one driver."""
    facts = installed(declared(version="550.163.01"))

    assert change_of(facts, DISTRIBUTION).remove == (USER_SPACE, MODULE, DAEMON)


def test_a_driver_of_the_installer_itself_is_in_the_way() -> None:
    facts = bare(foreign_driver=ForeignDriver(kind="runfile", version=VERSION, uninstaller="/usr/bin/nvidia-uninstall"))

    assert "foreign-driver" in {problem.code for problem in plan(facts, declared()).problems}


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        pytest.param(
            {"companions": ["fabricmanager"]}, "unsupported-companion", "persistenced, peermem", id="fabric manager"
        ),
        pytest.param(
            {"capabilities": ["graphics"]}, "unsupported-capability", "compute, utility, video", id="a screen"
        ),
    ],
)
def test_what_no_runfile_has_is_refused(more: dict[str, Any], code: str, words: str) -> None:
    (problem,) = plan(bare(), declared(**more)).problems

    assert problem.code == code
    assert words in problem.hint


def test_on_systems_without_apt_it_is_refused_with_what_there_is() -> None:
    facts = bare()
    system = replace(facts.node.os, id="rocky", version_id="9.5", codename="")

    (problem,) = plan(replace(facts, node=replace(facts.node, os=system)), declared()).problems

    assert problem.code == "unsupported-driver-source"
    assert problem.hint == "declare driver.source: nvidia"


def test_a_node_with_nvswitches_is_told_that_its_fabric_manager_is_missing() -> None:
    (problem,) = plan(replace(bare(), nvswitches=6), declared()).problems

    assert problem.code == "unsupported-companion"
    assert "fabricmanager" in problem.message
