"""The plan for every system of the lab, from its tables: exact packages, names in DKMS, module streams."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import pytest

from lab.sources import SYSTEMS, System
from lab.sources.tables import driver_packages
from provision.declaration.fleet.facts.driver import Initramfs
from provision.declaration.fleet.facts.node import AvailablePackage, Kernel, OperatingSystem, PackageManager
from provision.planning.node_plan import Action
from provision.planning.render.modprobe import DRACUT_PATH, OPTIONS_PATH
from tests.provision.samples import GPU, make_facts, make_stack, plan, replace, simulate_apply

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.driver_change import DriverChange

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")
STREAM = "/etc/dnf/modules.d/nvidia-driver.module"
UBUNTU = [
    "libnvidia-compute-580-server",
    "nvidia-compute-utils-580-server",
    "nvidia-firmware-580-server-580.173.02",
    "nvidia-headless-no-dkms-580-server-open",
    "nvidia-kernel-common-580-server",
    "nvidia-kernel-source-580-server-open",
    "nvidia-utils-580-server",
]
SIGNED = [
    f"linux-{kind}-6.8.0-{number}-generic"
    for kind in ("modules-nvidia-580-server-open", "signatures-nvidia")
    for number in (60, 63)
]
DNF = [
    "libnvidia-cfg",
    "libnvidia-ml",
    "nvidia-driver-cuda",
    "nvidia-driver-cuda-libs",
    "nvidia-kmod-common",
    "nvidia-persistenced",
]
SLES = ["nvidia-compute-G06", "nvidia-compute-utils-G06", "nvidia-modprobe", "nvidia-persistenced"]


def make_node(system: System) -> NodeFacts:
    """Return the facts of a bare node of a system with all of its kernels."""
    packages = driver_packages(system)
    names = {package.name for package in packages}
    available: dict[str, tuple[AvailablePackage, ...]] = {}
    for package in packages:
        needed = {word for text in package.requires for word in _NAME.findall(text)} & names - {package.name}
        version = f"{package.version}-{package.release}"
        found = AvailablePackage(
            version=f"{package.epoch}:{version}" if package.epoch else version,
            source=package.source,
            depends=tuple(sorted(needed)),
        )
        if found not in available.get(package.name, ()):
            available[package.name] = (*available.get(package.name, ()), found)
    said = dict(system.os_release)
    os = OperatingSystem(id=said["ID"], version_id=said["VERSION_ID"], codename=said.get("VERSION_CODENAME", ""))
    bare = make_facts()
    return replace(
        bare,
        node=replace(bare.node, kernel=system.kernel_release, os=os),
        package_manager=PackageManager(name=system.manager, lists_age_s=1),
        available=available,
        gpus=(GPU,),
        kernels=tuple(
            Kernel(release=each, running=each == system.kernel_release, default=each == system.kernels[-1])
            for each in system.kernels
        ),
    )


def declare(system: System, version: str, **more: object) -> StackSpec:
    key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ==\n-----END PGP PUBLIC KEY BLOCK-----\n"
    repository = {"url": "https://repository.example/", "key": key}
    source = {"source": "canonical"} if system.manager == "apt" else {"source": "nvidia", "repository": repository}
    driver = {"version": version, "kernelModule": "auto", "companions": [], **source, **more}
    return make_stack(driver=driver, runtime={"enabled": False}, plugin={"enabled": False})


def change_of(system: System, version: str, **more: object) -> DriverChange:
    facts, stack = make_node(system), declare(system, version, **more)
    for _ in range(2):
        made = plan(facts, stack)
        assert made.problems == ()
        assert made.roles.driver is not None
        if made.roles.driver.driver_change is not None:
            return made.roles.driver.driver_change
        facts = simulate_apply(facts, made)
    raise AssertionError("the package sources are written again and again")


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("flavour", ["open", "proprietary"])
def test_every_version_of_every_system_has_a_plan(name: str, flavour: str) -> None:
    system = SYSTEMS[name]
    for version in system.versions:
        if (name, flavour, version.partition(".")[0]) == ("sles15", "proprietary", "580"):
            continue  # SUSE compiles those with DKMS, and the table has no such package
        change = change_of(system, version, kernelModule=flavour)
        assert (change.version, change.flavour, change.manager) == (version, flavour, system.manager)
        assert {*change.kernels} == {*system.kernels}


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("ubuntu2404", [*SIGNED, *UBUNTU]),
        ("rocky9", ["kmod-nvidia-open-dkms", *DNF]),
        ("rhel8", ["kmod-nvidia-open-dkms", *DNF]),
        ("rocky10", ["kmod-nvidia-open-dkms", *DNF]),
        ("al2023", ["kmod-nvidia-open-dkms", *DNF]),
        ("sles15", [*SLES, "nvidia-open-driver-G06-signed-cuda-kmp-default"]),
    ],
)
def test_the_newest_version_is_these_packages_and_no_others(name: str, names: list[str]) -> None:
    change = change_of(SYSTEMS[name], SYSTEMS[name].versions[-1])
    assert [package.name for package in change.packages] == sorted(names)


@pytest.mark.parametrize(("flavour", "told"), [("auto", ["dracut"]), ("none", [])])
def test_what_rebuilds_initial_ram_disks_is_told_where_a_module_comes(flavour: str, told: list[str]) -> None:
    facts = replace(make_node(SYSTEMS["rocky10"]), initramfs=Initramfs(tool="dracut"))

    found = plan(facts, declare(SYSTEMS["rocky10"], SYSTEMS["rocky10"].versions[-1], kernelModule=flavour))
    after = plan(
        simulate_apply(facts, found), declare(SYSTEMS["rocky10"], SYSTEMS["rocky10"].versions[-1], kernelModule=flavour)
    )

    assert [each.value for each in after.derived if each.key == "driver.initramfs"] == told


@pytest.mark.parametrize(
    ("tool", "flavour", "told"),
    [("dracut", "auto", [DRACUT_PATH]), ("dracut", "none", []), ("initramfs-tools", "auto", []), ("none", "auto", [])],
)
def test_dracut_is_told_to_put_the_modules_parameters_into_its_disks(tool: str, flavour: str, told: list[str]) -> None:
    """Without `hostonly` it left them out: what it wrote had nouveau, and nothing that keeps it away."""
    facts = replace(make_node(SYSTEMS["rocky10"]), initramfs=Initramfs(tool=tool))
    stack = declare(SYSTEMS["rocky10"], SYSTEMS["rocky10"].versions[-1], kernelModule=flavour)
    facts = simulate_apply(facts, plan(facts, stack))  # the package source

    found = plan(facts, stack)

    assert [each.target for each in found.items if "dracut" in each.target] == told
    assert found.roles.driver is not None
    assert found.roles.driver.driver_change is not None
    files = {file.path: file.content for file in found.roles.driver.driver_change.files}
    assert [path for path in files if "dracut" in path] == told
    assert all(OPTIONS_PATH in files and OPTIONS_PATH in files[path] for path in told)
    assert [each for each in plan(simulate_apply(facts, found), stack).items if "dracut" in each.target] == []


def test_a_branch_that_ubuntu_has_ended_is_named_with_what_its_packages_became() -> None:
    """Packages of 535 are there on 26.04, and are those of 580: it said that no source has any."""
    facts, became = make_node(SYSTEMS["ubuntu2404"]), "580.173.02-0ubuntu0.26.04.1"
    empty = AvailablePackage(
        version=became, source="nvidia-graphics-drivers-580-server", depends=("nvidia-utils-580-server",)
    )
    facts = replace(facts, available={**facts.available, "nvidia-utils-535-server": (empty,)})

    (problem,) = plan(facts, declare(SYSTEMS["ubuntu2404"], "535.274.02")).problems

    assert problem.code == "version-not-available"
    assert "nvidia-utils-535-server is driver 580.173.02 in the node's package sources" in problem.message


@pytest.mark.parametrize(
    ("name", "version", "flavour", "stream", "dkms"),
    [
        ("rocky9", "570.133.20", "open", "570-open", "nvidia-open"),
        ("rocky9", "580.126.09", "open", "580-open", "nvidia"),
        ("rhel8", "580.95.05", "proprietary", "580-dkms", "nvidia"),
        ("al2023", "580.126.09", "open", "580-open", "nvidia"),
        ("rocky10", "580.126.09", "open", None, "nvidia"),
        ("sles15", "580.65.06", "open", None, None),
        ("ubuntu2404", "580.173.02", "open", None, None),
    ],
)
def test_a_module_stream_comes_with_the_driver(
    name: str, version: str, flavour: str, stream: str | None, dkms: str | None
) -> None:
    change = change_of(SYSTEMS[name], version, kernelModule=flavour)
    texts = {file.path: file.content for file in change.files}
    assert change.dkms == dkms
    assert (STREAM in texts) == (stream is not None)
    assert stream is None or f"\nstream={stream}\n" in texts[STREAM]


@pytest.mark.parametrize(
    ("name", "identity", "version_id", "codename"),
    [
        ("rocky9", "almalinux", "9.7", ""),
        ("rocky9", "rhel", "9.4", ""),
        ("rhel8", "almalinux", "8.10", ""),
        ("rhel8", "rocky", "8.10", ""),
        ("rocky10", "almalinux", "10.1", ""),
        ("rocky10", "rhel", "10.0", ""),
        ("ubuntu2404", "ubuntu", "22.04", "jammy"),
        ("ubuntu2404", "ubuntu", "26.04", "resolute"),
        ("sles15", "sles", "15.7", ""),
    ],
)
def test_a_relative_of_a_system_has_the_same_plan(name: str, identity: str, version_id: str, codename: str) -> None:
    system = SYSTEMS[name]
    said = dict(system.os_release) | {"ID": identity, "VERSION_ID": version_id, "VERSION_CODENAME": codename}
    relative = dataclasses.replace(system, os_release=tuple(said.items()))

    assert change_of(relative, system.versions[-1]) == change_of(system, system.versions[-1])


OWN, OTHER = "/usr/bin/python3", "/usr/bin/python3.11"
PYTHONS = {
    "Ubuntu 22.04": ({OWN: "3.10", "/usr/bin/python3.10": "3.10"}, (OWN, OWN, OWN)),
    "Ubuntu 26.04": ({OWN: "3.14", "/usr/bin/python3.14": "3.14", OTHER: "3.11"}, (OWN, OWN, OWN)),
    "a Python after all that are looked for": ({OWN: "3.15"}, (OWN, OWN, OWN)),
    "RHEL 9 with its python3.11": ({OWN: "3.9", "/usr/bin/python3.9": "3.9", OTHER: "3.11"}, (OWN, OWN, OTHER)),
    "RHEL 8 with python3.11 and no python3": ({"/usr/bin/python3.9": "3.9", OTHER: "3.11"}, (OTHER, OTHER, OTHER)),
    "SLES 15 with python311": ({OWN: "3.6", OTHER: "3.11"}, (OTHER, OTHER, OTHER)),
}


@pytest.mark.parametrize(("pythons", "chosen"), PYTHONS.values(), ids=PYTHONS)
def test_each_part_is_started_with_an_interpreter_that_its_system_has(
    pythons: dict[str, str], chosen: tuple[str, str, str]
) -> None:
    """On RHEL 9 and SLES 15 there was no way but another system: /usr/bin/python3 may not lead elsewhere there."""
    facts = make_facts()
    facts = replace(facts, node=replace(facts.node, pythons=pythons))

    found = plan(facts)

    driver, runtime, daemon = found.roles.driver, found.roles.runtime, found.roles.node_daemon
    assert driver is not None
    assert runtime is not None
    assert daemon is not None
    assert (driver.driver_python, runtime.runtime_hook_python, daemon.node_daemon_python) == chosen
    told = [each.value for each in found.derived if each.key == "python"]
    assert told == [path for path in chosen if path != OWN]
    done = simulate_apply(facts, found)
    assert not [item for item in plan(done).items if item.action is Action.DEPLOY]
    assert {name: each.python for name, each in done.installed.items() if each} == dict(
        zip(("driver", "hook", "node"), chosen, strict=True)
    )


def test_it_is_told_what_starts_a_part_and_why() -> None:
    facts = make_facts()
    facts = replace(facts, node=replace(facts.node, pythons={OWN: "3.9", OTHER: "3.11", "/usr/bin/python3.9": "3.9"}))

    (derived,) = [each for each in plan(facts).derived if each.key == "python"]

    assert derived.value == OTHER
    assert derived.reason == "starts grapnel's node daemon, which needs 3.10 or later: /usr/bin/python3 is 3.9"


def test_a_part_follows_when_its_interpreter_goes_and_when_another_comes() -> None:
    facts = make_facts()
    facts = replace(facts, node=replace(facts.node, pythons={OWN: "3.9", OTHER: "3.11"}))
    done = simulate_apply(facts, plan(facts))

    for pythons, after in (
        ({OWN: "3.9", "/usr/bin/python3.12": "3.12"}, "/usr/bin/python3.12"),
        ({OWN: "3.12"}, OWN),
    ):
        found = plan(replace(done, node=replace(done.node, pythons=pythons)))
        (item,) = [item for item in found.items if item.action is Action.DEPLOY]
        assert (item.target, item.from_, item.to) == ("node", OTHER, after)
        assert ("restart", "grapnel-node.service") in [(one.action, one.target) for one in found.items]
