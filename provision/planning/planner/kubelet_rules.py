"""Judges what a kubelet would make of all its settings: what it would refuse, and what would not come into effect."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from provision.declaration.spec.rules.node import MEMORY_SUM
from provision.declaration.spec.text.excerpt import few
from provision.declaration.spec.values.quantities import parse_quantity, show_memory
from provision.planning.node_plan import Problem
from provision.planning.render.kubelet import says

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.declaration.fleet.facts.kubelet import KubeletState
    from provision.declaration.fleet.facts.node import NodeFacts

# Flags of the kubelet that say what a key says: a command line counts more than every file.
_FLAGS: Final = {
    "topologyManagerPolicy": "topology-manager-policy",
    "topologyManagerScope": "topology-manager-scope",
    "topologyManagerPolicyOptions": "topology-manager-policy-options",
    "cpuManagerPolicy": "cpu-manager-policy",
    "cpuManagerPolicyOptions": "cpu-manager-policy-options",
    "memoryManagerPolicy": "memory-manager-policy",
    "reservedMemory": "reserved-memory",
    "reservedSystemCPUs": "reserved-cpus",
    "systemReserved": "system-reserved",
    "kubeReserved": "kube-reserved",
    "evictionHard": "eviction-hard",
}
# Flags of cAdvisor that a newer kubelet does not know (cmd/kubelet/app/options/globalflags_linux.go).
_GONE_IN: Final = "1.37"
_GONE: Final = frozenset(
    {
        *("application-metrics-count-limit", "boot-id-file", "container-hints", "containerd", "containerd-namespace"),
        *("enable-load-reader", "event-storage-age-limit", "event-storage-event-limit", "global-housekeeping-interval"),
        *("log-cadvisor-usage", "machine-id-file", "storage-driver-buffer-duration", "storage-driver-db"),
        *("storage-driver-host", "storage-driver-password", "storage-driver-secure", "storage-driver-table"),
        "storage-driver-user",
    }
)
_V1_REFUSED: Final = (1, 35)  # KubeletConfiguration v1beta1: failCgroupV1 is true by default
# pkg/kubelet/cm/topologymanager: with more NUMA nodes than that, a kubelet with a policy does not start.
_MOST_NUMA_NODES: Final = 8
_MORE_NUMA_NODES: Final = "max-allowable-numa-nodes"
_EVICTION: Final = "memory.available"
_USUAL_EVICTION: Final = "100Mi"  # KubeletConfiguration v1beta1: where evictionHard says nothing at all


def kubelet_problems(
    facts: NodeFacts, state: KubeletState, settings: Mapping[str, Any], effective: Mapping[str, Any]
) -> tuple[Problem, ...]:
    """Return why the kubelet would not work as declared; nothing where nothing is declared."""
    if not settings:
        return ()
    problems = _problems(facts.node.hostname, state, settings, effective)
    return (*problems, *_too_many_numa_nodes(facts, effective))


def kubelet_warnings(facts: NodeFacts, state: KubeletState) -> tuple[Problem, ...]:
    """Return what will keep the kubelet from starting once it is upgraded."""
    flags = ", ".join(f"--{flag}" for flag in state.flags if flag in _GONE)
    if not flags:
        return ()
    warning = Problem(
        code="kubelet-flag-gone",
        message=f"{state.unit} on {facts.node.hostname} starts the kubelet with {flags}: from Kubernetes {_GONE_IN} "
        "on, a kubelet does not start with that",
        hint="take it out of the service before the upgrade (often in /etc/default/kubelet or "
        "/var/lib/kubelet/kubeadm-flags.env)",
    )
    return (warning,)


def cgroup_warnings(facts: NodeFacts) -> tuple[Problem, ...]:
    """Return that a kubelet does not start on a node with cgroup v1, or will not once it is upgraded."""
    found = facts.cgroup_v1
    version = None if found is None else re.match(r"([0-9]{1,4})\.([0-9]{1,4})", found.kubelet)
    if found is None or version is None or found.allowed:
        return ()
    refuses = (int(version[1]), int(version[2])) >= _V1_REFUSED
    which = f"its kubelet {found.kubelet}" if refuses else "from Kubernetes 1.35 on, a kubelet"
    return (
        Problem(
            code="cgroup-v1",
            message=f"{facts.node.hostname} has cgroup v1, and {which} does not start there",
            hint="boot it with cgroup v2 (systemd.unified_cgroup_hierarchy=1 on the kernel's command line), or write "
            "failCgroupV1: false into the kubelet's configuration as long as there are releases that take it",
        ),
    )


def numa_warnings(facts: NodeFacts) -> tuple[Problem, ...]:
    """Return that the kubelet of a node takes memory of devices for the machine's, as far as that is known."""
    without = () if facts.kernel is None else facts.kernel.numa_nodes_without_cpus
    if not without or not facts.gpus or facts.kubelet is None:
        return ()
    return (
        Problem(
            code="coherent-gpu-memory",
            message=f"{facts.node.hostname} has NUMA nodes without CPUs ({few([str(each) for each in without])}): the "
            "kubelet counts their memory as the machine's, and on Grace it is that of the GPUs",
            hint="declare driver.moduleParameters: {NVreg_CoherentGPUMemoryMode: driver}, which driver 580 and later "
            "have: then the driver alone gives GPUs' memory, and there are no such nodes",
        ),
    )


