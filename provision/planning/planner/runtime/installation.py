"""Plans where an engine's package comes from, and says why it cannot be installed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from provision.declaration.spec.model import EngineSource
from provision.planning.driver.versions.debian import DebianVersion
from provision.planning.driver.versions.rpm import RpmVersion
from provision.planning.engines.files.engine_file import version_numbers
from provision.planning.engines.package import DOCKER_IO, EnginePackage, render_sources, source_paths
from provision.planning.node_plan import Action, Disruption, Item, Problem, Role, RuntimeVariables
from provision.planning.planner.part import Part, package_manager_problems, plan_files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.declaration.fleet.facts.node import NodeFacts, StagedEngine
    from provision.declaration.spec.model import StackSpec
    from provision.planning.engines.model import NodeEngine

_MISSING: Final = "engine-missing"
_REPAIR: Final = {"dnf": "dnf remove --duplicates", "zypper": "zypper verify"}
_UNHOLD: Final = {"apt": "apt-mark unhold", "zypper": "zypper removelock"}
_SNAPS_DOCKER: Final = "snap.docker.dockerd.service"
_OF_A_KEY: Final = re.compile(r"EXPKEYSIG|NO_PUBKEY|BADSIG|GPG|not signed")  # in the words of apt, dnf and zypper
_UPSTREAM: Final = re.compile(r"(?:\d+:)?(\d+(?:\.\d+)*)")  # of a package's version


def plan_sources(facts: NodeFacts, stack: StackSpec, engine: NodeEngine) -> Part[RuntimeVariables] | None:
    """Return the package sources alone where the node lacks them: which packages there are can be known only then."""
    found = find_package(facts, stack, engine)
    if isinstance(found, Problem):
        return None
    sources = render_sources(facts, stack.runtime)
    writes = plan_files(facts, Role.RUNTIME, sources)
    if not writes:
        return None
    later = Item(
        role=Role.RUNTIME,
        action=Action.INSTALL,
        target=found.name,
        reason="it is looked for as soon as the node knows the package source",
        deferred=True,
    )
    variables = RuntimeVariables(runtime_engine=engine.name, runtime_sources=sources, runtime_service="")
    problems = (*_conflicts(facts, found), *_left_out(facts, found), *package_manager_problems(facts))
    return Part((*writes, later), problems, variables)


def with_sources(
    facts: NodeFacts, stack: StackSpec, engine: NodeEngine, part: Part[RuntimeVariables]
) -> Part[RuntimeVariables]:
    """Return the part of an engine that is there, with the package source that it came from and the declared version.

    One of another source stays as it is, and so does what the package manager knows: that is told.
    """
    found = find_package(facts, stack, engine)
    if isinstance(found, Problem) or found.name not in facts.packages:
        other = _other_package(facts, stack, engine, found)
        if other and stack.runtime.version is not None:
            return replace(part, problems=(*part.problems, *other), variables=None)
        return _with_exchange(facts, engine, replace(part, warnings=(*part.warnings, *other)), None)
    sources = render_sources(facts, stack.runtime)
    part = replace(part, declared=replace(part.declared, files=(*part.declared.files, *sources)))
    writes = plan_files(facts, Role.RUNTIME, sources)
    change = _change(facts, stack, engine, found, is_known=not writes)
    if isinstance(change, Problem):
        return replace(part, problems=(*part.problems, change), variables=None)
    if change is not None and not change.deferred and (locked := package_manager_problems(facts)):
        return replace(part, items=(change, *part.items), problems=(*part.problems, *locked), variables=None)
    part = _with_exchange(facts, engine, part, change)
    items = (*writes, *part.items)
    if part.problems or not writes:
        return replace(part, items=items)
    variables = part.variables or RuntimeVariables(runtime_engine=engine.name, runtime_service=engine.service)
    return replace(part, items=items, variables=msgspec.structs.replace(variables, runtime_sources=sources))


def _with_exchange(
    facts: NodeFacts, engine: NodeEngine, part: Part[RuntimeVariables], change: Item | None
) -> Part[RuntimeVariables]:
    """Return the part of an engine, with what is done about an exchange of it, or about what lies ready for none."""
    exchange, wanted = _staged_first(facts, change)
    part = replace(part, items=(*exchange, *part.items))
    if part.problems or not exchange:
        return part
    variables = part.variables or RuntimeVariables(runtime_engine=engine.name, runtime_service=engine.service)
    variables = msgspec.structs.replace(variables, runtime_stage=wanted)
    if change is not None and change.to is not None and wanted is None:
        versions = {change.target: change.to}
        variables = msgspec.structs.replace(variables, runtime_packages=(change.target,), runtime_versions=versions)
    return replace(part, variables=variables)


def _staged_first(facts: NodeFacts, change: Item | None) -> tuple[tuple[Item, ...], dict[str, str] | None]:
    """Return what is done about an exchange, and what has to lie ready before: None where that is as it should be.

    One that takes the node out of service waits until its packages do. Of a package source that is not known yet, the
    next pass has them.
    """
    staged = facts.engine_staged
    if change is None and staged is not None:
        return (_unstage(staged),), {}
    if change is None or change.disruption is Disruption.NONE:
        return (change,) if change else (), None
    if change.to is None:
        return (change,), {}
    wanted = {change.target: change.to}
    if staged is not None and staged.complete and staged.packages == wanted:
        return (change,), None
    stage = Item(
        role=Role.RUNTIME,
        action=Action.STAGE,
        target=change.target,
        to=change.to,
        reason="it is downloaded, and so is what leads back, before the node is taken out of service",
    )
    return (stage, msgspec.structs.replace(change, deferred=True)), wanted


def _unstage(staged: StagedEngine) -> Item:
    names = ", ".join(f"{name} {version}" for name, version in staged.packages.items())
    reason = (
        f"{names} is not declared any more" if names else "a run that was killed has left them, or they are damaged"
    )
    return Item(role=Role.RUNTIME, action=Action.REMOVE, target="staged engine packages", reason=reason)


def without_former_sources(
    facts: NodeFacts, stack: StackSpec, engine: NodeEngine, part: Part[RuntimeVariables]
) -> Part[RuntimeVariables]:
    """Return the part of an engine, with the removal of the package source that is not declared any more.

    What came from it stays, and gets nothing newer. One that is declared, and comes in a bundle, has no files here;
    what the node has of it stays.
    """
    if stack.runtime.source is not EngineSource.DISTRIBUTION and stack.runtime.repository is None:
        return part
    declared = {file.path for file in render_sources(facts, stack.runtime)}
    former = {
        path: source for path, source in source_paths().items() if path not in declared and facts.file(path) is not None
    }
    if not former:
        return part
    removals = [
        Item(role=Role.RUNTIME, action=Action.REMOVE, target=path, reason=_no_source_any_more(facts, engine, source))
        for path, source in former.items()
    ]
    part = replace(part, items=(*removals, *part.items))
    if part.problems:
        return part
    variables = part.variables or RuntimeVariables(runtime_engine=engine.name, runtime_service=engine.service)
    return replace(part, variables=msgspec.structs.replace(variables, runtime_absent=tuple(former)))


def _no_source_any_more(facts: NodeFacts, engine: NodeEngine, source: EngineSource) -> str:
    stays = sorted({each.name for each in engine.packages.get(source, {}).values()} & facts.packages.keys())
    reason = f"runtime.source is not {source.value} any more"
    return reason + (f": {', '.join(stays)} stays, and gets nothing newer from there" if stays else "")


def find_version(facts: NodeFacts, stack: StackSpec, package: EnginePackage) -> str | Problem:
    """Return the newest package of the declared version, empty where none is declared, or say what there is."""
    declared = stack.runtime.version
    if declared is None:
        return ""
    offered = [each.version for each in facts.available.get(package.name, ()) if each.fetchable]
    if facts.engine_staged is not None and package.name in facts.engine_staged.packages:
        offered.append(facts.engine_staged.packages[package.name])  # also without a network
    fitting = [version for version in offered if upstream_of(version) == declared]
    if fitting:
        return newest(facts, fitting)
    there = sorted({upstream_of(version) for version in offered}, key=version_numbers)
    return Problem(
        code="engine-version-not-available",
        message=f"no package source of {facts.node.hostname} has {package.name} {declared}: they have "
        f"{', '.join(there) or 'none'}",
        hint="declare one of these, or a source that has it",
    )


def newest(facts: NodeFacts, versions: Iterable[str]) -> str:
    """Return the newest of a package's versions as the node's package manager compares them, "" of none."""
    scheme = DebianVersion if facts.package_manager.name == "apt" else RpmVersion
    return max(versions, key=scheme, default="")


def upstream_of(version: str) -> str:
    """Return an engine's own version, of that of a package."""
    match = _UPSTREAM.match(version)
    return match[1] if match else ""


