"""Chooses a node's driver: flavour, companions and packages, from what is declared and what the node has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from provision.declaration.spec.model import KernelModule
from provision.planning.driver.branches import check_branch
from provision.planning.driver.companions import needed_companions
from provision.planning.driver.flavour import Flavour as ChosenFlavour
from provision.planning.driver.flavour import choose
from provision.planning.driver.gpus import support
from provision.planning.driver.packages.catalogue import packages
from provision.planning.driver.packages.closure import DriverPackages, resolve_driver
from provision.planning.driver.terms import Flavour, branch_of
from provision.planning.node_plan import Derived, Problem
from provision.planning.planner.drivers.runfile import of_this_file
from provision.planning.planner.part import VERSION_NOT_CHOSEN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.fleet.facts.driver import Kernel
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import Driver
    from provision.planning.driver.companions import NeededCompanion
    from provision.planning.driver.gpus import GpuSupport
    from provision.planning.driver.packages.distribution import Distribution
    from provision.planning.driver.packages.package_request import PackageRequest
    from provision.planning.driver.terms import Manager


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


@dataclass(frozen=True)
class Wanted:
    """What a node is asked for, whatever the version within a branch; ``needed`` are derived companions."""

    flavour: ChosenFlavour
    needed: tuple[NeededCompanion, ...]
    kernels: tuple[str, ...]
    request: PackageRequest


def request_packages(facts: NodeFacts, declared: Driver, distribution: Distribution) -> Wanted | Problem:
    """Return what to ask for, from the declared version or branch, or why this node cannot have it."""
    version = declared.version or declared.branch
    if version is None:
        return Problem(
            code="version-not-declared",
            message="the driver is enabled and has no version",
            hint="declare driver.version or driver.branch, or driver.enabled: false",
        )
    gpus = gpus_of(facts)
    if declared.kernel_module is not KernelModule.NONE and (problem := check_branch(gpus, version)):
        return problem
    flavour = choose(gpus, version, declared.kernel_module)
    if isinstance(flavour, Problem):
        return flavour
    is_managed = flavour.value is not Flavour.NONE
    needed = _needed(facts, declared, distribution, version) if is_managed and declared.companions is None else ()
    companions = tuple(each.companion for each in needed) if declared.companions is None else declared.companions
    kernels = kernels_of(facts, declared) if is_managed else ()
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
    return Wanted(flavour, needed, kernels, of_this_file(request, flavour.value, declared))


def choose_driver(
    facts: NodeFacts, declared: Driver, distribution: Distribution, *, version_reason: str = ""
) -> Choice | Problem:
    """Return the driver that a node is to have, or why there is none for it."""
    wanted = request_packages(facts, declared, distribution)
    if isinstance(wanted, Problem):
        return wanted
    if declared.version is None:
        return Problem(
            code=VERSION_NOT_CHOSEN,
            message=f"driver.branch {declared.branch} stands for one version in the whole fleet, and none was chosen",
            hint="use grapnel apply or site.yml, which choose it from the facts of all nodes, or declare the version",
        )
    request = wanted.request
    driver = resolve_driver(
        wanted=declared.version, request=request, available=facts.available, installed=facts.packages
    )
    if isinstance(driver, Problem):
        return _with_lists_error(driver, facts)
    return Choice(
        manager=distribution.manager,
        flavour=wanted.flavour.value,
        request=request,
        driver=driver,
        upstream=distribution.scheme(driver.version).upstream,
        kernels=wanted.kernels,
        derived=tuple(_derived(facts, declared, wanted, version_reason)),
    )


def _derived(facts: NodeFacts, declared: Driver, wanted: Wanted, version_reason: str) -> Iterator[Derived]:
    if version_reason:
        yield Derived(key="driver.version", value=declared.version or "", reason=version_reason)
    if declared.kernel_module is KernelModule.AUTO:
        yield Derived(key="driver.kernelModule", value=wanted.flavour.value.value, reason=wanted.flavour.reason)
    for reason in dict.fromkeys(each.reason for each in wanted.needed):
        names = ", ".join(each.companion.value for each in wanted.needed if each.reason == reason)
        yield Derived(key="driver.companions", value=names, reason=reason)
    if wanted.request.reason:
        source = "compiled on the node" if wanted.request.dkms_name else "compiled by the distribution"
        yield Derived(key="driver.module", value=source, reason=wanted.request.reason)
    if facts.initramfs is not None and facts.initramfs.tool != "none" and wanted.flavour.value is not Flavour.NONE:
        reason = "it writes the disks that kernels boot with, again where the driver changes"
        yield Derived(key="driver.initramfs", value=facts.initramfs.tool, reason=reason)


def gpus_of(facts: NodeFacts) -> tuple[GpuSupport, ...]:
    """Return what the GPUs of a node can run."""
    return tuple(
        support(gpu.device, f"{gpu.subsystem_vendor}:{gpu.subsystem_device}" if gpu.subsystem_device else "")
        for gpu in facts.gpus
    )


def kernels_of(facts: NodeFacts, declared: Driver) -> tuple[str, ...]:
    """Return the kernels that need the module: the running one, the one that boots next, those it can be built for.

    A node that boots from the network runs a kernel that is not installed on it. Where the node may be rebooted, a
    running kernel without headers that another one follows is left behind: the package source of a kernel that was
    replaced rarely has its headers still.
    """
    left = kernel_left_behind(facts, declared)
    wanted = (each for each in facts.kernels if each.running or each.default or each.headers)
    installed = tuple(each.release for each in wanted if each is not left)
    is_installed = any(each.running for each in facts.kernels)
    return installed if is_installed else (facts.node.kernel, *installed)


def kernel_left_behind(facts: NodeFacts, declared: Driver) -> Kernel | None:
    """Return the running kernel where the driver is for those that boot next alone, None elsewhere."""
    running = next((each for each in facts.kernels if each.running), None)
    upcoming = next((each for each in facts.kernels if each.default), None)
    if not declared.reboot or running is None or upcoming is None or running is upcoming:
        return None
    has_module = any(module.version == declared.version for module in running.modules)
    return None if running.headers or has_module or not upcoming.headers else running


def _needed(
    facts: NodeFacts, declared: Driver, distribution: Distribution, version: str
) -> tuple[NeededCompanion, ...]:
    """Return what the node's hardware needs beside the driver."""
    offer = distribution.offers.get(declared.source)
    if offer is None:
        return ()
    return needed_companions(
        has_gpus=bool(facts.gpus),
        nvswitches=facts.nvswitches,
        has_infiniband=facts.infiniband,
        offered=offer(branch_of(version)).companions,
    )


def _with_lists_error(problem: Problem, facts: NodeFacts) -> Problem:
    reason = facts.package_manager.lists_error
    if not reason:
        return problem
    hint = f"{problem.hint}; the package lists could not be refreshed: {reason}"
    return msgspec.structs.replace(problem, hint=hint)
