"""Says which resources the nodes of a declaration offer, and judges the amounts of tenants by that. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import MigStrategy
from provision.declaration.spec.rules.plugin import division_rules, full_name
from provision.declaration.spec.rules.remark import error, warning
from provision.declaration.spec.rules.tenancy import OF_CLASS, TENANTS, bare, is_extended
from provision.declaration.spec.text.excerpt import few
from provision.declaration.spec.validate import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from provision.declaration.spec.model import Plugin, StackSpec, Tenancy
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

_DOMAIN: Final = "nvidia.com/"
_MIG: Final = f"{_DOMAIN}mig-"


def judge_offers(tenancy: Tenancy, specs: Sequence[StackSpec]) -> Iterator[Remark]:
    """Yield amounts of resources that no node with one of these declarations offers.

    Nothing is said where some node has no node daemon of grapnel: what another device plugin offers is not known.
    """
    if not all(spec.plugin.enabled for spec in specs):
        return
    plugins = _different(specs)
    known = sorted({name for plugin in plugins for name in offered(plugin)})
    mixed = any(_names_by_profile(plugin) for plugin in plugins)
    by_claims = any(plugin.interface.has_claims for plugin in plugins)
    if by_claims:
        yield from _uncounted(tenancy, known)
    for path, name in _asked(tenancy):
        if name in known or (mixed and name.startswith(_MIG)) or (by_claims and name.endswith(OF_CLASS)):
            continue
        if name.startswith(_MIG):
            yield error(path, f"no node offers {name}", "write plugin.migStrategy: mixed, or leave it out")
        elif name.startswith(_DOMAIN):
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else f"offered are {few(known)}"
            yield error(path, f"no node offers {name}", hint)
        elif not any(plugin.device_classes for plugin in plugins):
            hint = "make sure that another device plugin does, or leave it out"
            yield warning(path, f"no node of this declaration offers {name}", hint)


def _uncounted(tenancy: Tenancy, known: Sequence[str]) -> Iterator[Remark]:
    """Yield quotas of GPUs that a tenant with claims is not held by, at least in some clusters.

    Claims of whole GPUs count as the resource that their class stands for from Kubernetes 1.36 on.
    """
    for index, tenant in enumerate(tenancy.tenants):
        of_gpus = next((bare(name) for name in tenant.quota if bare(name) in known), "")
        if of_gpus and not any(name.endswith(OF_CLASS) for name in tenant.quota):
            message = f"counts {of_gpus}: claims of GPUs from Kubernetes 1.36 on alone, and claims of MIG devices never"
            yield warning((*TENANTS, index, "quota"), message, f"write gpu.nvidia.com{OF_CLASS} as well")


def _different(specs: Sequence[StackSpec]) -> list[Plugin]:
    """Return each of their sections once: of thousands of nodes, few differ."""
    found: list[Plugin] = []
    for spec in specs:
        if not any(spec.plugin is each or spec.plugin == each for each in found):
            found.append(spec.plugin)
    return found


def offered(plugin: Plugin) -> set[str]:
    """Return the names under which a node daemon offers GPUs; those of MIG profiles only where they are declared."""
    names = {full_name(each.name) for each in plugin.resources.gpus} or {plugin.resource}
    if plugin.mig_strategy is MigStrategy.MIXED:
        names |= {full_name(each.name) for each in plugin.resources.mig}
    for rule in division_rules(plugin):
        if rule.resource in names or (rule.resource.startswith(_MIG) and _names_by_profile(plugin)):
            names.add(rule.shown_as)
            if not rule.devices:  # all of them: none is left under the name that they had
                names.discard("" if rule.shown_as == rule.resource else rule.resource)
    return names


def _names_by_profile(plugin: Plugin) -> bool:
    return plugin.mig_strategy is MigStrategy.MIXED and not plugin.resources.mig


def _asked(tenancy: Tenancy) -> Iterator[tuple[KeyPath, str]]:
    """Yield each extended resource that a tenant or a queue has an amount of, and its key."""
    for path, amounts in _amounts(tenancy):
        for name in amounts:
            if is_extended(name):
                yield (*path, name), bare(name)


def _amounts(tenancy: Tenancy) -> Iterator[tuple[KeyPath, Mapping[str, int | str]]]:
    for index, tenant in enumerate(tenancy.tenants):
        yield (*TENANTS, index, "quota"), tenant.quota
        yield (*TENANTS, index, "containers", "default"), tenant.containers.default
        yield (*TENANTS, index, "containers", "max"), tenant.containers.max
    for place, queue in enumerate(tenancy.kueue.queues):
        for index, quota in enumerate(queue.quotas):
            yield ("tenancy", "kueue", "queues", place, "quotas", index, "resources"), quota.resources
