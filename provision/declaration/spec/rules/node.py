"""Checks rules across the keys of the section `node`.

What the kubelet has of its own is not known here: what depends on it is judged again when a node is planned for.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import (
    CpuManagerPolicy,
    MemoryManagerPolicy,
    TopologyManagerPolicy,
)
from provision.declaration.spec.rules.remark import error, warning
from provision.declaration.spec.values.quantities import parse_quantity, show_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import Kubelet, StackSpec
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

KUBELET: Final[KeyPath] = ("node", "kubelet")
_OWNERS: Final = {
    "grapnel.dev/": "grapnel, which sets it by itself",
    "node.kubernetes.io/": "Kubernetes",
    "kubernetes.io/": "the kubelet",
}
MEMORY_SUM: Final = "kubeReserved.memory + systemReserved.memory + evictionHard memory.available"


def judge_node(spec: StackSpec) -> Iterator[Remark]:
    """Yield every rule that the section does not keep."""
    return chain(_taints(spec), _reserved(spec), _topology(spec), _cpus(spec), _memory(spec))


def _taints(spec: StackSpec) -> Iterator[Remark]:
    """Within one node, a key and an effect name a taint."""
    seen = set()
    for index, taint in enumerate(spec.node.taints):
        name = (taint.key, taint.effect)
        if name in seen:
            message = f"'{taint.key}' with effect {taint.effect.value} is listed twice"
            yield error(("node", "taints", index), message, "a key and an effect name one taint")
        seen.add(name)


def _reserved(spec: StackSpec) -> Iterator[Remark]:
    """Yield keys that belong to others, who would set them again."""
    keys: list[tuple[KeyPath, str]] = [
        *((("node", "labels", key), key) for key in spec.node.labels),
        *((("node", "taints", index), taint.key) for index, taint in enumerate(spec.node.taints)),
    ]
    for path, key in keys:
        owner = next((owner for prefix, owner in _OWNERS.items() if key.startswith(prefix)), "")
        if owner:
            yield error(path, f"'{key}' belongs to {owner}", "use a domain of your own")


def _topology(spec: StackSpec) -> Iterator[Remark]:
    kubelet = spec.node.kubelet
    policy = kubelet.topology_manager_policy
    if policy is TopologyManagerPolicy.NONE:
        if kubelet.topology_manager_scope is not None:
            hint = "write a policy such as restricted, or leave the scope out"
            yield warning((*KUBELET, "topologyManagerScope"), "says nothing with topologyManagerPolicy: none", hint)
        if kubelet.topology_manager_policy_options:
            hint = "write a policy such as restricted, or leave the options out"
            yield warning(
                (*KUBELET, "topologyManagerPolicyOptions"), "say nothing with topologyManagerPolicy: none", hint
            )
    elif policy is not None and kubelet.cpu_manager_policy is CpuManagerPolicy.NONE:
        message = f"{policy.value} aligns no CPUs with cpuManagerPolicy: none"
        yield warning((*KUBELET, "topologyManagerPolicy"), message, "write cpuManagerPolicy: static")
    for name, value in kubelet.topology_manager_policy_options.items():
        is_number = name == "max-allowable-numa-nodes"
        if is_number is value.isalpha():
            hint = 'write a number, such as "16"' if is_number else 'write "true" or "false"'
            yield error((*KUBELET, "topologyManagerPolicyOptions", name), f"cannot be '{value}'", hint)


def _cpus(spec: StackSpec) -> Iterator[Remark]:
    kubelet = spec.node.kubelet
    options = {name for name, value in kubelet.cpu_manager_policy_options.items() if value == "true"}
    path: KeyPath = (*KUBELET, "cpuManagerPolicyOptions")
    is_static = kubelet.cpu_manager_policy is CpuManagerPolicy.STATIC
    if kubelet.cpu_manager_policy_options and not is_static:
        yield error(path, "are options of the policy static", "write cpuManagerPolicy: static, or leave them out")
    if is_static and not _reserves_cpus(kubelet):
        hint = "write reservedSystemCPUs, such as 0-3; or cpu in systemReserved or kubeReserved"
        message = "static needs reserved CPUs, and none are declared: a kubelet without them does not start"
        yield warning((*KUBELET, "cpuManagerPolicy"), message, hint)
    if "align-by-socket" in options and kubelet.topology_manager_policy is TopologyManagerPolicy.SINGLE_NUMA_NODE:
        message = "cannot be had with topologyManagerPolicy: single-numa-node"
        yield error((*path, "align-by-socket"), message, "write restricted, or leave the option out")
    if {"full-pcpus-only", "distribute-cpus-across-cores"} <= options:
        message = "cannot be had with full-pcpus-only"
        yield error((*path, "distribute-cpus-across-cores"), message, "leave one of them out")
    yield from _cpu_list(kubelet)


def _reserves_cpus(kubelet: Kubelet) -> bool:
    if kubelet.reserved_system_cpus is not None:
        return True
    return any(parse_quantity(given.get("cpu")) for given in (kubelet.system_reserved, kubelet.kube_reserved))


def _cpu_list(kubelet: Kubelet) -> Iterator[Remark]:
    path: KeyPath = (*KUBELET, "reservedSystemCPUs")
    listed = kubelet.reserved_system_cpus
    if listed is None:
        return
    ranges = [part.split("-") for part in listed.split(",")]
    if any(int(part[0]) > int(part[-1]) for part in ranges):
        yield error(path, f"'{listed}' has a range that ends before it begins", "write 0-3, not 3-0")
    for name, given in (("systemReserved", kubelet.system_reserved), ("kubeReserved", kubelet.kube_reserved)):
        if "cpu" in given:
            hint = "leave one of them out"
            yield warning((*KUBELET, name, "cpu"), "says nothing beside reservedSystemCPUs", hint)


def _memory(spec: StackSpec) -> Iterator[Remark]:
    kubelet = spec.node.kubelet
    path: KeyPath = (*KUBELET, "reservedMemory")
    nodes = [each.numa_node for each in kubelet.reserved_memory]
    for index, node in enumerate(nodes):
        if node in nodes[:index]:
            yield error((*path, index), f"NUMA node {node} is listed twice", "list it once, with all that is reserved")
    if kubelet.memory_manager_policy is MemoryManagerPolicy.STATIC:
        if not kubelet.reserved_memory:
            hint = f"write reservedMemory; its memory adds up to {MEMORY_SUM}"
            yield error((*KUBELET, "memoryManagerPolicy"), "Static needs reservedMemory", hint)
        else:
            yield from _sum(kubelet, path)
    elif kubelet.reserved_memory:
        yield warning(path, "says nothing without memoryManagerPolicy: Static", "write it, or leave reservedMemory out")


def _sum(kubelet: Kubelet, path: KeyPath) -> Iterator[Remark]:
    """Yield that the sum is not the one without which the kubelet does not start; it may have parts of its own."""
    reserved = sum(
        (parse_quantity(each.limits.get("memory", "0")) or Fraction() for each in kubelet.reserved_memory), Fraction()
    )
    declared = (
        kubelet.kube_reserved.get("memory"),
        kubelet.system_reserved.get("memory"),
        kubelet.eviction_hard.get("memory.available"),
    )
    known = [amount for text in declared if text is not None and (amount := parse_quantity(text)) is not None]
    wanted = sum(known, Fraction())
    if reserved < wanted or (len(known) == len(declared) and reserved != wanted):
        message = f"adds up to {show_memory(reserved)} of memory, and has to be {show_memory(wanted)}"
        yield error(path, message, f"it is {MEMORY_SUM}")
