"""Maps a declared driver to packages: which distribution a node has, and what to ask its package manager for."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from provision.declaration.spec.model import DriverSource
from provision.planning.architecture import ARCHITECTURES
from provision.planning.driver.packages.distributions import DISTRIBUTIONS
from provision.planning.driver.packages.distributions.runfile import PATTERNS as RUNFILE_PATTERNS
from provision.planning.driver.packages.package_request import PackageRequest
from provision.planning.driver.packages.package_set import CompanionPackages, ModulePackages
from provision.planning.driver.terms import Flavour, branch_of
from provision.planning.node_plan import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from provision.declaration.fleet.facts.node import NodeIdentity
    from provision.declaration.spec.model import Capability, Companion
    from provision.planning.driver.packages.distribution import Distribution
    from provision.planning.driver.packages.package_set import PackageSet

__all__ = ["DISTRIBUTIONS", "find_distribution", "packages"]

# Of these, a release is told by the part of its version before the point: minor releases share repositories.
_BY_MAJOR = frozenset({"rhel", "rocky", "almalinux", "sles"})
_NO_PACKAGES = "has no package manager: driver and container engine are parts of its image"
_IN_A_SNAPSHOT = "changes packages in a snapshot that it boots next: no driver can be exchanged while it runs"
_WITH_THE_IMAGE = "takes packages from the image that it boots: no driver can be exchanged while it runs"
# What keeps grapnel off a system that is an image, by the ID of os-release, or by what keeps it as one.
_IMAGES = {
    "talos": _NO_PACKAGES,
    "bottlerocket": _NO_PACKAGES,
    "flatcar": _NO_PACKAGES,
    "cos": _NO_PACKAGES,
    "ubuntu-core": _NO_PACKAGES,
    "rhcos": _WITH_THE_IMAGE,
    "ostree": _WITH_THE_IMAGE,
    "bootc": _WITH_THE_IMAGE,
    "sle-micro": _IN_A_SNAPSHOT,
    "sl-micro": _IN_A_SNAPSHOT,
    "transactional-update": _IN_A_SNAPSHOT,
}


def find_distribution(node: NodeIdentity) -> Distribution | Problem:
    """Return the distribution of a node, or why it is not supported."""
    if node.architecture not in ARCHITECTURES:
        return Problem(
            code="unsupported-os",
            message=f"{node.hostname} has architecture {node.architecture}, which is not supported yet",
            hint=f"supported architectures: {', '.join(ARCHITECTURES)}",
        )
    system = f"{node.hostname} runs {node.os.id} {node.os.version_id or 'without a version'}"
    if why := _IMAGES.get(node.os.image) or _IMAGES.get(node.os.id):
        return Problem(
            code="image-system",
            message=f"{system}{f' of {node.os.image}' if node.os.image else ''}, which {why}",
            hint="take it out of the inventory, and have driver and container toolkit in its image: "
            "docs/systems/boot.md#image-systems",
        )
    version_id = node.os.version_id
    if node.os.id in _BY_MAJOR:
        version_id = version_id.partition(".")[0]
    there = [each for each in DISTRIBUTIONS if each.architecture.name == node.architecture]
    for distribution in there:
        if (distribution.id, distribution.version_id) == (node.os.id, version_id):
            return distribution
    return Problem(
        code="unsupported-os",
        message=f"{system}, which is not supported yet",
        hint=f"supported distributions: {', '.join(each.label for each in there)}",
    )


def packages(  # noqa: PLR0917 - one declaration, key by key
    distribution: Distribution,
    source: DriverSource,
    version: str,
    flavour: Flavour,
    capabilities: Sequence[Capability],
    companions: Sequence[Companion] = (),
    *,
    kernels: Sequence[str] = (),
    known: Collection[str] | None = None,
) -> PackageRequest | Problem:
    """Return what to ask for, without what that brings with it.

    ``version`` is an upstream version or a branch. ``kernels`` are the releases that need the module; ``known`` are
    the packages that the node's package manager has, by which a compiled module is chosen only where every kernel
    has one (None: it is chosen wherever the source has such). What was found is remembered for nodes that ask alike.
    """
    needs = (tuple(capabilities), tuple(companions), tuple(kernels))
    return _packages(distribution, source, version, flavour, needs, known=None if known is None else frozenset(known))


@lru_cache(maxsize=64)
def _packages(
    distribution: Distribution,
    source: DriverSource,
    version: str,
    flavour: Flavour,
    needs: tuple[tuple[Capability, ...], tuple[Companion, ...], tuple[str, ...]],
    *,
    known: frozenset[str] | None,
) -> PackageRequest | Problem:
    capabilities, companions, kernels = needs
    offer = distribution.offers.get(source)
    if offer is None:
        return _no_source(distribution, source)
    names = offer(branch_of(version))
    if missing := [each for each in capabilities if each not in names.user_space]:
        return _no_capability(distribution, source, names, missing)
    if lacking := [each for each in companions if each not in names.companions]:
        return _no_companion(distribution, source, names, lacking)
    module = ModulePackages() if flavour is Flavour.NONE else names.modules.get(flavour)
    if module is None:
        return _no_flavour(distribution, source, version, names, flavour)
    beside = [names.companions[each] for each in companions]
    roots = [*(names.user_space[each] for each in capabilities), *(each.packages for each in beside)]
    request = _request(distribution, names, flavour, module, beside, roots=roots, kernels=kernels, known=known)
    if source is not DriverSource.RUNFILE:  # what was made of a runfile goes with the driver that it belonged to
        request = replace(request, rivals=_sorted((*request.rivals, *RUNFILE_PATTERNS)))
    if flavour is not Flavour.NONE and not request.module_roots:
        return _no_kernels(distribution)
    return request


def _request(
    distribution: Distribution,
    names: PackageSet,
    flavour: Flavour,
    module: ModulePackages,
    beside: Sequence[CompanionPackages],
    *,
    roots: Sequence[Sequence[str]],
    kernels: Sequence[str],
    known: Collection[str] | None,
) -> PackageRequest:
    ready, ready_loose = _expand(module.ready, kernels), _expand(module.ready_loose, kernels)
    absent = [] if known is None else sorted({*ready, *ready_loose} - set(known))
    is_ready = bool(module.ready) and bool(kernels) and (not absent or not module.built)
    reason = ""
    if module.ready and module.built and not is_ready:
        reason = f"no compiled module for every kernel: {', '.join(absent)} not available" if absent else ""
    chosen = _sorted(ready if is_ready else _expand(module.built, kernels))
    return PackageRequest(
        roots=_sorted(_existing(name, known) for name in chain.from_iterable(roots)),
        members=names.members,
        scheme=distribution.scheme,
        module_roots=chosen,
        loose=_sorted(chain(ready_loose if is_ready else (), *(each.loose for each in beside))),
        dkms_name=None if is_ready else module.dkms,
        module_stream=names.streams.get(flavour),
        services=_sorted(chain.from_iterable(each.services for each in beside)),
        kernel_modules=_sorted(chain.from_iterable(each.modules for each in beside)),
        rivals=_rivals(names, flavour, chosen, kernels),
        reason=reason,
    )


def _rivals(names: PackageSet, flavour: Flavour, chosen: Sequence[str], kernels: Sequence[str]) -> tuple[str, ...]:
    """Return the packages of every other module: of the other flavour, and of this one made in the other way."""
    if flavour is Flavour.NONE:
        return ()
    modules = [_expand((*each.built, *each.ready), kernels) for each in names.modules.values()]
    metas = [each.meta for key, each in names.modules.items() if key is not flavour]
    return _sorted(set(chain(*modules, *metas)) - set(chosen))


def _expand(templates: Iterable[str], kernels: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a module's packages, one for each kernel where a name has one in it."""
    return tuple(
        dict.fromkeys(
            template.format(kernel=kernel, variant=kernel.rpartition("-")[2])
            for template in templates
            for kernel in (kernels if "{" in template else ("",))
        )
    )


