"""Chooses a node's driver: flavour, companions and packages, from what is declared and what the node has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from provision.driver.branches import check_branch
from provision.driver.catalogue import packages
from provision.driver.closure import DriverPackages, resolve_driver
from provision.driver.flavour import choose
from provision.driver.gpus import support
from provision.driver.terms import Flavour
from provision.node_plan import Derived, Problem
from provision.spec.model import Companion, KernelModule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.driver.distribution import Distribution
    from provision.driver.gpus import GpuSupport
    from provision.driver.package_request import PackageRequest
    from provision.driver.terms import Manager
    from provision.fleet.facts import NodeFacts
    from provision.spec.model import Driver


@dataclass(frozen=True)
class Choice:
    """The driver of one node. ``upstream`` is its version in NVIDIA's notation."""

    manager: Manager
    flavour: Flavour
    request: PackageRequest
    driver: DriverPackages
    upstream: str
    kernels: tuple[str, ...]
    derived: tuple[Derived, ...]

    @property
    def is_module_managed(self) -> bool:
        """Whether the kernel module comes with these packages."""
        return self.flavour is not Flavour.NONE


def choose_driver(
    facts: NodeFacts, declared: Driver, distribution: Distribution, *, version_reason: str = ""
) -> Choice | Problem:
    """Return the driver that a node is to have, or why there is none for it."""
    version = declared.version
    if version is None:
        return _no_version(declared)
    gpus = gpus_of(facts)
    if declared.kernel_module is not KernelModule.NONE and (problem := check_branch(gpus, version)):
        return problem
    flavour = choose(gpus, version, declared.kernel_module)
    if isinstance(flavour, Problem):
        return flavour
    companions = declared.companions
    if companions is None:
        companions = tuple(derive_companions(facts, declared, distribution, flavour.value))
    kernels = kernels_of(facts) if flavour.value is not Flavour.NONE else ()
    request = packages(
        distribution,
        declared.source,
        version,
        flavour.value,
        declared.capabilities,
        companions,
        kernels=kernels,
        known=facts.available.keys(),
    )
    if isinstance(request, Problem):
        return request
    driver = resolve_driver(wanted=version, request=request, available=facts.available, installed=facts.packages)
    if isinstance(driver, Problem):
        return _with_lists_error(driver, facts)
    derived = []
    if version_reason:
        derived.append(Derived(key="driver.version", value=version, reason=version_reason))
    if declared.kernel_module is KernelModule.AUTO:
        derived.append(Derived(key="driver.kernelModule", value=flavour.value.value, reason=flavour.reason))
    if declared.companions is None and companions:
        names = ", ".join(each.value for each in companions)
        derived.append(Derived(key="driver.companions", value=names, reason="from the node's hardware"))
    return Choice(
        manager=distribution.manager,
        flavour=flavour.value,
        request=request,
        driver=driver,
        upstream=distribution.scheme(driver.version).upstream,
        kernels=kernels,
        derived=tuple(derived),
    )


def gpus_of(facts: NodeFacts) -> tuple[GpuSupport, ...]:
    """Return what the GPUs of a node can run."""
    return tuple(
        support(gpu.device, f"{gpu.subsystem_vendor}:{gpu.subsystem_device}" if gpu.subsystem_device else "")
        for gpu in facts.gpus
    )


def kernels_of(facts: NodeFacts) -> tuple[str, ...]:
    """Return the kernels that need the module: the running one, the one that boots next, those it can be built for."""
    wanted = tuple(each.release for each in facts.kernels if each.running or each.default or each.headers)
    return wanted or (facts.node.kernel,)


def derive_companions(
    facts: NodeFacts, declared: Driver, distribution: Distribution, flavour: Flavour
) -> Iterator[Companion]:
    """Yield what the node's hardware needs beside the driver, as far as the source of packages has it.

    NVSwitches do nothing without a fabric manager of the driver's version (NVIDIA's Fabric Manager user guide).
    """
    offer = distribution.offers.get(declared.source)
    if offer is None or flavour is Flavour.NONE or declared.version is None:
        return
    offered = offer(int(declared.version.partition(".")[0])).companions
    if facts.nvswitches:
        yield from (each for each in (Companion.FABRICMANAGER, Companion.NSCQ) if each in offered)


def _no_version(declared: Driver) -> Problem:
    if declared.branch is not None:
        return Problem(
            code="version-not-chosen",
            message=f"driver.branch {declared.branch} stands for one version in the whole fleet, and none was chosen",
            hint="use grapnel apply, which chooses it from the facts of all nodes, or declare the version",
        )
    return Problem(
        code="version-not-declared",
        message="the driver is enabled and has no version",
        hint="declare driver.version, or driver.enabled: false",
    )


def _with_lists_error(problem: Problem, facts: NodeFacts) -> Problem:
    reason = facts.package_manager.lists_error
    if not reason:
        return problem
    hint = f"{problem.hint}; the package lists could not be refreshed: {reason}"
    return msgspec.structs.replace(problem, hint=hint)
