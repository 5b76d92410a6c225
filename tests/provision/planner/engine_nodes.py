"""Nodes and declarations for tests of which package an engine is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.declaration.fleet.facts.node import (
    AvailablePackage,
    Engine,
    InstalledPackage,
    OperatingSystem,
    PackageManager,
    StagedEngine,
)
from provision.planning.node_plan import Roles
from provision.planning.render.package_source import repo_path
from tests.provision.samples import (
    RUNNING,
    edit_file,
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
