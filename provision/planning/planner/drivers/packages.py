"""Plans which packages of the driver are installed, exchanged and removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.planning.node_plan import Action, Disruption, Item, Role
from provision.planning.planner.drivers.holders import describe_holders, holders

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.driver.packages.closure import DriverPackages
    from provision.planning.driver.versions.scheme import VersionScheme
    from provision.planning.driver_change import PackageVersion


def plan_packages(facts: NodeFacts, driver: DriverPackages, scheme: VersionScheme) -> tuple[Item, ...]:
    """Return what brings every package of the closure to its version, and takes away what cannot stay beside it."""
    has_some = any(_has(facts, package) for package in driver.packages)
    changes = [
        item
        for package in driver.packages
        if (item := _package(facts, package, driver, scheme, has_some=has_some)) is not None
    ]
    removals = [
        Item(
            role=Role.DRIVER,
            action=Action.REMOVE,
            target=name,
            from_=facts.packages[name].version,
            reason=f"{name} does not exist for driver {driver.version}, and cannot stay at another version",
            disruption=disruption_of(facts),
        )
        for name in driver.remove
    ]
    return (*changes, *removals)


def _has(facts: NodeFacts, package: PackageVersion) -> bool:
    installed = facts.packages.get(package.name)
    return installed is not None and installed.version == package.version


def _package(
    facts: NodeFacts, package: PackageVersion, driver: DriverPackages, scheme: VersionScheme, *, has_some: bool
) -> Item | None:
    """Return what brings one package to its version, None when it is there; ``has_some``: others of the driver are."""
    installed = facts.packages.get(package.name)
    upstream = scheme(driver.version).upstream  # a package may have a version line of its own
    action, disruption, holding = Action.INSTALL, Disruption.NONE, ""
    if installed is None:
        missing = f"{package.name} of driver {upstream} is missing"
        reason = missing if has_some else f"declared driver {upstream} is not installed"
    elif installed.version != package.version:
        older = scheme(installed.version) < scheme(package.version)
        action = Action.UPGRADE if older else Action.DOWNGRADE
        same = scheme(installed.version).upstream == scheme(package.version).upstream
        reason = f"driver {upstream} has another revision now" if same else f"declared driver is {upstream}"
        disruption, holding = disruption_of(facts), describe_holders(facts)
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
        reason=reason + holding,
        disruption=disruption,
    )


def disruption_of(facts: NodeFacts) -> Disruption:
    """Return what exchanging libraries costs: with a loaded module somebody may use a GPU now or in a moment."""
    return Disruption.DRAIN if facts.module.loaded or holders(facts) else Disruption.NONE
