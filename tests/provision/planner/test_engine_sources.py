"""Which package an engine is on which system, from which source, at which version, and what stands in its way."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision.apply.gate import needs_staging, will_need_drain
from provision.declaration.fleet.facts.node import (
    AvailablePackage,
    Engine,
    InstalledPackage,
    OperatingSystem,
    PackageManager,
    StagedEngine,
)
from provision.planning.engines.containerd.configuration import render_containerd
from provision.planning.node_plan import Action, Disruption, Roles
from provision.planning.render.errors import EngineConfigError
from provision.planning.render.package_source import apt_source_path, repo_path, rpm_key_path
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
    from provision.planning.node_plan import NodePlan, Problem

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ==\n-----END PGP PUBLIC KEY BLOCK-----\n"
REPO = repo_path("dnf", "docker")
OFFERED = ("2.2.1-1.el9", "2.4.2-1.el9", "2.4.2-3.el9")
ALONE: dict[str, dict[str, object]] = {"driver": {"enabled": False}, "plugin": {"enabled": False}}
RECORDED = Path(__file__).parents[1] / "render/data/containerd/docker-package.toml"
DOCKERS = f'# a comment\n\n{RECORDED.read_text()}\n#root = "/var/lib/containerd"\n'


def stack(**runtime: object) -> StackSpec:
    """Return a declaration of an engine alone, of Docker's repository unless it says another source."""
    of_docker = {"source": "docker", "repository": {"key": KEY}}
    return make_stack(**ALONE, runtime={"entitlement": "env", **of_docker, **runtime})


def rocky(*names: str, release: str = "9.6") -> NodeFacts:
    """Return the facts of a bare Rocky Linux that has packages of these names, and knows what Docker offers."""
    facts = make_facts(
        package_manager=PackageManager(name="dnf", lists_age_s=12),
        packages={name: InstalledPackage(version="4:1.3.6-1.el9", source=name) for name in names},
        available={
            "containerd.io": tuple(AvailablePackage(version=each, source="containerd.io") for each in OFFERED),
            "podman": (AvailablePackage(version="4:5.4.0-1.el9", source="podman"),),
        },
    )
    system = OperatingSystem(id="rocky", version_id=release)
    return replace(facts, node=replace(facts.node, os=system, kernel="5.14.0-570.el9.x86_64"))


def knowing(facts: NodeFacts, declared: StackSpec) -> NodeFacts:
    """Return the facts after the package source was written."""
    for file in plan(facts, declared).roles.runtime.runtime_sources:  # type: ignore[union-attr]
        facts = edit_file(facts, file.path, file.content)
    return facts


def with_engine(facts: NodeFacts, version: str, package: str = "containerd.io") -> NodeFacts:
    return replace(
        facts,
        engines={"containerd": Engine(binary="/usr/bin/containerd", version=version)},
        packages={package: InstalledPackage(version=f"{version}-1.el9", source=package)},
        services={"containerd.service": RUNNING, "grapnel-inventory.path": RUNNING},
    )


def with_staged(facts: NodeFacts, version: str, *, complete: bool = True) -> NodeFacts:
    """Return the facts of a node on which a containerd.io lies ready."""
    return replace(facts, engine_staged=StagedEngine(packages={"containerd.io": version}, complete=complete))


def suse(*names: str) -> NodeFacts:
    """Return the facts of a bare SLES whose Containers Module has these packages."""
    system = OperatingSystem(id="sles", version_id="15.6")
    facts = edit_package_manager(rocky(), name="zypper")
    offered = {name: (AvailablePackage(version="1.7.27-150000.123.1", source=name),) for name in names}
    return replace(facts, available=offered, node=replace(facts.node, os=system, kernel="6.4.0-150600.23.53-default"))


def crio(**runtime: object) -> StackSpec:
    """Return a declaration of CRI-O from its own repository."""
    of_crio = {"engine": "crio", "source": "crio", "version": "1.36.3", "repository": {"key": KEY}}
    return make_stack(**ALONE, runtime={"entitlement": "env", **of_crio, **runtime})


def shown(found: NodePlan) -> list[tuple[str, str, str | None, bool]]:
    return [(item.action.value, item.target, item.to, item.deferred) for item in found.items]


def only_problem(found: NodePlan) -> Problem:
    (problem,) = found.problems
    assert found.roles == Roles()
    return problem


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


def test_the_newest_package_of_a_declared_version_is_installed() -> None:
    declared = stack(version="2.4.2")

    found = plan(knowing(rocky(), declared), declared)

    assert shown(found)[0] == ("install", "containerd.io", "2.4.2-3.el9", False)
    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_versions == {"containerd.io": "2.4.2-3.el9"}


@pytest.mark.parametrize("is_there", [False, True])
def test_a_version_that_no_source_has_is_told_with_those_that_it_has(is_there: bool) -> None:  # noqa: FBT001
    declared = stack(version="2.9.0")
    facts = knowing(rocky(), declared)

    problem = only_problem(plan(with_engine(facts, "2.2.1") if is_there else facts, declared))

    assert problem.code == "engine-version-not-available"
    assert problem.message == "no package source of n1 has containerd.io 2.9.0: they have 2.2.1, 2.4.2"


@pytest.mark.parametrize(
    ("there", "declared", "action", "to"),
    [("2.2.1", "2.4.2", "upgrade", "2.4.2-3.el9"), ("2.4.2", "2.2.1", "downgrade", "2.2.1-1.el9")],
)
def test_an_engine_of_another_version_is_exchanged_out_of_service(
    there: str, declared: str, action: str, to: str
) -> None:
    wanted = stack(version=declared)
    facts = with_engine(knowing(rocky(), wanted), there)

    found = plan(with_staged(facts, to), wanted)

    (change,) = [item for item in found.items if item.target == "containerd.io"]
    assert (change.action.value, change.from_, change.to, change.deferred) == (action, f"{there}-1.el9", to, False)
    assert found.disruption.value == "drain"
    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_service == "containerd.service"


