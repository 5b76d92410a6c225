"""The driver's share of a node's plan: pin, packages, hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from provision.driver.catalogue import root_packages
from provision.driver.closure import DriverPackages, resolve_driver
from provision.driver.debian_version import DebianVersion
from provision.driver.pin import PIN_PATH, render_pin
from provision.planner.model import (
    Action,
    Disruption,
    DriverVariables,
    FileContent,
    Item,
    PackageVersion,
    Problem,
    Role,
)
from provision.planner.part import Part, differs, package_manager_problems

if TYPE_CHECKING:
    from provision.driver.catalogue import Distribution
    from provision.fleet.facts import DeviceHolder, NodeFacts
    from provision.spec.model import Driver, StackSpec

_NAMED_HOLDERS = 3
DAEMON_UNIT = "grapnel-node.service"


def plan_driver(facts: NodeFacts, stack: StackSpec, distribution: Distribution) -> Part[DriverVariables]:
    """Return what brings the driver's user space to the declared version and keeps it there."""
    if not stack.driver.enabled:
        return Part()
    if problem := _foreign_packages(facts, distribution):
        return Part(problems=(problem,))
    driver = _resolve(facts, stack.driver, distribution)
    if isinstance(driver, Problem):
        return Part(problems=(driver,))
    pin = FileContent(PIN_PATH, render_pin(driver, distribution.sources))
    items = (
        *_repair(facts),
        *_pin(facts, driver, pin),
        *_packages(facts, driver),
        *_hold(facts, stack.driver, driver),
    )
    if not items:
        return Part()
    variables = DriverVariables(
        driver_version=DebianVersion(driver.version).upstream,
        driver_packages=driver.packages,
        driver_pin_path=pin.path,
        driver_pin_content=pin.content,
        driver_hold=stack.driver.hold,
        driver_remove_packages=driver.remove,
    )
    return Part(items, package_manager_problems(facts), variables)


def changes_libraries(part: Part[DriverVariables]) -> bool:
    """Tell whether a plan exchanges the driver's files, so that a process that uses them must be restarted."""
    return any(item.action in {Action.UPGRADE, Action.DOWNGRADE, Action.REMOVE} for item in part.items)


def holders(facts: NodeFacts) -> tuple[DeviceHolder, ...]:
    """Return who has a GPU open, without grapnel's own daemon: that one is restarted by the same plan."""
    return tuple(each for each in facts.device_holders if each.unit != DAEMON_UNIT)


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
            reason="dpkg was interrupted and has to be finished before anything else is installed",
        ),
    )


def _pin(facts: NodeFacts, driver: DriverPackages, pin: FileContent) -> tuple[Item, ...]:
    reason = differs(facts, pin)
    if reason is None:
        return ()
    content = facts.content(pin.path)
    if facts.file(pin.path) is None:
        reason = f"nothing keeps apt at driver {driver.version}"
    elif content is None or f"Pin: version {driver.version}\n" in content:
        reason = f"the pin was changed: it {reason}"
    else:
        reason = "the pin is for another driver"
    return (Item(role=Role.DRIVER, action=Action.WRITE, target=pin.path, to=driver.version, reason=reason),)


def _packages(facts: NodeFacts, driver: DriverPackages) -> tuple[Item, ...]:
    changes = [item for package in driver.packages if (item := _package(facts, package)) is not None]
    removals = [
        Item(
            role=Role.DRIVER,
            action=Action.REMOVE,
            target=name,
            from_=facts.packages[name].version,
            reason=f"{name} does not exist at driver {driver.version}, and cannot stay at another one",
            disruption=_disruption(facts),
        )
        for name in driver.remove
    ]
    return (*changes, *removals)


def _package(facts: NodeFacts, package: PackageVersion) -> Item | None:
    """Return what brings one package to its version, None when it is there."""
    installed = facts.packages.get(package.name)
    upstream = DebianVersion(package.version).upstream
    action, disruption, holding = Action.INSTALL, Disruption.NONE, ""
    if installed is None:
        reason = f"declared driver {upstream} is not installed"
    elif installed.version != package.version:
        older = DebianVersion(installed.version) < DebianVersion(package.version)
        action = Action.UPGRADE if older else Action.DOWNGRADE
        same = DebianVersion(installed.version).upstream == upstream
        reason = f"another revision of driver {upstream} is current" if same else f"declared driver is {upstream}"
        disruption, holding = _disruption(facts), _describe_holders(facts)
    elif installed.status != "installed":
        reason = f"{package.name} is {installed.status}"
    else:
        return None
    return Item(
        role=Role.DRIVER,
        action=action,
        target=package.name,
        from_=None if installed is None else installed.version,
        to=package.version,
        reason=reason + _describe_module(facts, upstream) + holding,
        disruption=disruption,
    )


def _disruption(facts: NodeFacts) -> Disruption:
    return Disruption.DRAIN if holders(facts) else Disruption.NONE


def _describe_holders(facts: NodeFacts) -> str:
    found = holders(facts)
    if not found:
        return ""
    named = ", ".join(f"{each.command} (pid {each.pid})" for each in found[:_NAMED_HOLDERS])
    more = f" and {len(found) - _NAMED_HOLDERS} more" if len(found) > _NAMED_HOLDERS else ""
    return f"; a GPU is held by {named}{more}"


def _describe_module(facts: NodeFacts, upstream: str) -> str:
    loaded = facts.module.version if facts.module.loaded else None
    if loaded in {None, upstream}:
        return ""
    return f"; the loaded kernel module is {loaded}, libraries and module have to match before a GPU works"


def _hold(facts: NodeFacts, declared: Driver, driver: DriverPackages) -> tuple[Item, ...]:
    held = {name for name, package in facts.packages.items() if package.hold}
    if declared.hold:
        loose = [name for name in driver.names if name not in held]
        return (_hold_item(Action.HOLD, loose, "would be moved by any upgrade of the system"),) if loose else ()
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