def _existing(name: str, known: Collection[str] | None) -> str:
    """Return the first of alternatives (``a|b``) that the package manager knows, or else the first."""
    alternatives = name.split("|")
    return next((each for each in alternatives if known is not None and each in known), alternatives[0])


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def _no_source(distribution: Distribution, source: DriverSource) -> Problem:
    others = ", ".join(each.value for each in distribution.offers)
    return Problem(
        code="unsupported-driver-source",
        message=f"driver.source is {source.value}, which has no driver packages for {distribution.label}",
        hint=f"declare driver.source: {others}",
    )


def _no_capability(
    distribution: Distribution, source: DriverSource, names: PackageSet, missing: Sequence[Capability]
) -> Problem:
    return Problem(
        code="unsupported-capability",
        message=f"driver.capabilities has {_values(missing)}, which source {source.value} has no packages for "
        f"on {distribution.label}",
        hint=f"supported capabilities: {_values(names.user_space)}",
    )


def _no_companion(
    distribution: Distribution, source: DriverSource, names: PackageSet, lacking: Sequence[Companion]
) -> Problem:
    return Problem(
        code="unsupported-companion",
        message=f"driver.companions has {_values(lacking)}, which source {source.value} has no packages for "
        f"on {distribution.label}",
        hint=f"supported companions: {_values(names.companions)}; driver.source: nvidia has them all on most systems",
    )


def _no_flavour(
    distribution: Distribution, source: DriverSource, version: str, names: PackageSet, flavour: Flavour
) -> Problem:
    return Problem(
        code="unsupported-kernel-module",
        message=f"driver {version} has no {flavour.value} kernel module in source {source.value} "
        f"on {distribution.label}",
        hint=f"declare driver.kernelModule: {_values(names.modules)}, or another branch",
    )


def _no_kernels(distribution: Distribution) -> Problem:
    return Problem(
        code="kernels-unknown",
        message=f"packages of the kernel module are chosen by kernel on {distribution.label}, and no kernel is known",
        hint="gather facts again: they name the installed kernels",
    )


def _values(members: Iterable[Capability | Companion | Flavour]) -> str:
    return ", ".join(each.value for each in members)
