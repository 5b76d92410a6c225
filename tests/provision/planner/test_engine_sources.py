"""Which package an engine is on which system, from which source, at which version, and what stands in its way."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision.apply.gate import will_need_drain
from provision.declaration.fleet.facts.node import (
    AvailablePackage,
    Engine,
    InstalledPackage,
    OperatingSystem,
)
from provision.planning.engines.containerd.configuration import render_containerd
from provision.planning.node_plan import Action
from provision.planning.render.errors import EngineConfigError
from provision.planning.render.package_source import apt_source_path, repo_path, rpm_key_path
from tests.provision.planner.engine_nodes import (
    ALONE,
    KEY,
    REPO,
    crio,
    knowing,
    only_problem,
    rocky,
    shown,
    stack,
    suse,
    with_engine,
)
from tests.provision.samples import (
    RUNNING,
    edit_file,
    edit_package,
    edit_package_manager,
    make_facts,
    make_stack,
    plan,
    replace,
)

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

RECORDED = Path(__file__).parents[1] / "render/data/containerd/docker-package.toml"
DOCKERS = f'# a comment\n\n{RECORDED.read_text()}\n#root = "/var/lib/containerd"\n'


def test_a_package_source_comes_before_what_it_has() -> None:
    facts, declared = rocky(), stack()

    first = plan(facts, declared)
    second = plan(knowing(facts, declared), declared)

    assert shown(first) == [
        ("write", rpm_key_path("docker"), None, False),
        ("write", REPO, None, False),
        ("install", "containerd.io", None, True),
    ]
    assert shown(second)[0] == ("install", "containerd.io", None, False)
    assert second.roles.runtime is not None
    assert second.roles.runtime.runtime_packages == ("containerd.io",)


@pytest.mark.parametrize(
    ("system", "manager", "url", "expected"),
    [
        (("rocky", "9.6", ""), "dnf", None, "baseurl=https://download.docker.com/linux/rhel/9/x86_64/stable\n"),
        (("rhel", "10.1", ""), "dnf", None, "baseurl=https://download.docker.com/linux/rhel/10/x86_64/stable\n"),
        (("almalinux", "9.5", ""), "dnf", "https://m.example.com/d", "baseurl=https://m.example.com/d\n"),
        (
            ("ubuntu", "24.04", "noble"),
            "apt",
            None,
            "URIs: https://download.docker.com/linux/ubuntu\nSuites: noble\nComponents: stable\n",
        ),
        (
            ("debian", "13", "trixie"),
            "apt",
            "https://m.example.com/d",
            "URIs: https://m.example.com/d\nSuites: trixie\n",
        ),
    ],
)
def test_every_system_is_told_its_own_folder(
    system: tuple[str, str, str], manager: str, url: str | None, expected: str
) -> None:
    facts = edit_package_manager(rocky(), name=manager)
    identity, version_id, codename = system
    os = OperatingSystem(id=identity, version_id=version_id, codename=codename)

    found = plan(replace(facts, node=replace(facts.node, os=os)), stack(repository={"key": KEY, "url": url}))

    assert found.roles.runtime is not None
    texts = {file.path: file.content for file in found.roles.runtime.runtime_sources}
    assert expected in texts[REPO if manager == "dnf" else apt_source_path("docker")]
    assert KEY in texts.values()


@pytest.mark.parametrize(
    ("facts", "runtime", "code", "message"),
    [
        (
            rocky(),
            {"source": "distribution", "repository": None},
            "engine-missing",
            "n1 has no containerd, and rocky has no package of it",
        ),
        (
            replace(rocky(), node=replace(rocky().node, os=OperatingSystem(id="amzn", version_id="2023"))),
            {},
            "engine-missing",
            "n1 has no containerd, and Docker's repository for amzn has no package of it",
        ),
        (
            rocky("runc"),
            {},
            "engine-packages-conflict",
            "containerd.io would take runc 4:1.3.6-1.el9 off n1: they cannot be beside it",
        ),
        (
            rocky("runc", "docker"),
            {"engine": "docker"},
            "engine-packages-conflict",
            "docker-ce would take runc 4:1.3.6-1.el9, docker 4:1.3.6-1.el9 off n1: they cannot be beside it",
        ),
    ],
)
def test_what_cannot_be_installed_is_told_before_anything_is_written(
    facts: NodeFacts, runtime: dict[str, object], code: str, message: str
) -> None:
    problem = only_problem(plan(facts, stack(**runtime)))

    assert (problem.code, problem.message) == (code, message)


def test_a_source_that_could_not_be_read_says_why() -> None:
    declared = stack()
    facts = replace(knowing(rocky(), declared), available={})
    refused = "Error: Failed to download metadata for repo 'grapnel-docker': GPG key has expired"

    problem = only_problem(plan(edit_package_manager(facts, lists_error=refused), declared))

    assert problem.code == "package-not-available"
    assert problem.hint.startswith("declare the key that signs it now")
    assert problem.hint.endswith(f"the package lists could not be refreshed: {refused}")


def test_no_source_without_a_suite_is_written_which_apt_could_not_read() -> None:
    facts = make_facts()
    testing = replace(facts, node=replace(facts.node, os=OperatingSystem(id="debian", version_id="13")))

    problem = only_problem(plan(testing, stack()))

    assert problem.code == "engine-missing"


def test_podman_is_a_systems_own() -> None:
    found = plan(rocky(), stack(source="distribution", repository=None, engine="podman"))

    assert shown(found)[0] == ("install", "podman", None, False)


def test_nobody_is_told_of_a_source_that_was_not_declared() -> None:
    facts = with_engine(rocky(), "2.2.1")

    assert plan(facts, make_stack(**ALONE, runtime={"entitlement": "env"})).warnings == ()


@pytest.mark.parametrize(("engine", "version"), [("1.7.27", 2), ("2.2.1", 3)])
def test_the_line_that_dockers_package_brings_goes(engine: str, version: int) -> None:
    files = render_containerd(main=DOCKERS, drop_ins={}, handlers=("nvidia",), engine_version=engine)

    comments = [line for line in DOCKERS.splitlines() if line.startswith("#")]
    assert tomllib.loads(files.main) == {"version": version, "imports": ["/etc/containerd/conf.d/*.toml"]}
    assert [line for line in files.main.splitlines() if line.startswith("#")] == comments


def test_that_line_stays_beside_settings_of_the_site() -> None:
    with pytest.raises(EngineConfigError):
        render_containerd(main=f'root = "/data"\n{DOCKERS}', drop_ins={}, handlers=("nvidia",), engine_version="2.2.1")


@pytest.mark.parametrize("system", ["dnf", "apt"])
def test_a_package_source_that_is_not_declared_any_more_goes_and_what_came_from_it_stays(system: str) -> None:
    """It stayed on the node until everything of grapnel's was removed."""
    facts, declared = edit_package_manager(rocky(), name=system), stack()
    if system == "apt":
        ubuntu = OperatingSystem(id="ubuntu", version_id="24.04", codename="noble")
        facts = replace(facts, node=replace(facts.node, os=ubuntu))
    before = facts.files
    facts = with_engine(knowing(facts, declared), "2.2.1")
    paths = facts.files.keys() - before.keys()
    assert len(paths) == 2
    former = stack(source="distribution", repository=None)

    found = plan(facts, former)

    gone = [item for item in found.items if item.action is Action.REMOVE]
    assert {item.target for item in gone} == paths
    assert {item.reason for item in gone} == {
        "runtime.source is not docker any more: containerd.io stays, and gets nothing newer from there"
    }
    assert not will_need_drain(found)
    assert found.roles.runtime is not None
    assert set(found.roles.runtime.runtime_absent) == paths
    for path in paths:
        facts = edit_file(facts, path, None)
    assert not any(item.action is Action.REMOVE for item in plan(facts, former).items)


