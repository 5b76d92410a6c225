"""What is in the way is named with a hint, and a plan with problems has nothing to apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.node import (
    Engine,
    InstalledPackage,
    LockHolder,
    OperatingSystem,
    Service,
)
from provision.planning.engines.containerd.imports import MAIN_PATH
from provision.planning.node_plan import Role, Roles
from tests.provision.samples import (
    GPU,
    available,
    configured,
    edit_file,
    edit_file_state,
    edit_package_manager,
    make_facts,
    make_stack,
    plan,
    replace,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.declaration.fleet.facts.node import NodeFacts

    Change = Callable[[NodeFacts], NodeFacts]

PROBLEMS: dict[str, tuple[Change, dict[str, dict[str, object]], str, str]] = {
    "an old ubuntu": (
        lambda facts: replace(
            facts, node=replace(facts.node, os=OperatingSystem(id="ubuntu", version_id="20.04", codename="focal"))
        ),
        {},
        "unsupported-os",
        "n1 runs ubuntu 20.04, which is not supported yet",
    ),
    "another architecture": (
        lambda facts: replace(facts, node=replace(facts.node, architecture="ppc64le")),
        {},
        "unsupported-os",
        "n1 has architecture ppc64le, which is not supported yet",
    ),
    "a flavour that the GPU cannot run": (
        lambda facts: replace(facts, gpus=(replace(GPU, device="1b38"),)),  # Tesla P40
        {"driver": {"kernelModule": "open"}},
        "flavour-not-supported",
        "driver.kernelModule is open, which does not support Tesla P40",
    ),
    "a branch that the GPU cannot run": (
        lambda facts: replace(facts, gpus=(replace(GPU, device="1b38"),)),
        {"driver": {"version": "595.58.03", "kernelModule": "auto"}},
        "branch-too-new",
        "driver 595.58.03 does not support Tesla P40: branch 580 is the last one that does",
    ),
    "a capability without packages": (
        lambda facts: facts,
        {"driver": {"capabilities": ["compute", "compat32"]}},
        "unsupported-capability",
        "driver.capabilities has compat32, which source distribution has no packages for on debian 13 (trixie)",
    ),
    "an import that leads nowhere": (
        lambda facts: replace(
            edit_file(facts, MAIN_PATH, 'version = 2\nimports = ["/opt/site.toml"]\n'),
            engines={"containerd": Engine(binary="/x", version="1.7.24", imports={"/opt/site.toml": ()})},
            services={"containerd.service": Service(load="loaded", active="active", enabled="enabled")},
        ),
        {},
        "engine-config",
        (
            "/etc/containerd/config.toml, line 2, imports /opt/site.toml, which is not there or is no text: containerd "
            "does not start with that"
        ),
    ),
    "a version that does not exist": (
        lambda facts: facts,
        {"driver": {"version": "551.61"}},
        "version-not-available",
        "driver 551.61 is in no package source of the node; nearest: 550.163.01, 535.309.01, 535.261.03",
    ),
    "no driver packages at all": (
        lambda facts: replace(facts, available={"containerd": available()["containerd"]}),
        {},
        "version-not-available",
        (
            "driver 550.163.01 is not available: no package source of the node has libcuda1, libnvidia-ml1, nvidia-smi"
            " at all"
        ),
    ),
    "a package of the closure missing": (
        lambda facts: replace(
            facts,
            available={
                name: tuple(each for each in versions if (name, each.version) != ("nvidia-alternative", "550.163.01-2"))
                for name, versions in available().items()
            },
        ),
        {},
        "driver-closure-incomplete",
        "driver 550.163.01 is not complete in the node's package sources: no nvidia-alternative at 550.163.01-2",
    ),
    "packages of another driver": (
        lambda facts: replace(
            facts,
            packages={
                "nvidia-tesla-535-alternative": InstalledPackage(
                    version="535.274.02-1", source="nvidia-graphics-drivers-tesla-535"
                )
            },
        ),
        {},
        "driver-foreign-packages",
        "n1 has packages of another NVIDIA driver: nvidia-tesla-535-alternative",
    ),
    "a locked package manager": (
        lambda facts: edit_package_manager(facts, locked_by=LockHolder(pid=812, command="apt-get upgrade")),
        {},
        "package-manager-locked",
        "apt on n1 is in use by apt-get upgrade (pid 812)",
    ),
    "no engine and none wanted": (
        lambda facts: facts,
        {"runtime": {"install": False}},
        "engine-missing",
        "n1 has no containerd, and runtime.install is false",
    ),
    "an engine that no distribution has": (
        lambda facts: facts,
        {"runtime": {"engine": "crio"}},
        "engine-missing",
        "n1 has no crio, and debian has no package of it",
    ),
    "no package of the engine": (
        lambda facts: replace(
            facts, available={name: each for name, each in available().items() if name != "containerd"}
        ),
        {},
        "package-not-available",
        "no package source of n1 has containerd",
    ),
    "an interrupted dpkg that nobody repairs": (
        lambda facts: edit_package_manager(facts, interrupted=True),
        {"driver": {"enabled": False}},
        "package-manager-interrupted",
        "dpkg on n1 was interrupted, so containerd cannot be installed",
    ),
    "a kernel without the calls of the hook": (
        lambda facts: replace(facts, node=replace(facts.node, kernel="4.18.0-553.el8_10.x86_64")),
        {},
        "kernel-too-old",
        (
            "n1 runs Linux 4.18.0-553.el8_10.x86_64, and the hook needs 5.12 or later: no container with a GPU would "
            "start"
        ),
    ),
    "a Python that is too old for the daemon": (
        lambda facts: replace(facts, node=replace(facts.node, python="3.9")),
        {},
        "unsupported-python",
        "n1 has Python 3.9, and grapnel's node daemon needs 3.10 or later",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("change", "sections", "code", "message"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_a_problem_is_named_and_leaves_nothing_to_apply(
    change: Change, sections: dict[str, dict[str, object]], code: str, message: str
) -> None:
    result = plan(change(make_facts()), make_stack(**sections))

    assert [(problem.code, problem.message) for problem in result.problems] == [(code, message)]
    assert result.problems[0].hint
    assert result.roles == Roles()


def test_a_system_that_becomes_another_release_is_not_changed_meanwhile() -> None:
    facts = edit_package_manager(make_facts(), release_upgrade="/system-update")

    result = plan(facts)

    assert [problem.code for problem in result.problems] == ["release-upgrade"]
    assert result.items
    assert result.roles == Roles()


def test_one_that_is_as_declared_is_told_about_it() -> None:
    result = plan(edit_package_manager(configured(), release_upgrade="/system-update"))

    assert (result.items, result.problems) == ((), ())
    assert [warning.code for warning in result.warnings] == ["release-upgrade"]


def test_what_is_not_there_is_told_with_the_release_that_the_sources_are_locked_to() -> None:
    facts = edit_package_manager(make_facts(), release_lock="2023.9.20251117")

    (problem,) = plan(facts, make_stack(driver={"version": "999.1.01"})).problems

    assert problem.code == "version-not-available"
    assert "locked to release 2023.9.20251117" in problem.hint


ENGINE_PROBLEMS: dict[str, tuple[Change, str, str]] = {
    "a main file that does not parse": (
        lambda facts: edit_file(facts, MAIN_PATH, "version = 2\nroot = \n"),
        "engine-config",
        f"{MAIN_PATH}: invalid value (at line 2, column 8)",
    ),
    "a main file that the engine refuses": (
        lambda facts: replace(
            facts,
            engines={"containerd": Engine(binary="/usr/bin/containerd", version="1.7.24", config_error="no such key")},
        ),
        "engine-config",
        "containerd on n1 refuses its configuration: no such key",
    ),
    "a main file that is too large": (
        lambda facts: edit_file_state(facts, MAIN_PATH, content=None),
        "engine-config",
        f"{MAIN_PATH} is not text, or is too large",
    ),
    "an engine without a service": (
        lambda facts: replace(facts, services={"containerd.service": Service()}),
        "engine-service",
        "n1 has containerd, but systemd says that containerd.service is not-found",
    ),
}


@pytest.mark.parametrize(("change", "code", "message"), ENGINE_PROBLEMS.values(), ids=ENGINE_PROBLEMS.keys())
def test_an_engine_that_cannot_be_added_to_is_left_alone(change: Change, code: str, message: str) -> None:
    result = plan(change(configured()))

    assert [(problem.code, problem.message) for problem in result.problems] == [(code, message)]
    assert not [item for item in result.items if item.role is Role.RUNTIME]


@pytest.mark.parametrize("kernel", ["5.12.0", "5.14.0-570.12.1.el9_6.x86_64", "10.0-rc1", "linux-next"])
def test_a_kernel_that_has_them_is_no_problem(kernel: str) -> None:
    facts = make_facts()
    assert plan(replace(facts, node=replace(facts.node, kernel=kernel))).problems == ()


@pytest.mark.parametrize("kernel", ["4.18.0-553.el8_10.x86_64", "5.3.18-150300.59.204-default", "5.11.22"])
def test_without_the_hook_an_older_kernel_gets_its_driver(kernel: str) -> None:
    """RHEL 8 and SLES 15 up to SP3: the hook's calls were missed by the first container."""
    facts = configured()
    facts = replace(facts, node=replace(facts.node, kernel=kernel))
    assert [each.code for each in plan(facts).problems] == ["kernel-too-old"]

    bare = replace(make_facts(), node=facts.node)
    result = plan(bare, make_stack(runtime={"enabled": False}, plugin={"enabled": False}))
    assert result.problems == ()
    assert {item.role for item in result.items} == {Role.DRIVER}