def _change(
    facts: NodeFacts, stack: StackSpec, engine: NodeEngine, package: EnginePackage, *, is_known: bool
) -> Item | Problem | None:
    """Return what brings an engine that is there to its declared version; pods with GPUs leave first.

    Where the package source is not known yet, to which package can be told only then.
    """
    installed, declared = facts.packages[package.name].version, stack.runtime.version
    if declared is None or upstream_of(installed) == declared:
        return None
    version = find_version(facts, stack, package) if is_known else None
    if isinstance(version, Problem):
        return version
    if facts.packages[package.name].hold and package.name not in facts.engine_holds:
        unhold = _UNHOLD.get(facts.package_manager.name, "dnf versionlock delete")
        return Problem(
            code="engine-held",
            message=f"{facts.node.hostname} holds {package.name} at {installed}, and runtime.version is {declared}",
            hint=f"let it go (`{unhold} {package.name}`), and declare runtime.hold: true to have it held again; or "
            "declare that version",
        )
    is_newer = version_numbers(declared) > version_numbers(upstream_of(installed))
    return Item(
        role=Role.RUNTIME,
        action=Action.UPGRADE if is_newer else Action.DOWNGRADE,
        target=package.name,
        from_=installed,
        to=version,
        reason=f"declared {engine.name} is {declared}",
        disruption=Disruption.DRAIN if engine.service else Disruption.NONE,
        deferred=not is_known,
    )


