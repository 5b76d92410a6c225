"""Compares a node's plan with the bundle that it is to be carried out from: what is missing is found while planning."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from provision.declaration.spec.model import DriverSource, Repository
from provision.declaration.spec.text.excerpt import few
from provision.planning.driver.preflight.codes import BUILD_TOOLS_MISSING, HEADERS_MISSING
from provision.planning.node_plan import Action, NodePlan, Problem, Role, Roles
from provision.planning.planner.runtime.installation import newest
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.bundle.handover import choose_engine_files, choose_files
from provision.planning.supply.bundle.offer import describe_drivers, describe_engines, distribution_in, engines_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Driver, StackSpec
    from provision.planning.driver_change import DriverChange
    from provision.planning.node_plan import RuntimeVariables
    from provision.planning.supply.bundle.handover import HandedFile, Handover
    from provision.planning.supply.bundle.read import Bundle

# Problems of a node whose package sources lack something: with a bundle, that is the source.
_OF_SOURCES: Final = frozenset(
    {"version-not-available", "driver-closure-incomplete", "branch-not-available", "branch-without-common-version"}
)
_OF_ENGINES: Final = frozenset({"package-not-available", "engine-version-not-available"})
_OF_PACKAGES: Final = (Action.STAGE, Action.INSTALL, Action.UPGRADE, Action.DOWNGRADE)
_ANOTHER: Final = (
    "make it again with a declaration that names this engine by runtime.version, or by a runtime.source other than "
    "distribution; or install the engine by other means"
)
_OF_BUILDS: Final = frozenset({HEADERS_MISSING.name, BUILD_TOOLS_MISSING.name})


def declared_bundle(driver: Driver) -> Path | None:
    """Return where the bundle lies that a declaration names as the source of its packages, None where it names none."""
    if not driver.enabled or driver.source is not DriverSource.BUNDLE or driver.repository is None:
        return None
    return None if driver.repository.folder is None else Path(driver.repository.folder)


def refuse_bundle(plan: NodePlan, error: BundleError) -> NodePlan:
    """Return the plan of a node whose declared bundle cannot be read."""
    return _refused(plan, Problem(code="bundle-not-usable", message=error.message, hint=error.hint))


def declare_carried(stack: StackSpec, bundle: Bundle) -> StackSpec:
    """Return a declaration whose driver comes from the bundle, without the repository that others get it from.

    A node that got the file of a repository out of its reach could use dnf or zypper for nothing any more.
    """
    stack = without_engine_repository(stack)
    if stack.driver.repository is None:
        return stack
    driver = msgspec.structs.replace(stack.driver, repository=Repository(folder=str(bundle.folder)))
    return msgspec.structs.replace(stack, driver=driver)


def without_engine_repository(stack: StackSpec) -> StackSpec:
    """Return the declaration of a node whose engine comes from a bundle, as its driver does."""
    if stack.runtime.repository is None:
        return stack
    return msgspec.structs.replace(stack, runtime=msgspec.structs.replace(stack.runtime, repository=None))


def find_handover(plan: NodePlan, facts: NodeFacts, bundle: Bundle) -> Handover | None:
    """Return the files that a plan stages its driver from, None where it stages nothing; raises `BundleError`."""
    driver = plan.roles.driver
    if driver is None or driver.driver_change is None or not driver.driver_stage:
        return None
    return choose_files(bundle, distribution_in(bundle.listing.drivers, facts.node), driver.driver_change)


def find_engine_handover(plan: NodePlan, facts: NodeFacts, bundle: Bundle) -> tuple[HandedFile, ...]:
    """Return the files that a plan stages or installs its engine from; raises `BundleError`.

    None where it does neither, or all of them lie on the node.
    """
    runtime, staged = plan.roles.runtime, facts.engine_staged
    wanted = {} if runtime is None else runtime.runtime_stage or _installed(runtime)
    if not wanted or (staged is not None and staged.complete and staged.packages == wanted):
        return ()
    name = next(iter(wanted))
    offered = {one.version: one for one in engines_for(bundle.listing, facts.node) if one.package == name}
    version = wanted[name] or newest(facts, offered)
    engine = offered.get(version)
    if engine is None:
        raise BundleError(
            f"the bundle has no engine {f'{name} {version}'.strip()}; {describe_engines(bundle.listing, facts.node)}",
            hint=_ANOTHER,
        )
    return choose_engine_files(bundle, engine, wanted)


def _installed(runtime: RuntimeVariables) -> dict[str, str]:
    return {name: runtime.runtime_versions.get(name, "") for name in runtime.runtime_packages}


def compare_with_bundle(
    plan: NodePlan, facts: NodeFacts, bundle: Bundle, is_built: Callable[[str], bool] = lambda _: False
) -> NodePlan:
    """Return the plan with what keeps the bundle from being enough for it.

    ``is_built`` tells whether another node has built the module for a kernel, and it is at hand.
    """
    if plan.problems:
        return msgspec.structs.replace(plan, problems=tuple(_explain(one, facts, bundle) for one in plan.problems))
    try:
        engine = find_engine_handover(plan, facts, bundle)
        handover = find_handover(plan, facts, bundle)
    except BundleError as error:
        return _refused(plan, Problem(code="not-in-bundle", message=error.message, hint=error.hint))
    plan = _with_origin(plan) if engine else plan
    if handover is None:
        return plan
    without = _kernels_without(_change_of(plan), facts, handover)
    missing = [kernel for kernel in without if not is_built(kernel)]
    if problem := _cannot_build(_change_of(plan), facts, bundle, missing):
        return _refused(plan, problem)
    # What would be built from is of no interest where nothing is built.
    kept = tuple(one for one in plan.warnings if missing or one.code not in _OF_BUILDS)
    return msgspec.structs.replace(plan, warnings=kept)


def _with_origin(plan: NodePlan) -> NodePlan:
    """Return the plan, which says of its engine that it comes from the bundle."""
    items = tuple(
        msgspec.structs.replace(item, reason=f"{item.reason}; its packages come from the bundle")
        if item.role is Role.RUNTIME and item.action in _OF_PACKAGES
        else item
        for item in plan.items
    )
    return msgspec.structs.replace(plan, items=items)


def _change_of(plan: NodePlan) -> DriverChange:
    driver = plan.roles.driver
    if driver is None or driver.driver_change is None:
        raise ValueError(f"the plan of {plan.node} changes no driver")
    return driver.driver_change


def _refused(plan: NodePlan, problem: Problem) -> NodePlan:
    return msgspec.structs.replace(plan, problems=(problem,), roles=Roles())


def _explain(problem: Problem, facts: NodeFacts, bundle: Bundle) -> Problem:
    if problem.code in _OF_ENGINES:
        hint = f"{describe_engines(bundle.listing, facts.node)}; {_ANOTHER}"
        return msgspec.structs.replace(problem, hint=hint)
    if problem.code not in _OF_SOURCES:
        return problem
    has = describe_drivers(bundle.listing, facts.node)
    hint = f"with a bundle it is the only package source, and {has}; make it again with what is missing"
    return msgspec.structs.replace(problem, hint=hint)


def _kernels_without(change: DriverChange, facts: NodeFacts, handover: Handover) -> list[str]:
    """Return the kernels whose module the bundle does not have, and neither has the node."""
    if change.dkms is None:
        return []
    given = {file.place for file in handover.files}
    if any(each.complete and each.version == change.version for each in facts.driver.staged):
        return []  # staging takes modules from other sets on the node
    return [kernel for kernel in change.kernels if f"modules/{kernel}.tar.gz" not in given]


def _cannot_build(change: DriverChange, facts: NodeFacts, bundle: Bundle, missing: Sequence[str]) -> Problem | None:
    tools = facts.build_tools
    lacks = [name for name in ("dkms", "gcc", "make") if tools is None or not getattr(tools, name)]
    headers = {each.release for each in facts.kernels if each.headers}
    lacks += [f"headers of {kernel}" for kernel in missing if kernel not in headers]
    if not missing or not lacks:
        return None
    name = distribution_in(bundle.listing.drivers, facts.node)
    has = sorted(
        module.kernel
        for driver in bundle.listing.drivers
        for module in driver.modules
        if (driver.distribution, driver.version, driver.flavour) == (name, change.version, change.flavour)
    )
    return Problem(
        code="kernel-not-in-bundle",
        message=f"the bundle has no module of driver {change.version} ({change.flavour}) for kernel {few(missing)}, "
        f"and {facts.node.hostname} cannot build it without {', '.join(lacks)}; it has modules for "
        f"{', '.join(has) or 'no kernel'}",
        hint=f"make the bundle again with --kernel {missing[0]}",
    )