@pytest.mark.parametrize(
    ("pythons", "told"),
    [
        ({"/usr/bin/python3": "3.6"}, "has Python 3.6"),
        ({"/usr/bin/python3": "3.6", "/usr/bin/python3.8": "3.8"}, "has Python 3.8"),
        ({}, "has no Python in /usr/bin"),
        ({"/usr/bin/python3": "3.9"}, None),
        ({"/usr/bin/python3.11": "3.11"}, None),
        (None, None),
    ],
)
def test_a_python_that_cannot_start_the_programs_is_told_before_they_are_sent(
    pythons: dict[str, str] | None, told: str | None
) -> None:
    """Ansible may have found another one: below /usr/local, whose root is not the distribution's, or in a home."""
    facts = make_facts()
    facts = replace(facts, node=replace(facts.node, python="3.11", pythons=pythons))
    for name, sections in (
        ("driver program", {"runtime": {"enabled": False}}),
        ("hook", {"driver": {"enabled": False}}),
    ):
        found = plan(facts, make_stack(plugin={"enabled": False}, **sections)).problems
        expected = [] if told is None else [f"n1 {told}, and grapnel's {name} needs 3.9 or later"]
        assert [each.message for each in found] == expected


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("dnf", "`dnf install python3.11` on it"),
        ("zypper", "`zypper install python311`, of the Python 3 Module (SP4 or later), on it"),
        ("apt", "install a later one as /usr/bin/python3.N on it"),
    ],
)
def test_a_node_without_a_python_that_will_do_is_told_how_to_get_one(manager: str, command: str) -> None:
    facts = edit_package_manager(make_facts(), name=manager)
    facts = replace(facts, node=replace(facts.node, pythons={"/usr/bin/python3": "3.6"}))
    found = plan(facts, make_stack(driver={"enabled": False}, runtime={"enabled": False})).problems
    assert [each.hint for each in found] == [f"{command}, and plan again: /usr/bin/python3 stays as it is"]


def test_a_failed_refresh_of_the_lists_is_part_of_the_hint() -> None:
    manager = replace(make_facts().package_manager, lists_error="could not resolve the mirror")

    result = plan(make_facts(package_manager=manager), make_stack(driver={"version": "555.58.02"}))

    assert result.problems[0].hint.endswith("could not be refreshed: could not resolve the mirror")
