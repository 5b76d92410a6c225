"""Plans the driver's part: staging, pin, packages, kernel module, hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from provision.driver.catalogue import root_packages
from provision.driver.closure import DriverPackages, resolve_driver
from provision.driver.debian_version import DebianVersion
from provision.driver.pin import PIN_PATH, render_pin
from provision.driver_change import ChangedFile, DriverChange, ModuleTarget, change_id
from provision.node_plan import Action, Disruption, DriverVariables, FileContent, Item, Problem, Role
from provision.planner.driver_packages import plan_packages
from provision.planner.holders import DAEMON_UNIT, holders
from provision.planner.kernel_module import plan_provided_module
from provision.planner.part import Part, differs, package_manager_problems, plan_deployment

if TYPE_CHECKING:
    from provision.driver.catalogue import Distribution
    from provision.fleet.facts import NodeFacts
    from provision.payload.model import Payload
    from provision.spec.model import Driver, StackSpec

__all__ = ["DAEMON_UNIT", "changes_driver", "holders", "plan_driver"]

_EXCHANGES = frozenset({Action.UPGRADE, Action.DOWNGRADE, Action.REMOVE, Action.RELOAD})


def plan_driver(
    facts: NodeFacts, stack: StackSpec, distribution: Distribution, payload: Payload
) -> Part[DriverVariables]:
    """Return what brings the driver to the declared version and keeps it there.

    What takes the GPUs out of service is deferred until the change is staged on the node: then it takes the shortest
    time, and nothing is downloaded or compiled in it.
    """
    if not stack.driver.enabled:
        return Part()
    if problem := _foreign_packages(facts, distribution):
        return Part(problems=(problem,))
    driver = _resolve(facts, stack.driver, distribution)
    if isinstance(driver, Problem):
        return Part(problems=(driver,))
    upstream = DebianVersion(driver.version).upstream
    module = plan_provided_module(facts, upstream)
    if isinstance(module, Problem):
        return Part(problems=(module,))
    pin = FileContent(PIN_PATH, render_pin(driver, distribution.sources))
    swap = (
        *_repair(facts),
        *_pin(facts, driver, pin),
        *plan_packages(facts, driver),
        *module,
        *_hold(facts, stack.driver, driver),
    )
    if not swap:
        return Part()
    change = _describe(facts, stack.driver, driver, pin, upstream)
    is_staged = change_id(change) in {each.id for each in facts.driver.staged if each.complete}
    is_deferred = not is_staged and any(item.disruption is Disruption.DRAIN for item in swap)
    program = plan_deployment(facts, Role.DRIVER, "driver", payload.driver.digest)
    items = (
        *program,
        *(() if is_staged else (_stage(change),)),
        *(msgspec.structs.replace(item, deferred=True) if is_deferred else item for item in swap),
    )
    variables = DriverVariables(
        driver_version=upstream,
        driver_archive=payload.driver.path if program else "",
        driver_digest=payload.driver.digest if program else "",
        driver_change=change,
        driver_change_id=change_id(change),
        driver_stage=not is_staged,
        driver_swap=not is_deferred,
    )
    return Part(items, package_manager_problems(facts), variables)


def _describe(
    facts: NodeFacts, declared: Driver, driver: DriverPackages, pin: FileContent, version: str
) -> DriverChange:
    has_gpus = bool(facts.gpus) or facts.module.loaded
    return DriverChange(
        version=version,
        flavour="none",
        manager="apt",
        packages=driver.packages,
        remove=driver.remove,
        files=(ChangedFile(pin.path, pin.content, pin.mode),),
        hold=declared.hold,
        module=ModuleTarget(version=version) if has_gpus else None,
    )


def _stage(change: DriverChange) -> Item:
    return Item(
        role=Role.DRIVER,
        action=Action.STAGE,
        target=f"driver {change.version}",
        to=change_id(change),
        reason="everything is downloaded and built before the GPUs are taken out of service",
    )


def changes_driver(part: Part[DriverVariables]) -> bool:
    """Tell whether a plan exchanges libraries or module, so that a process that uses them must be restarted.

    The module is exchanged after the libraries: a run that was stopped in between is made up for with the module.
    """
    return any(item.action in _EXCHANGES and not item.deferred for item in part.items)


def _resolve(facts: NodeFacts, driver: Driver, distribution: Distribution) -> DriverPackages | Problem:
    if driver.version is None:
        return Problem(
            code="version-not-declared",
            message="the driver is enabled and has no version",
            hint="declare driver.version, or driver.enabled: false",
        )
    roots = root_packages(distribution, driver.kernel_module, driver.capabilities)
    if isinstance(roots, Problem):
        return roots
    resolved = resolve_driver(
        wanted=driver.version,
        roots=roots,
        distribution=distribution,
        available=facts.available,
        installed=facts.packages,
    )
    if isinstance(resolved, Problem) and (reason := facts.package_manager.lists_error):
        hint = f"{resolved.hint}; the package lists could not be refreshed: {reason}"
        return msgspec.structs.replace(resolved, hint=hint)
    return resolved


def _foreign_packages(facts: NodeFacts, distribution: Distribution) -> Problem | None:
    foreign = sorted(
        name for name, package in facts.packages.items() if distribution.is_other_driver_source(package.source)
    )
    if not foreign:
        return None
    return Problem(
        code="driver-foreign-packages",
        message=f"{facts.node.hostname} has packages of another NVIDIA driver: {', '.join(foreign)}",
        hint="remove them first: two drivers cannot be installed side by side",
    )


def _repair(facts: NodeFacts) -> tuple[Item, ...]:
    if not facts.package_manager.interrupted:
        return ()
    return (
        Item(
            role=Role.DRIVER,
            action=Action.REPAIR,
            target="dpkg",
            from_="interrupted",
            reason="dpkg was interrupted and has to finish before anything else is installed",
        ),
    )


def _pin(facts: NodeFacts, driver: DriverPackages, pin: FileContent) -> tuple[Item, ...]:
    reason = differs(facts, pin)
    if reason is None:
        return ()
    content = facts.content(pin.path)
    if facts.file(pin.path) is None:
        reason = f"nothing pins the driver to {driver.version}"
    elif content is None or f"Pin: version {driver.version}\n" in content:
        reason = f"the pin was changed: it {reason}"
    else:
        reason = "the pin is for another driver version"
    return (Item(role=Role.DRIVER, action=Action.WRITE, target=pin.path, to=driver.version, reason=reason),)


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
