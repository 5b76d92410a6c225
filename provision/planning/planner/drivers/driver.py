"""Plans the driver's part: package sources, staging, packages, kernel module, files, hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from provision.declaration.spec.model import DriverSource
from provision.planning.driver.packages import repository
from provision.planning.driver.preflight import Severity, findings
from provision.planning.driver_change import change_id
from provision.planning.node_plan import Action, Disruption, DriverVariables, FileContent, Item, Problem, Role
from provision.planning.planner.drivers.choice import choose_driver, kernel_left_behind
from provision.planning.planner.drivers.document import describe_change, driver_files
from provision.planning.planner.drivers.holders import DAEMON_UNIT, holders
from provision.planning.planner.drivers.kernel_module import (
    find_not_in_force,
    find_outdated_disks,
    plan_kernels,
    plan_module,
    plan_provided_module,
)
from provision.planning.planner.drivers.package_source import with_package_source
from provision.planning.planner.drivers.packages import disruption_of, plan_packages
from provision.planning.planner.drivers.runfile import with_runfile
from provision.planning.planner.part import (
    PACKAGE_MANAGER_LOCKED,
    Declared,
    Part,
    choose_python,
    derive_python,
    differs,
    package_manager_problems,
    plan_deployment,
    plan_files,
    python_problems,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.declaration.fleet.facts.driver import DriverRun
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Driver, StackSpec
    from provision.planning.driver.packages.closure import DriverPackages
    from provision.planning.driver.packages.distribution import Distribution
    from provision.planning.driver_change import DriverChange
    from provision.planning.planner.drivers.choice import Choice
    from provision.planning.supply.payload.model import Artifact, Payload

__all__ = ["DAEMON_UNIT", "changes_driver", "holders", "loads_driver", "plan_driver"]

_EXCHANGES = frozenset({Action.UPGRADE, Action.DOWNGRADE, Action.REMOVE, Action.RELOAD})
_OUT_OF_SERVICE = (Disruption.DRAIN, Disruption.REBOOT)
_UNFINISHED = ("running", "needs-reboot", "failed", "quarantined")


def plan_driver(
    facts: NodeFacts, stack: StackSpec, distribution: Distribution, payload: Payload, *, version_reason: str = ""
) -> Part[DriverVariables]:
    """Return what brings the driver to the declared version and keeps it there.

    What takes the GPUs out of service is deferred until the change is staged on the node: then it takes the shortest
    time, and nothing is downloaded or compiled in it. Where a bundle is declared, ``facts`` offer what it has. Beside a
    problem are the changes that would be made without it, as far as they are known.
    """
    if not stack.driver.enabled or stack.driver.source is DriverSource.NONE:
        return Part()
    foreign = _foreign_packages(facts, distribution)
    without = _without(facts, foreign)  # they have to go first, and what is planned comes after that
    part = _plan_driver(without, stack.driver, distribution, payload.driver, version_reason)
    foreign_problems = [_foreign_problem(facts, foreign)] if foreign else []
    return replace(
        part,
        problems=(*python_problems(facts, "driver", payload.driver), *foreign_problems, *part.problems),
        derived=(*part.derived, *derive_python(facts, "driver", payload.driver)),
    )


def _plan_driver(
    facts: NodeFacts, declared: Driver, distribution: Distribution, program: Artifact, version_reason: str
) -> Part[DriverVariables]:
    facts = with_runfile(facts, declared)
    declared, derived = with_package_source(facts, declared, distribution)
    sources = repository.render(distribution, declared.source, declared.repository)
    problems: tuple[Problem, ...] = ()
    if isinstance(sources, Problem):
        problems, sources = (sources,), ()
    if writes := plan_files(facts, Role.DRIVER, sources):
        return _with_sources_first(facts, declared, sources, writes)
    choice = choose_driver(facts, declared, distribution, version_reason=version_reason)
    if isinstance(choice, Problem):  # without its repository a node cannot know the packages: that says nothing more
        return Part(_repair_first(facts, program), problems or (choice,))
    choice = replace(choice, derived=(*derived, *choice.derived))
    part = _plan_choice(facts, declared, choice, program, sources)
    return replace(part, problems=(*problems, *part.problems))


def changes_driver(part: Part[DriverVariables]) -> bool:
    """Tell whether a plan exchanges libraries or module, so that a process that uses them must be restarted.

    The module is exchanged after the libraries: a run that was stopped in between is made up for with the module.
    """
    return any(item.action in _EXCHANGES and not item.deferred for item in part.items)


def loads_driver(part: Part[DriverVariables]) -> bool:
    """Tell whether a plan loads the kernel module, so that what comes after can ask the driver."""
    return any(item.action in {Action.LOAD, Action.RELOAD} and not item.deferred for item in part.items)


def _with_sources_first(
    facts: NodeFacts, declared: Driver, sources: Sequence[FileContent], writes: tuple[Item, ...]
) -> Part[DriverVariables]:
    """Write the package sources alone: which packages there are can be known only then."""
    version = declared.version or f"of branch {declared.branch}"
    later = Item(
        role=Role.DRIVER,
        action=Action.STAGE,
        target=f"driver {version}",
        reason="its packages are looked for as soon as the node knows the package source",
        disruption=disruption_of(facts),
        deferred=True,
    )
    variables = DriverVariables(driver_version=declared.version or "", driver_sources=tuple(sources))
    return Part((*writes, later), package_manager_problems(facts), variables)


def _plan_choice(
    facts: NodeFacts, declared: Driver, choice: Choice, program: Artifact, sources: Sequence[FileContent]
) -> Part[DriverVariables]:
    files = driver_files(facts, declared, choice)
    module, missing = _module(facts, declared, choice, files)
    change = describe_change(facts, declared, choice, files)
    swap = (
        *_repair(facts),
        *_files(facts, choice.driver, files),
        *plan_packages(facts, choice.driver, choice.request.scheme),
        *module,
        *_hold(facts, declared, choice.driver),
        *_unfinished(facts, change),
    )
    is_to_be = _declared(declared, sources, change)
    is_loaded_so = choice.is_module_managed and facts.module.loaded and not module
    not_in_force = find_not_in_force(facts, declared.module_parameters) if is_loaded_so else ()
    if not swap:
        outdated = find_outdated_disks(facts) if choice.is_module_managed else ()
        warnings = (*not_in_force, *outdated)
        return Part(problems=missing, warnings=warnings, derived=choice.derived, declared=is_to_be)
    is_staged = change_id(change) in {each.id for each in facts.driver.staged if each.complete}
    is_deferred = not is_staged and any(item.disruption in _OUT_OF_SERVICE for item in swap)
    deployment = plan_deployment(facts, Role.DRIVER, "driver", program)
    items = (
        *deployment,
        *(() if is_staged else (_stage(change),)),
        *(msgspec.structs.replace(item, deferred=True) if is_deferred else item for item in swap),
    )
    variables = DriverVariables(
        driver_version=choice.upstream,
        driver_archive=program.path if deployment else "",
        driver_digest=program.digest if deployment else "",
        driver_python=choose_python(facts, program),
        driver_change=change,
        driver_change_id=change_id(change),
        driver_stage=not is_staged,
        driver_swap=not is_deferred,
    )
    errors, warnings = _preflight(facts, declared, change)
    problems = (*missing, *package_manager_problems(facts), *errors)
    return Part(items, problems, variables, (*warnings, *not_in_force), choice.derived, is_to_be)


def _module(
    facts: NodeFacts, declared: Driver, choice: Choice, files: Sequence[FileContent]
) -> tuple[tuple[Item, ...], tuple[Problem, ...]]:
    """Return what is done about the kernel module, and what keeps the declared one from being loaded."""
    if choice.is_module_managed:
        items = (
            *plan_kernels(facts, choice.upstream, choice.flavour.value, choice.kernels),
            *plan_module(facts, choice.upstream, choice.flavour.value, files),
        )
        return _with_reboot(facts, declared, items), ()
    provided = plan_provided_module(facts, choice.upstream)
    return ((), (provided,)) if isinstance(provided, Problem) else (provided, ())


def _declared(declared: Driver, sources: Sequence[FileContent], change: DriverChange) -> Declared:
    files = (FileContent(each.path, each.content, each.mode) for each in change.files)
    return Declared(
        packages=change.packages,
        hold=declared.hold,
        files=(*sources, *files),
        module=change.module.version if change.module else "",
    )


def _with_reboot(facts: NodeFacts, declared: Driver, items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Say of a module that another kernel than the running one is to load that the node reboots for it."""
    left = kernel_left_behind(facts, declared)
    if left is None:
        return items
    upcoming = next(each.release for each in facts.kernels if each.default)
    why = f"kernel {left.release} runs without headers and {upcoming} boots next: the node reboots into it"
    return tuple(
        msgspec.structs.replace(item, reason=f"{item.reason}; {why}", disruption=Disruption.REBOOT)
        if item.action in (Action.LOAD, Action.RELOAD)
        else item
        for item in items
    )


