"""Tells what a bundle has for a node: that, not its own package lists, is what driver and engine are planned from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from provision.declaration.fleet.facts.node import AvailablePackage
from provision.planning.architecture import X86_64

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from provision.declaration.fleet.facts.node import NodeFacts, NodeIdentity
    from provision.planning.supply.bundle.model import BundledEngine, BundledModule, BundleList, Driver


def distribution_names(node: NodeIdentity) -> tuple[str, ...]:
    """Return how a bundle may call the distribution of a node: ``debian-13-aarch64``, ``rocky-9.5`` or ``rocky-9``."""
    exact = f"{node.os.id}-{node.os.version_id}"
    end = "" if node.architecture == X86_64.name else f"-{node.architecture}"
    return tuple(dict.fromkeys((f"{exact}{end}", f"{exact.partition('.')[0]}{end}")))


def distribution_in(offers: Iterable[Driver | BundledEngine], node: NodeIdentity) -> str:
    """Return what offers of a bundle call a node's distribution, the exact name where there is none for it."""
    names, known = distribution_names(node), {each.distribution for each in offers}
    return next((each for each in names if each in known), names[0])


def drivers_for(listing: BundleList, node: NodeIdentity) -> tuple[Driver, ...]:
    """Return the drivers of a bundle for a node's distribution."""
    name = distribution_in(listing.drivers, node)
    return tuple(each for each in listing.drivers if each.distribution == name)


def engines_for(listing: BundleList, node: NodeIdentity) -> tuple[BundledEngine, ...]:
    """Return the engines of a bundle for a node's distribution."""
    name = distribution_in(listing.engines, node)
    return tuple(each for each in listing.engines if each.distribution == name)


def with_offer(facts: NodeFacts, listing: BundleList) -> NodeFacts:
    """Return facts in which the bundle is the only source of packages; what is installed is known besides."""
    available: dict[str, dict[str, AvailablePackage]] = {}
    for name, versions in facts.available.items():
        installed = facts.packages.get(name)
        for each in versions:
            if installed is not None and each.version == installed.version:
                known = msgspec.structs.replace(each, fetchable=False)
                available.setdefault(name, {})[each.version] = known
    drivers, engines = drivers_for(listing, facts.node), engines_for(listing, facts.node)
    for packages in (*(each.packages for each in drivers), *(each.packages for each in engines)):
        for package in packages:
            offered = AvailablePackage(version=package.version, source=package.source, depends=package.depends)
            available.setdefault(package.name, {})[package.version] = offered
    manager = msgspec.structs.replace(facts.package_manager, lists_error=None)
    return msgspec.structs.replace(facts, available=_in_order(available), package_manager=manager)


def _in_order(
    available: Mapping[str, Mapping[str, AvailablePackage]],
) -> dict[str, tuple[AvailablePackage, ...]]:
    return {name: tuple(versions.values()) for name, versions in sorted(available.items())}


def describe_drivers(listing: BundleList, node: NodeIdentity) -> str:
    """Return what a bundle has, for a message: the node's distribution, else which other ones."""
    name, own = distribution_in(listing.drivers, node), drivers_for(listing, node)
    if own:
        versions = ", ".join(f"{one.version} ({one.flavour})" for one in own)
        return f"the bundle has for {name}: {versions}"
    if engines_for(listing, node):
        return f"the bundle has no driver for {name}, only engines"
    others = ", ".join(sorted({one.distribution for one in listing.drivers})) or "no distribution"
    return f"the bundle has nothing for {name}; it is for {others}"


def describe_engines(listing: BundleList, node: NodeIdentity) -> str:
    """Return which engines a bundle has for a node, for a message."""
    has = ", ".join(f"{one.package} {one.version}" for one in engines_for(listing, node)) or "none"
    return f"the bundle has of engines for {distribution_in(listing.engines, node)}: {has}"


def modules_of(drivers: tuple[Driver, ...], version: str, flavour: str) -> tuple[BundledModule, ...]:
    """Return the built modules of a driver."""
    return tuple(
        module
        for driver in drivers
        for module in driver.modules
        if (module.version, module.flavour) == (version, flavour)
    )