def test_a_node_with_another_package_manager_has_a_plan() -> None:
    """It had a bug in place of its plan, whatever was declared."""
    facts = edit_package_manager(with_engine(rocky(), "2.2.1"), name="pacman")
    found = plan(facts, make_stack(**ALONE, runtime={"entitlement": "env"}))
    assert found.problems == ()
    assert found.roles.runtime is not None


@pytest.mark.parametrize("engine", ["containerd", "docker", "podman"])
def test_the_containers_module_of_suse_has_the_engines(engine: str) -> None:
    declared = make_stack(**ALONE, runtime={"entitlement": "env", "engine": engine})

    found = plan(suse(engine), declared)

    assert found.problems == ()
    assert shown(found)[0] == ("install", engine, None, False)


def test_suses_containerd_comes_with_the_client_that_tells_whether_it_works() -> None:
    found = plan(suse("containerd"), make_stack(**ALONE, runtime={"entitlement": "env", "hold": True}))

    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_packages == ("containerd", "containerd-ctr")
    assert found.roles.runtime.runtime_hold == ("containerd",)
    assert not any(item.deferred for item in found.items)


CRIOS = "https://download.opensuse.org/repositories/isv:/cri-o:/stable:/v1.36"


@pytest.mark.parametrize(
    ("facts", "declared", "path", "expected"),
    [
        (rocky(), crio(), repo_path("dnf", "cri-o"), f"baseurl={CRIOS}/rpm\n"),
        (suse(), crio(), repo_path("zypper", "cri-o"), f"baseurl={CRIOS}/rpm\n"),
        (make_facts(), crio(), apt_source_path("cri-o"), f"URIs: {CRIOS}/deb\nSuites: /\nSigned-By:"),
        (
            rocky(),
            crio(version=None, repository={"key": KEY, "url": "https://m.example.com/cri-o/"}),
            repo_path("dnf", "cri-o"),
            "baseurl=https://m.example.com/cri-o/rpm\n",
        ),
    ],
    ids=["dnf", "zypper", "apt", "a mirror"],
)
def test_crio_comes_from_the_repository_of_its_minor_version(
    facts: NodeFacts, declared: StackSpec, path: str, expected: str
) -> None:
    first = plan(facts, declared)

    assert first.roles.runtime is not None
    assert expected in {file.path: file.content for file in first.roles.runtime.runtime_sources}[path]
    assert shown(first)[-1] == ("install", "cri-o", None, True)
    offered = AvailablePackage(version="1.36.3-1.1", source="cri-o")
    second = plan(replace(knowing(facts, declared), available={"cri-o": (offered,)}), declared)
    assert second.problems == ()
    assert second.roles.runtime is not None
    names = ("cri-o", "container-selinux") if facts.node.os.id == "rocky" else ("cri-o",)
    assert second.roles.runtime.runtime_packages == names