def find_package(facts: NodeFacts, stack: StackSpec, engine: NodeEngine) -> EnginePackage | Problem:
    """Return the package to install, or why there is none."""
    name, source, system = facts.node.hostname, stack.runtime.source, facts.node.os.id
    if not stack.runtime.install:
        return Problem(
            code=_MISSING,
            message=f"{name} has no {engine.name}, and runtime.install is false",
            hint="install the engine, or declare runtime.install: true",
        )
    package = engine.packages.get(source, {}).get(system)
    is_unnamed = facts.package_manager.name == "apt" and not facts.node.os.codename  # by which apt finds a repository
    if package is None or (is_unnamed and source is EngineSource.DOCKER):
        others = [each.value for each, of_source in engine.packages.items() if system in of_source]
        other = f"declare runtime.source: {' or '.join(others)}; or " if others else ""
        where = system if source is EngineSource.DISTRIBUTION else f"{source.owner}'s repository for {system}"
        return Problem(
            code=_MISSING,
            message=f"{name} has no {engine.name}, and {where} has no package of it",
            hint=f"{other}install it as its documentation says, then plan again",
        )
    return package


def install_problems(
    facts: NodeFacts, stack: StackSpec, engine: NodeEngine, package: EnginePackage
) -> tuple[Problem, ...]:
    """Return why a package cannot be installed now."""
    problems = [*package_manager_problems(facts), *_conflicts(facts, package), *_left_out(facts, package)]
    if engine.name == "docker" and facts.service(_SNAPS_DOCKER).load == "loaded":
        snap = Problem(
            code="engine-in-a-snap",
            message=f"{facts.node.hostname} has Docker as a snap, which is confined and cannot run the hook",
            hint="remove it (`snap remove docker`), then plan again; or declare another engine",
        )
        problems.append(snap)
    if facts.package_manager.interrupted and not stack.driver.enabled:
        is_apt = facts.package_manager.name == "apt"
        manager, repair = (
            ("dpkg", "dpkg --configure -a") if is_apt else ("rpm", _REPAIR.get(facts.package_manager.name, ""))
        )
        interrupted = Problem(
            code="package-manager-interrupted",
            message=f"{manager} on {facts.node.hostname} was interrupted, so {engine.name} cannot be installed",
            hint=f"finish it with: {repair}",
        )
        problems.append(interrupted)
    version = find_version(facts, stack, package)
    if not any(each.fetchable for each in facts.available.get(package.name, ())):
        refused = facts.package_manager.lists_error
        remedy = "enable the source that has it, or install the engine by other means"
        if refused and _OF_A_KEY.search(refused) and stack.runtime.repository is not None:
            remedy = "declare the key that signs it now, runtime.repository.key"
        missing = Problem(
            code="package-not-available",
            message=f"no package source of {facts.node.hostname} has {package.name}",
            hint=f"{remedy}; the package lists could not be refreshed: {refused}" if refused else remedy,
        )
        problems.append(missing)
    elif isinstance(version, Problem):
        problems.append(version)
    return tuple(problems)