def _too_many_numa_nodes(facts: NodeFacts, effective: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield that a kubelet that aligns by NUMA nodes does not start, as the node has more of them than it allows."""
    count = 0 if facts.kernel is None else len(facts.kernel.numa_nodes)
    allowed = _entry(effective, "topologyManagerPolicyOptions", _MORE_NUMA_NODES)
    limit = int(allowed) if isinstance(allowed, str) and allowed.isdecimal() else _MOST_NUMA_NODES
    policy = effective.get("topologyManagerPolicy", "none")
    if policy != "none" and count > limit:
        yield Problem(
            code="kubelet-numa-nodes",
            message=f"{facts.node.hostname} has {count} NUMA nodes, and a kubelet with topologyManagerPolicy: {policy} "
            f"does not start with more than {limit}",
            hint=f'declare node.kubelet.topologyManagerPolicyOptions: {{{_MORE_NUMA_NODES}: "{count}"}} (Kubernetes '
            "1.31 or later); on Grace, driver.moduleParameters: {NVreg_CoherentGPUMemoryMode: driver} makes them fewer",
        )


def _problems(
    node: str, state: KubeletState, settings: Mapping[str, Any], effective: Mapping[str, Any]
) -> Iterator[Problem]:
    for key, value in settings.items():
        if _FLAGS.get(key) in state.flags:
            yield Problem(
                code="kubelet-flag",
                message=f"{state.unit} on {node} starts the kubelet with --{_FLAGS[key]}, which overrides {key}",
                hint="take the flag out of the service (often in /etc/default/kubelet or /etc/sysconfig/kubelet)",
            )
        elif not says(effective.get(key), value):
            yield Problem(
                code="kubelet-overridden",
                message=f"a file in {state.config_dir} of {node} that is read after grapnel's has another {key}",
                hint="take the key out of that file, or the declaration",
            )
    if effective.get("cpuManagerPolicy") == "static" and not _reserves_cpus(effective):
        yield Problem(
            code="kubelet-no-reserved-cpus",
            message=f"with cpuManagerPolicy: static, the kubelet of {node} needs reserved CPUs, and has none",
            hint="declare node.kubelet.reservedSystemCPUs, or cpu in systemReserved or kubeReserved",
        )
    if effective.get("memoryManagerPolicy") == "Static":
        yield from _memory(node, effective)


def _reserves_cpus(effective: Mapping[str, Any]) -> bool:
    return bool(effective.get("reservedSystemCPUs")) or any(
        parse_quantity(_entry(effective, key, "cpu")) for key in ("systemReserved", "kubeReserved")
    )


def _memory(node: str, effective: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield that the reserved memory is not what the kubelet demands; a percentage is of what only the node knows."""
    listed = effective.get("reservedMemory")
    entries = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    reserved = sum((parse_quantity(_entry(each, "limits", "memory")) or Fraction() for each in entries), Fraction())
    given = effective.get("evictionHard")
    eviction = _entry(effective, "evictionHard", _EVICTION) if given else _USUAL_EVICTION
    parts = (_entry(effective, "kubeReserved", "memory"), _entry(effective, "systemReserved", "memory"), eviction)
    amounts = [Fraction() if part is None else parse_quantity(part) for part in parts]
    known = [amount for amount in amounts if amount is not None]
    wanted = sum(known, Fraction())
    if len(known) == len(amounts) and reserved != wanted:
        message = f"reservedMemory of {node} adds up to {show_memory(reserved)}, and has to be {show_memory(wanted)}"
        yield Problem(code="kubelet-reserved-memory", message=message, hint=f"it is {MEMORY_SUM}")


def _entry(settings: Mapping[str, Any], key: str, name: str) -> Any:
    inner = settings.get(key)
    return inner.get(name) if isinstance(inner, dict) else None