def _preflight(
    facts: NodeFacts, declared: Driver, change: DriverChange
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Return what would make the change fail, and what else deserves attention, before anything is disturbed."""
    found = [each for each in findings(facts, declared, change) if each.code != PACKAGE_MANAGER_LOCKED]
    of = {
        severity: tuple(
            Problem(code=each.code, message=each.message, hint=each.remedy)
            for each in found
            if each.severity is severity
        )
        for severity in Severity
    }
    return of[Severity.ERROR], of[Severity.WARNING]


def _stage(change: DriverChange) -> Item:
    return Item(
        role=Role.DRIVER,
        action=Action.STAGE,
        target=f"driver {change.version}",
        to=change_id(change),
        reason="everything is downloaded and built before the GPUs are taken out of service",
    )


def _foreign_packages(facts: NodeFacts, distribution: Distribution) -> tuple[str, ...]:
    """Return the packages of another driver than those of this distribution and of NVIDIA's repository for it."""
    return tuple(
        sorted(name for name, package in facts.packages.items() if distribution.is_other_driver_source(package.source))
    )


def _without(facts: NodeFacts, foreign: Sequence[str]) -> NodeFacts:
    if not foreign:
        return facts
    packages = {name: package for name, package in facts.packages.items() if name not in foreign}
    return msgspec.structs.replace(facts, packages=packages)


def _foreign_problem(facts: NodeFacts, foreign: Sequence[str]) -> Problem:
    return Problem(
        code="driver-foreign-packages",
        message=f"{facts.node.hostname} has packages of another NVIDIA driver: {', '.join(foreign)}",
        hint="remove them first: two drivers cannot be installed side by side",
    )


def _repair_first(facts: NodeFacts, program: Artifact) -> tuple[Item, ...]:
    """Return what is done to an interrupted package manager, whichever driver is chosen."""
    repair = _repair(facts)
    return (*plan_deployment(facts, Role.DRIVER, "driver", program), *repair) if repair else ()


def _repair(facts: NodeFacts) -> tuple[Item, ...]:
    if not facts.package_manager.interrupted:
        return ()
    name = "dpkg" if facts.package_manager.name == "apt" else facts.package_manager.name
    return (
        Item(
            role=Role.DRIVER,
            action=Action.REPAIR,
            target=name,
            from_="interrupted",
            reason=f"{name} was interrupted and has to finish before anything else is installed",
        ),
    )


def _unfinished(facts: NodeFacts, change: DriverChange) -> tuple[Item, ...]:
    """Return what goes on with a swap that was interrupted, or that left the node between two drivers."""
    run = facts.driver.run
    if run is None:
        return ()
    is_ours = run.state in _UNFINISHED and run.change == change_id(change)
    if not (is_ours or run.is_other_than(change_id(change))):
        return ()
    needs = disruption_of(facts) if is_ours else Disruption.DRAIN  # it is undone first, whatever is loaded now
    return (
        Item(
            role=Role.DRIVER,
            action=Action.REPAIR,
            target=f"driver {change.version}",
            from_=run.state,
            reason=f"an earlier {run.verb or 'swap'}{', to another change,' if not is_ours else ''} {_ended(run)}",
            disruption=Disruption.REBOOT if run.reboot_due else needs,
        ),
    )


def _ended(run: DriverRun) -> str:
    if run.state == "needs-reboot":
        return f"waits for a reboot: {run.reboot}" if run.reboot_due else "goes on after the node's reboot"
    how = "was interrupted" if run.state == "running" else f"ended {run.state}"
    return f"{how} in its step {run.step}" if run.step else how


def _files(facts: NodeFacts, driver: DriverPackages, files: Sequence[FileContent]) -> tuple[Item, ...]:
    return tuple(item for file in files for item in _file(facts, driver, file))


def _file(facts: NodeFacts, driver: DriverPackages, file: FileContent) -> tuple[Item, ...]:
    reason = differs(facts, file)
    if reason is None:
        return ()
    content = facts.content(file.path)
    is_pin = "/preferences.d/" in file.path
    if facts.file(file.path) is None:
        reason = f"nothing pins the driver to {driver.version}" if is_pin else f"{file.path} is absent"
    elif content is None or not is_pin or f"Pin: version {driver.version}\n" in content:
        reason = f"the pin was changed: it {reason}" if is_pin else f"{file.path} {reason}"
    else:
        reason = "the pin is for another driver version"
    to = driver.version if is_pin else None
    return (Item(role=Role.DRIVER, action=Action.WRITE, target=file.path, to=to, reason=reason),)


def _hold(facts: NodeFacts, declared: Driver, driver: DriverPackages) -> tuple[Item, ...]:
    held = {name for name, package in facts.packages.items() if package.hold}
    if declared.hold:
        loose = [name for name in driver.names if name not in held]
        return (_hold_item(Action.HOLD, loose, "not held: any system upgrade would change them"),) if loose else ()
    kept = [name for name in driver.names if name in held]
    return (_hold_item(Action.UNHOLD, kept, "held, and driver.hold is false"),) if kept else ()


def _hold_item(action: Action, names: list[str], reason: str) -> Item:
    return Item(
        role=Role.DRIVER,
        action=action,
        target="driver packages",
        to="held" if action is Action.HOLD else "not held",
        reason=f"{', '.join(names)}: {reason}",
    )
