"""Finds what a node needs to have built for it, and what it could hand to others. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from provision.declaration.spec.model import Build
from provision.planning.supply.builds.model import ModuleBuild

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Driver
    from provision.planning.driver_change import DriverChange


def needed_builds(facts: NodeFacts, change: DriverChange | None, declared: Driver) -> tuple[ModuleBuild, ...]:
    """Return what has to be built for a change and may come from another node, one for each kernel.

    A kernel that checks signatures knows the key of its own machine's DKMS, not those of others: without a declared key
    such a node builds its own.
    """
    if declared.build is Build.EACH or change is None:
        return ()
    if change.sign is None and (facts.secure_boot.enforced or facts.secure_boot.enabled):
        return ()
    return tuple(replace(build, builder=declared.builder or "") for build in builds_of(facts, change))


def builds_of(facts: NodeFacts, change: DriverChange | None) -> tuple[ModuleBuild, ...]:
    """Return what a node builds for a change, whoever may use it."""
    if change is None or change.dkms is None or change.flavour == "none":
        return ()
    return tuple(
        ModuleBuild(
            distribution=distribution_of(facts),
            architecture=facts.node.architecture,
            kernel=kernel,
            dkms=change.dkms,
            version=change.version,
            flavour=change.flavour,
            certificate="" if change.sign is None else change.sign.certificate,
        )
        for kernel in change.kernels
    )


def distribution_of(facts: NodeFacts) -> str:
    """Return distribution and release: a kernel of the same name is another one elsewhere."""
    system = facts.node.os
    return f"{system.id}-{system.version_id}"


def has_built(facts: NodeFacts, build: ModuleBuild) -> bool:
    """Tell whether a node runs a driver of grapnel's with these modules: then it has kept their archive."""
    if facts.driver.current is None or facts.node.architecture != build.architecture:
        return False
    return distribution_of(facts) == build.distribution and any(
        (file.version, file.flavour) == (build.version, build.flavour)
        for kernel in facts.kernels
        if kernel.release == build.kernel
        for file in kernel.modules
    )