@pytest.mark.parametrize(
    "lies",
    [
        pytest.param(None, id="nothing lies ready"),
        pytest.param(StagedEngine(packages={"containerd.io": "2.4.2-1.el9"}, complete=True), id="a former revision"),
        pytest.param(StagedEngine(packages={"containerd.io": "2.4.2-3.el9"}), id="not as it was staged"),
    ],
)
def test_its_packages_lie_ready_before_the_node_leaves_service(lies: StagedEngine | None) -> None:
    wanted = stack(version="2.4.2")
    facts = replace(with_engine(knowing(rocky(), wanted), "2.2.1"), engine_staged=lies)

    found = plan(facts, wanted)

    assert [row for row in shown(found) if row[1] == "containerd.io"] == [
        ("stage", "containerd.io", "2.4.2-3.el9", False),
        ("upgrade", "containerd.io", "2.4.2-3.el9", True),
    ]
    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_stage == {"containerd.io": "2.4.2-3.el9"}
    assert found.roles.runtime.runtime_packages == ()
    assert needs_staging(found)
    assert not needs_staging(plan(with_staged(facts, "2.4.2-3.el9"), wanted))


def test_what_lies_ready_is_exchanged_where_no_source_answers() -> None:
    wanted = stack(version="2.4.2")
    facts = with_staged(with_engine(knowing(rocky(), wanted), "2.2.1"), "2.4.2-3.el9")

    found = plan(replace(facts, available={}), wanted)

    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_versions == {"containerd.io": "2.4.2-3.el9"}
    assert found.roles.runtime.runtime_stage is None


@pytest.mark.parametrize("complete", [True, False], ids=["not declared any more", "of a killed run"])
def test_what_lies_ready_for_nothing_goes(complete: bool) -> None:  # noqa: FBT001
    wanted = stack(version="2.2.1")
    facts = with_staged(with_engine(knowing(rocky(), wanted), "2.2.1"), "2.4.2-3.el9", complete=complete)

    found = plan(facts, wanted)

    assert ("remove", "staged engine packages", None, False) in shown(found)
    assert found.roles.runtime is not None
    assert found.roles.runtime.runtime_stage == {}
    assert not needs_staging(found)
    assert found.disruption is not Disruption.DRAIN


def test_an_exchange_that_waits_for_the_package_source_is_in_the_plan_from_the_beginning() -> None:
    """Else the node would serve as its source is written, and the apply end with what takes it out of service."""
    wanted = stack(version="2.4.2")
    facts = with_engine(rocky(), "2.2.1")

    first = plan(facts, wanted)

    (change,) = [item for item in first.items if item.target == "containerd.io"]
    assert (change.action.value, change.to, change.deferred) == ("upgrade", None, True)
    assert will_need_drain(first)
    assert first.roles.runtime is not None
    assert first.roles.runtime.runtime_packages == ()
    assert needs_staging(first)
    assert first.roles.runtime.runtime_stage == {}
    assert [file.path for file in first.roles.runtime.runtime_sources] == [rpm_key_path("docker"), REPO]


def test_an_engine_that_somebody_holds_is_not_exchanged() -> None:
    wanted = stack(version="2.4.2")
    facts = edit_package(with_engine(knowing(rocky(), wanted), "2.2.1"), "containerd.io", hold=True)

    problem = only_problem(plan(facts, wanted))

    assert problem.code == "engine-held"
    assert "dnf versionlock delete containerd.io" in problem.hint
    assert plan(facts, stack(version="2.2.1")).problems == ()


def test_another_revision_of_the_declared_version_is_left_alone() -> None:
    wanted = stack(version="2.4.2")
    facts = with_engine(knowing(rocky(), wanted), "2.4.2")

    assert "containerd.io" not in {item.target for item in plan(facts, wanted).items}


def test_an_engine_of_another_source_stays_and_is_told() -> None:
    facts = with_engine(rocky(), "2.2.1", package="containerd")

    found, refused = plan(facts, stack()), plan(facts, stack(version="2.4.2"))

    assert [each.code for each in found.warnings] == ["engine-of-another-source"]
    assert REPO not in {item.target for item in found.items}
    assert only_problem(refused).code == "engine-of-another-source"


@pytest.mark.parametrize(
    ("facts", "has"),
    [
        pytest.param(with_engine(make_facts(), "2.2.1"), "containerd.io", id="of a source that was not declared"),
        pytest.param(
            replace(with_engine(make_facts(), "2.2.1"), packages={}),
            "containerd 2.2.1 of no known package (/usr/bin/containerd)",
            id="of no package",
        ),
        pytest.param(with_engine(rocky(), "2.2.1"), "containerd.io", id="of a system that has none"),
    ],
)
def test_a_version_that_cannot_be_brought_is_told_and_one_that_is_there_is_no_matter(
    facts: NodeFacts, has: str
) -> None:
    """Nothing of a plan is left undone without a word."""

    def planned(version: str) -> NodePlan:
        return plan(facts, make_stack(**ALONE, runtime={"entitlement": "env", "version": version}))

    problem = only_problem(planned("2.4.2"))
    assert problem.code == "engine-of-another-source"
    assert f"n1 has {has}, and runtime.source distribution has " in problem.message
    assert planned("2.2.1").problems == ()
    assert planned("2.2.1").roles.runtime is not None


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
