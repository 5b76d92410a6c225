"""Chooses what is collected for a bundle: the driver of nodes out of reach, of what another node can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from provision.declaration.fleet.facts.driver import DriverState, Kernel
from provision.declaration.fleet.facts.node import KernelModule as LoadedModule
from provision.declaration.spec.model import KernelModule
from provision.planning.driver.packages.catalogue import find_distribution
from provision.planning.node_plan import Problem
from provision.planning.planner.drivers.choice import choose_driver
from provision.planning.planner.drivers.document import describe_change
from provision.planning.planner.drivers.package_source import with_package_source
from provision.planning.planner.drivers.runfile import with_runfile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Driver
    from provision.planning.driver_change import DriverChange


def bundle_name(facts: NodeFacts) -> str | Problem:
    """Return what a bundle calls a node's distribution."""
    distribution = find_distribution(facts.node)
    return distribution if isinstance(distribution, Problem) else distribution.bundle_name


def choose_collected(
    source: NodeFacts, node: NodeFacts, declared: Driver, *, version: str, kernels: Sequence[str] = ()
) -> DriverChange | Problem:
    """Return the change to a driver on a node that has none, with the packages that another node's sources have.

    ``version`` may be a branch: its newest there. ``kernels`` are those that need the module, where they are not the
    node's own. Two nodes that need the same packages have the same change, but for their kernels.
    """
    distribution = find_distribution(source.node)
    if isinstance(distribution, Problem):
        return distribution
    stand_in = msgspec.structs.replace(
        source,
        gpus=node.gpus,
        nvswitches=node.nvswitches,
        infiniband=node.infiniband,
        kernels=tuple(Kernel(release=each, running=True) for each in kernels) or node.kernels,
        node=msgspec.structs.replace(source.node, kernel=node.node.kernel),
        module=LoadedModule(),
        packages={},
        driver=DriverState(),
    )
    if not node.gpus and declared.kernel_module is KernelModule.AUTO:
        return _flavour_unknown(node)
    wanted = msgspec.structs.replace(declared, version=version)
    wanted, _ = with_package_source(stand_in, wanted, distribution)  # nodes with a bundle: what is there to collect
    choice = choose_driver(with_runfile(stand_in, wanted), wanted, distribution)
    if isinstance(choice, Problem):
        return choice
    change = describe_change(stand_in, declared, choice, ())
    return msgspec.structs.replace(change, remove=(), services=(), module=None)


def _flavour_unknown(node: NodeFacts) -> Problem:
    return Problem(
        code="flavour-not-known",
        message=f"{node.node.hostname} has no NVIDIA GPU that says which kernel module is needed",
        hint="say --flavour open, proprietary or none; or name nodes with GPUs",
    )