def _left_out(facts: NodeFacts, package: EnginePackage) -> tuple[Problem, ...]:
    """Say that somebody has kept a package away, whom an installation would not ask."""
    manager = facts.package_manager
    if package.name not in manager.left_out or package.name in facts.engine_holds:  # a lock of grapnel's own
        return ()
    where = "`zypper locks`" if manager.name == "zypper" else "exclude= in /etc/dnf/dnf.conf or a repository"
    problem = Problem(
        code="engine-left-out",
        message=f"{manager.name} on {facts.node.hostname} leaves {package.name} out: {where}",
        hint="take it out there, or declare another source or engine",
    )
    return (problem,)


def half_installed(facts: NodeFacts, stack: StackSpec, engine: NodeEngine) -> tuple[Problem, ...]:
    """Say that packages of an engine were left half installed; what repairs a driver's packages repairs them, too."""
    halves = [
        f"{name} ({facts.packages[name].status})"
        for name in sorted(facts.packages.keys() & {*engine.package_names, *engine.runs_with})
        if facts.packages[name].status != "installed"
    ]
    if not halves or stack.driver.enabled:
        return ()
    problem = Problem(
        code="engine-half-installed",
        message=f"{', '.join(halves)} on {facts.node.hostname} was not installed to its end",
        hint="finish it (`dpkg --configure -a`, then `apt-get --fix-broken install`), then plan again",
    )
    return (problem,)


def _conflicts(facts: NodeFacts, package: EnginePackage) -> tuple[Problem, ...]:
    """Say what would go from the node, which may be what Podman or another engine runs with."""
    gone = [f"{name} {facts.packages[name].version}" for name in package.replaces if name in facts.packages]
    if not gone:
        return ()
    other = "docker" if package is DOCKER_IO else "distribution"
    conflict = Problem(
        code="engine-packages-conflict",
        message=f"{package.name} would take {', '.join(gone)} off {facts.node.hostname}: they cannot be beside it",
        hint=f"remove these first if nothing on the node runs with them, or declare runtime.source: {other}",
    )
    return (conflict,)


def _other_package(
    facts: NodeFacts, stack: StackSpec, engine: NodeEngine, package: EnginePackage | Problem
) -> tuple[Problem, ...]:
    """Say that an engine is of no package, or another one than the source has: no version of it can be brought."""
    runtime, there = stack.runtime, sorted(engine.package_names & facts.packages.keys())
    known = facts.engines.get(engine.name)
    version = "" if known is None else known.version
    is_default = runtime.source is EngineSource.DISTRIBUTION  # which is nobody's word
    if runtime.version is None and (is_default or isinstance(package, Problem)):
        return ()
    if not runtime.install or (runtime.version is not None and upstream_of(version) == runtime.version):
        return ()
    binary = "" if known is None else f" ({known.binary})"
    has = ", ".join(there) or f"{engine.name} {version} of no known package{binary}"
    offered = "no package of it" if isinstance(package, Problem) else package.name
    leave = "" if runtime.version is None else ", or leave runtime.version out"
    other = Problem(
        code="engine-of-another-source",
        message=f"{facts.node.hostname} has {has}, and runtime.source {runtime.source.value} has {offered}: the engine "
        "stays as it is",
        hint="declare the source that it came from, or exchange the packages while no container runs on the node"
        f"{leave}",
    )
    return (other,)
