"""Checks rules across the keys of the section `plugin`: a device is offered in one way, and a name means one thing."""

from __future__ import annotations

from itertools import chain, combinations
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from provision.declaration.spec.model import DaemonAs, GpuInterface, LabelTarget, MemoryOveruse, MigStrategy
from provision.declaration.spec.rules.remark import error, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import Plugin, PluginConfig, SharingStrategy
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

SECTION: Final[KeyPath] = ("plugin",)
_DOMAIN: Final = "nvidia.com"
_MIG: Final = f"{_DOMAIN}/mig-"
_SHOWN: Final = 8
MOST_UNITS: Final = 68_941  # of one GPU, in a list of 4 MiB: the shortest way in which they can be written down


class Division(NamedTuple):
    """Devices of a resource that are divided: where that is declared, how, and as what they are offered.

    ``said`` is how, in words: `timeSlicing`, or `timeSlicing of configs.NAME`.
    """

    path: KeyPath
    way: str
    resource: str
    devices: frozenset[str]  # empty: all
    shown_as: str
    said: str


def judge_plugin(plugin: Plugin) -> Iterator[Remark]:
    """Yield every rule that the section does not keep, errors and warnings."""
    return chain(_offers(plugin, SECTION), _configs(plugin), _daemon(plugin), _interface(plugin))


def _daemon(plugin: Plugin) -> Iterator[Remark]:
    yield from _in_a_pod(plugin) if plugin.daemon is DaemonAs.DAEMON_SET else _api(plugin)


def _offers(plugin: Plugin, path: KeyPath) -> Iterator[Remark]:
    """Yield what is wrong with what is offered; ``path`` is where its keys are, those of memory units apart."""
    rules = tuple(division_rules(plugin, path))
    yield from _reserved(plugin, rules, path)
    yield from _contradictions(rules)
    yield from _mig(plugin, rules, path)
    yield from _unnamed(plugin, path)
    yield from _units(plugin)


def _configs(plugin: Plugin) -> Iterator[Remark]:
    """Yield what is wrong with what a label may choose: each configuration as if its keys were those of the section."""
    known = set(_offers(plugin, SECTION))
    for name, config in plugin.configs.items():
        chosen = msgspec.structs.replace(plugin, **msgspec.structs.asdict(config))
        yield from (remark for remark in _offers(chosen, (*SECTION, "configs", name)) if remark not in known)
    if plugin.default_config is not None and plugin.default_config not in plugin.configs:
        there = ", ".join(sorted(plugin.configs)[:_SHOWN]) or "none is declared"
        message = f"there is no configuration '{plugin.default_config}'"
        yield error((*SECTION, "defaultConfig"), message, f"plugin.configs has: {there}")
    if plugin.configs and not plugin.reaches_api and plugin.default_config is None:
        hint = "write kubernetesApi, such as /etc/kubernetes/kubelet.conf, or defaultConfig"
        yield warning((*SECTION, "configs"), "have no effect: without the Kubernetes API, no label is heard of", hint)


def full_name(name: str) -> str:
    return name if "/" in name else f"{_DOMAIN}/{name}"


def division_rules(plugin: Plugin, where: KeyPath = SECTION) -> Iterator[Division]:
    ways = (("timeSlicing", plugin.sharing.time_slicing), ("mps", plugin.sharing.mps))
    for way, strategy in ways:
        if strategy is not None:
            yield from _of_strategy(way, strategy, where)
    for index, units in enumerate(plugin.memory_units):
        path: KeyPath = (*SECTION, "memoryUnits", index)
        yield Division(path, "memoryUnits", units.of, frozenset(units.devices), units.resource, "memoryUnits")


def _of_strategy(way: str, strategy: SharingStrategy, where: KeyPath) -> Iterator[Division]:
    said = way if where == SECTION else f"{way} of {'.'.join(map(str, where[1:]))}"
    for index, share in enumerate(strategy.resources):
        path: KeyPath = (*where, "sharing", way, "resources", index)
        name = full_name(share.name)
        shown = full_name(share.rename) if share.rename else f"{name}.shared" if strategy.rename_by_default else name
        yield Division(path, way, name, frozenset(share.devices), shown, said)