def test_the_source_of_crio_goes_when_it_is_not_declared_any_more() -> None:
    facts = knowing(rocky(), crio())

    found = plan(facts, stack(source="distribution", repository=None, engine="podman"))

    gone = {item.target: item.reason for item in found.items if item.action is Action.REMOVE}
    assert gone == dict.fromkeys(
        (repo_path("dnf", "cri-o"), rpm_key_path("cri-o")), "runtime.source is not crio any more"
    )


def test_a_system_without_crio_says_whose_repository_has_it() -> None:
    problem = only_problem(plan(rocky(), stack(source="distribution", repository=None, engine="crio")))

    assert problem.code == "engine-missing"
    assert problem.hint.startswith("declare runtime.source: crio; or ")


def debian(*names: str) -> NodeFacts:
    """Return the facts of a Debian that has packages of these names, and is offered its own of Docker."""
    offered = AvailablePackage(version="26.1.5+dfsg1-9", source="docker.io")
    installed = {name: InstalledPackage(version="2.2.1-1", source=name) for name in names}
    return make_facts(available={"docker.io": (offered,)}, packages=installed)


DEBIANS_DOCKER = make_stack(**ALONE, runtime={"entitlement": "env", "engine": "docker"})


def test_debians_docker_does_not_take_dockers_containerd_away() -> None:
    problem = only_problem(plan(debian("containerd.io"), DEBIANS_DOCKER))

    assert problem.code == "engine-packages-conflict"
    assert "docker.io would take containerd.io 2.2.1-1 off n1" in problem.message
    assert problem.hint.endswith("or declare runtime.source: docker")


def test_a_docker_in_a_snap_is_told_before_another_one_is_put_beside_it() -> None:
    facts = debian()
    facts = replace(facts, services={**facts.services, "snap.docker.dockerd.service": RUNNING})

    assert only_problem(plan(facts, DEBIANS_DOCKER)).code == "engine-in-a-snap"
    assert plan(debian(), DEBIANS_DOCKER).problems == ()


@pytest.mark.parametrize(("facts", "where"), [(rocky(), "exclude="), (suse("containerd"), "zypper locks")])
def test_a_package_that_somebody_keeps_away_is_not_installed(facts: NodeFacts, where: str) -> None:
    name = "podman" if facts.package_manager.name == "dnf" else "containerd"
    declared = stack(source="distribution", repository=None, engine=name)

    problem = only_problem(plan(edit_package_manager(facts, left_out=("runc", name)), declared))

    assert problem.code == "engine-left-out"
    assert where in problem.message
    assert plan(edit_package_manager(facts, left_out=("runc",)), declared).problems == ()
    ours = replace(edit_package_manager(facts, left_out=(name,)), engine_holds=(name,))
    assert plan(ours, declared).problems == ()


def test_an_engine_that_is_half_installed_is_told_unless_the_drivers_packages_are_repaired_anyway() -> None:
    facts = edit_package(with_engine(rocky(), "2.2.1"), "containerd.io", status="half-configured")
    declared = make_stack(**ALONE, runtime={"entitlement": "env"})

    problem = only_problem(plan(facts, declared))

    assert problem.code == "engine-half-installed"
    assert "containerd.io (half-configured)" in problem.message
    assert plan(edit_package(facts, "containerd.io", status="installed"), declared).problems == ()


def test_an_engine_from_an_archive_is_not_of_the_declared_source_and_that_is_told() -> None:
    facts = replace(with_engine(rocky(), "2.2.1"), packages={})
    engine = Engine(binary="/usr/local/bin/containerd", version="2.2.1")

    (warning,) = plan(replace(facts, engines={"containerd": engine}), stack()).warnings

    assert warning.code == "engine-of-another-source"
    assert "containerd 2.2.1 of no known package (/usr/local/bin/containerd)" in warning.message
