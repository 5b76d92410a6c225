"""Chooses what is collected for a bundle: driver and engine of nodes out of reach, of what another node can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from provision.declaration.fleet.facts.driver import DriverState, Kernel
from provision.declaration.fleet.facts.node import KernelModule as LoadedModule
from provision.declaration.spec.model import EngineSource, KernelModule
from provision.planning.driver.packages.catalogue import find_distribution
from provision.planning.driver_change import DriverChange, PackageVersion
from provision.planning.engines.table import find_engine
from provision.planning.node_plan import Problem
from provision.planning.planner.drivers.choice import choose_driver
from provision.planning.planner.drivers.document import describe_change
from provision.planning.planner.drivers.package_source import with_package_source
from provision.planning.planner.drivers.runfile import with_runfile
from provision.planning.planner.runtime.installation import find_package, find_version, newest, upstream_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Driver, Runtime, StackSpec


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


def names_engine(runtime: Runtime) -> bool:
    """Tell whether a declaration says which engine a node is to be given, and does not leave that to its system."""
    is_said = runtime.source is not EngineSource.DISTRIBUTION or runtime.version is not None
    return runtime.enabled and runtime.install and is_said


def choose_engine(source: NodeFacts, stack: StackSpec) -> DriverChange | Problem:
    """Return what has to be collected of a declared engine, in the form of a change: its own package comes first.

    It is of what another node's sources have; what lies ready there, they may have no more.
    """
    source = msgspec.structs.replace(source, engine_staged=None)
    distribution = find_distribution(source.node)
    if isinstance(distribution, Problem):
        return distribution
    package = find_package(source, stack, find_engine(source, stack.runtime.engine))
    if isinstance(package, Problem):
        return package
    version = find_version(source, stack, package) or newest(source, _offered(source, package.name))
    if isinstance(version, Problem):
        return version
    names = (package.name, *package.besides)
    versions = {name: _beside(source, name, version) for name in names}
    if missing := [name for name in names if not versions[name]]:
        return Problem(
            code="package-not-available",
            message=f"no package source of {source.node.hostname} has {', '.join(missing)}",
            hint="collect on a node that has this source",
        )
    return DriverChange(
        version=upstream_of(version),
        flavour="none",
        manager=distribution.manager.value,
        packages=tuple(PackageVersion(name, versions[name]) for name in names),
    )


def _beside(source: NodeFacts, name: str, version: str) -> str:
    """Return the version of a package beside an engine: the engine's own, where it has that, else its newest."""
    offered = _offered(source, name)
    return version if version in offered else newest(source, offered)


def _offered(source: NodeFacts, name: str) -> list[str]:
    return [each.version for each in source.available.get(name, ()) if each.fetchable]


def _flavour_unknown(node: NodeFacts) -> Problem:
    return Problem(
        code="flavour-not-known",
        message=f"{node.node.hostname} has no NVIDIA GPU that says which kernel module is needed",
        hint="say --flavour open, proprietary or none; or name nodes with GPUs",
    )