def _reserved(plugin: Plugin, rules: tuple[Division, ...], where: KeyPath) -> Iterator[Remark]:
    """Kubernetes keeps its own domain for native resources and refuses extended ones in it."""
    hint = "use a domain of your own, or nvidia.com"
    names: list[tuple[KeyPath, str]] = [((*SECTION, "resource"), plugin.resource)]
    names += [(rule.path, name) for rule in rules for name in dict.fromkeys((rule.resource, rule.shown_as))]
    for kind, patterns in (("gpus", plugin.resources.gpus), ("mig", plugin.resources.mig)):
        names += [((*where, "resources", kind, index), full_name(each.name)) for index, each in enumerate(patterns)]
    for path, name in names:
        domain = name.partition("/")[0]
        if domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
            yield error(path, "kubernetes.io is reserved for Kubernetes itself", hint)


def _contradictions(rules: tuple[Division, ...]) -> Iterator[Remark]:
    for one, other in combinations(rules, 2):
        may_overlap = not one.devices or not other.devices or bool(one.devices & other.devices)
        if one.resource == other.resource and may_overlap:
            message = f"{other.resource} is divided by {one.said}, too"
            yield error(other.path, message, "name other devices in each, or leave one out")
        elif one.shown_as == other.shown_as and one.way != other.way:
            message = f"{other.shown_as} would also be what {one.said} offers"
            yield error(other.path, message, "give one of them another name")


def _mig(plugin: Plugin, rules: tuple[Division, ...], where: KeyPath) -> Iterator[Remark]:
    of_mig = {full_name(each.name) for each in plugin.resources.mig}
    for rule in rules:
        is_mig = rule.resource.startswith(_MIG) or rule.resource in of_mig
        if is_mig and rule.way == "mps":
            yield error(rule.path, "MIG devices are not shared through MPS", "use timeSlicing")
        elif is_mig and plugin.mig_strategy is not MigStrategy.MIXED:
            yield warning(rule.path, f"{rule.resource} is not offered", "write migStrategy: mixed")
    if plugin.resources.mig and plugin.mig_strategy is not MigStrategy.MIXED:
        yield warning((*where, "resources", "mig"), "has no effect", "write migStrategy: mixed")


def _units(plugin: Plugin) -> Iterator[Remark]:
    for index, units in enumerate(plugin.memory_units):
        if units.memory_mib is None:
            continue
        path = (*SECTION, "memoryUnits", index)
        count = units.memory_mib // units.unit_mib
        if count < 1:
            message = f"{units.memory_mib} MiB are less than a unit of {units.unit_mib} MiB"
            yield error((*path, "memoryMiB"), message, "leave it out where the driver says how much memory a GPU has")
        elif count > MOST_UNITS:
            message = f"{count} units of a GPU are a list of more than 4 MiB, and a kubelet takes no more"
            yield error((*path, "memoryMiB"), message, "declare a larger unitMiB, such as 1024")


def _unnamed(plugin: Plugin, where: KeyPath) -> Iterator[Remark]:
    if plugin.resources.gpus and plugin.resource != f"{_DOMAIN}/gpu":
        message = "has no effect beside resources.gpus, which names every resource"
        yield warning(
            (*where, "resource") if where == SECTION else (*where, "resources"), message, "leave one of them out"
        )


def _api(plugin: Plugin) -> Iterator[Remark]:
    """Yield what cannot be had without the Kubernetes API."""
    if plugin.kubernetes_api is not None:
        return
    hint = "write kubernetesApi, such as /etc/kubernetes/kubelet.conf"
    if plugin.labels in {LabelTarget.NODE, LabelTarget.NODE_FEATURE}:
        yield error((*SECTION, "labels"), f"{plugin.labels.value} needs the Kubernetes API", hint)
    if plugin.memory_overuse is MemoryOveruse.EVICT:
        yield error((*SECTION, "memoryOveruse"), "evict needs the Kubernetes API", hint)


