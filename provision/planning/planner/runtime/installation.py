"""Plans where an engine's package comes from, and says why it cannot be installed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from provision.declaration.spec.model import EngineSource
from provision.planning.engines.package import EnginePackage, render_sources
from provision.planning.node_plan import Action, Item, Problem, Role, RuntimeVariables
from provision.planning.planner.part import Part, package_manager_problems, plan_files

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.engines.model import NodeEngine

_MANAGERS: Final = ("apt", "dnf")  # by which engines have been installed, in the tests too
_MISSING: Final = "engine-missing"


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
    problems = (*_conflicts(facts, found), *package_manager_problems(facts))
    return Part((*writes, later), problems, variables)


def with_sources(
    facts: NodeFacts, stack: StackSpec, engine: NodeEngine, part: Part[RuntimeVariables]
) -> Part[RuntimeVariables]:
    """Return the part of an engine that is there, with the package sources that it came from.

    One of another source stays as it is, and so does what the package manager knows: a warning tells.
    """
    found = find_package(facts, stack, engine)
    if isinstance(found, Problem):
        return part
    if found.name not in facts.packages:
        return replace(part, warnings=(*part.warnings, *_other_package(facts, stack, engine, found)))
    sources = render_sources(facts, stack.runtime)
    part = replace(part, declared=replace(part.declared, files=(*part.declared.files, *sources)))
    writes = plan_files(facts, Role.RUNTIME, sources)
    if not writes:
        return part
    variables = part.variables or RuntimeVariables(runtime_engine=engine.name, runtime_service="")
    if part.problems:
        return replace(part, items=(*writes, *part.items))
    variables = msgspec.structs.replace(variables, runtime_sources=sources)
    return replace(part, items=(*writes, *part.items), variables=variables)


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
    if package is None:
        others = [each.value for each, of_source in engine.packages.items() if system in of_source]
        other = f"declare runtime.source: {' or '.join(others)}; or " if others else ""
        where = system if source is EngineSource.DISTRIBUTION else f"Docker's repository for {system}"
        return Problem(
            code=_MISSING,
            message=f"{name} has no {engine.name}, and {where} has no package of it",
            hint=f"{other}install it as its documentation says, then plan again",
        )
    if facts.package_manager.name not in _MANAGERS:
        return Problem(
            code=_MISSING,
            message=f"{name} has no {engine.name}, and engines are installed by {' and '.join(_MANAGERS)} alone",
            hint=f"install it with {facts.package_manager.name}, then plan again",
        )
    return package


def install_problems(
    facts: NodeFacts, stack: StackSpec, engine: NodeEngine, package: EnginePackage
) -> tuple[Problem, ...]:
    """Return why a package cannot be installed now."""
    problems = [*package_manager_problems(facts), *_conflicts(facts, package)]
    if facts.package_manager.interrupted and not stack.driver.enabled:
        is_apt = facts.package_manager.name == "apt"
        manager, repair = ("dpkg", "dpkg --configure -a") if is_apt else ("rpm", "dnf remove --duplicates")
        interrupted = Problem(
            code="package-manager-interrupted",
            message=f"{manager} on {facts.node.hostname} was interrupted, so {engine.name} cannot be installed",
            hint=f"finish it with: {repair}",
        )
        problems.append(interrupted)
    if not any(each.fetchable for each in facts.available.get(package.name, ())):
        refused = facts.package_manager.lists_error
        reason = f"; the package lists could not be refreshed: {refused}" if refused else ""
        missing = Problem(
            code="package-not-available",
            message=f"no package source of {facts.node.hostname} has {package.name}",
            hint=f"enable the source that has it, or install the engine by other means{reason}",
        )
        problems.append(missing)
    return tuple(problems)


def _conflicts(facts: NodeFacts, package: EnginePackage) -> tuple[Problem, ...]:
    """Say what would go from the node, which may be what Podman or another engine runs with."""
    gone = [f"{name} {facts.packages[name].version}" for name in package.replaces if name in facts.packages]
    if not gone:
        return ()
    conflict = Problem(
        code="engine-packages-conflict",
        message=f"{package.name} would take {', '.join(gone)} off {facts.node.hostname}: they cannot be beside it",
        hint="remove these first if nothing on the node runs with them, or declare runtime.source: distribution",
    )
    return (conflict,)


def _other_package(
    facts: NodeFacts, stack: StackSpec, engine: NodeEngine, package: EnginePackage
) -> tuple[Problem, ...]:
    there = sorted(engine.package_names & facts.packages.keys())
    if not there or stack.runtime.source is EngineSource.DISTRIBUTION:  # which is the default, and nobody's word
        return ()
    other = Problem(
        code="engine-of-another-source",
        message=f"{facts.node.hostname} has {', '.join(there)}, and runtime.source {stack.runtime.source.value} has "
        f"{package.name}: the engine stays as it is",
        hint="declare the source that it came from, or exchange the packages while no container runs on the node",
    )
    return (other,)