def _interface(plugin: Plugin) -> Iterator[Remark]:
    """Yield what dynamic resource allocation needs, and what of the declaration it does not offer."""
    yield from _division(plugin)
    if plugin.dynamic_mig and plugin.interface is not GpuInterface.DRA:
        hint = "write interface: dra, or declare mig.layout, whose MIG devices the device plugin offers"
        yield error((*SECTION, "dynamicMig"), "the device plugin offers MIG devices that are there", hint)
    if plugin.compute_domains and not plugin.interface.has_claims:
        hint = "write interface: dra, or both, or leave it out"
        yield error((*SECTION, "computeDomains"), "a ComputeDomain gives its channel by claims", hint)
    if not plugin.interface.has_claims:
        return
    if plugin.dynamic_mig and plugin.interface is GpuInterface.DRA:
        yield from _shares_of_mig(plugin, SECTION)
        for name, config in plugin.configs.items():
            chosen = msgspec.structs.replace(plugin, sharing=config.sharing)
            yield from _shares_of_mig(chosen, (*SECTION, "configs", name))
    path: KeyPath = (*SECTION, "interface")
    if not plugin.reaches_api:
        said = plugin.interface.value
        message = f"{said} needs the Kubernetes API, where the node's devices are published and its claims are read"
        yield error(path, message, "write kubernetesApi, such as /etc/kubernetes/kubelet.conf")
    if plugin.interface is GpuInterface.DRA:
        yield from _names_alone(plugin, SECTION)
        for name, config in plugin.configs.items():
            yield from _names_alone(config, (*SECTION, "configs", name))


def _division(plugin: Plugin) -> Iterator[Remark]:
    """Yield what is wrong with the GPUs that are given by claims beside the device plugin."""
    if plugin.interface is GpuInterface.BOTH and not plugin.claims:
        message = "no GPU is named that claims are given, and interface: both gives each GPU by one of the two alone"
        hint = 'name some, such as ["4", "5"], or write interface: devicePlugin, or dra'
        yield error((*SECTION, "claims"), message, hint)
    elif plugin.claims and plugin.interface is not GpuInterface.BOTH:
        hint = "write interface: both, or leave it out; a node on its way from both keeps it for a way back"
        yield warning((*SECTION, "claims"), f"has no effect with interface: {plugin.interface.value}", hint)


def _shares_of_mig(plugin: Plugin, where: KeyPath) -> Iterator[Remark]:
    """Yield shares of MIG devices beside those that are made for claims: one of the two could be given twice."""
    for rule in division_rules(plugin, where):
        if rule.way != "memoryUnits" and rule.resource.startswith(_MIG):
            message = f"{rule.resource} is not shared with dynamicMig: each MIG device is made for one claim"
            yield error(rule.path, message, "leave it out, or leave dynamicMig out and declare mig.layout")


def _names_alone(part: Plugin | PluginConfig, where: KeyPath) -> Iterator[Remark]:
    """Yield names of resources by which nothing is shared: no device that a claim selects has one."""
    is_shared = part.sharing.time_slicing is not None or part.sharing.mps is not None
    if (part.resources.gpus or part.resources.mig) and not is_shared:
        message = "has no effect with interface: dra, where claims select devices by their attributes"
        yield warning((*where, "resources"), message, "leave it out")


def _in_a_pod(plugin: Plugin) -> Iterator[Remark]:
    """Yield what the daemon cannot do as a pod: it reaches neither the host's systemd nor its credentials."""
    if plugin.sharing.mps is not None:
        hint = "write daemon: unit, or share by timeSlicing"
        yield error((*SECTION, "sharing", "mps"), "a pod cannot start MPS's control daemons on its host", hint)
    if plugin.dynamic_mig:
        message = "a pod cannot make the device nodes of MIG devices on its host"
        yield error((*SECTION, "dynamicMig"), message, "write daemon: unit, or declare mig.layout")
    if plugin.compute_domains:
        message = "a pod cannot ask its host's nvidia-imex whether it is ready"
        yield error((*SECTION, "computeDomains"), message, "write daemon: unit")
    if plugin.memory_overuse is MemoryOveruse.EVICT:
        message = "evict needs the kubelet's credentials, which a pod does not have"
        yield error((*SECTION, "memoryOveruse"), message, "write daemon: unit, or report")
    if plugin.kubernetes_api is not None:
        message = "has no effect with daemon: daemonset, which has a service account instead"
        yield warning((*SECTION, "kubernetesApi"), message, "leave it out")
