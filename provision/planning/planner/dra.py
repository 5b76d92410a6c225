"""Judges whether claims can reach containers of a node, and says what a change of `plugin.interface` means there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from provision.declaration.spec.model import Engine, GpuInterface
from provision.planning.engines.files.engine_file import version_numbers
from provision.planning.node_plan import Disruption, Problem
from provision.planning.render.node_config import NODE_CONFIG_PATH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import Item

_KUBELET: Final = (1, 34)  # the first that has resource.k8s.io/v1 without a gate
_PARTITIONS: Final = (1, 36)  # the first with DRAPartitionableDevices on
_BESIDE_SHARES: Final = (1, 37)  # the first whose scheduler gives no partition twice where it counts shares as well
_CONTAINERD: Final = (1, 7)  # the first that takes CDI devices from a kubelet: no error tells of an older one
_CDI_ALWAYS_ON: Final = (2, 4)
_SAID_CDI: Final = re.compile(r"^[^#\n]*\benable_cdi[ \t]*=[ \t]*(true|false)", re.MULTILINE)
_VERSION_2: Final = re.compile(r"^[ \t]*version[ \t]*=[ \t]*2\b", re.MULTILINE)
_OTHERWISE: Final = "declare plugin.interface: devicePlugin for this node"
_DIVIDED: Final = (
    "other GPUs are given by claims: pods keep theirs, and one that is to be given otherwise is withheld until it is "
    "free"
)
_MADE_FOR_CLAIMS: Final = "MIG devices are made for claims, on GPUs in MIG mode: what is there stays as it is"
_MADE_NO_MORE: Final = "MIG devices are made for claims no more: those that pods have go with their claims"


def dra_problems(facts: NodeFacts, stack: StackSpec) -> tuple[Problem, ...]:
    """Return why no claim could reach a container of the node, as far as versions are known."""
    if not stack.plugin.interface.has_claims:
        return ()
    node, problems = facts.node.hostname, []
    if () < _kubelet(facts, stack) < _KUBELET:
        found = ".".join(map(str, _kubelet(facts, stack)))
        problem = Problem(
            code="kubelet-without-dra",
            message=f"the kubelet of {node} is {found}, and plugin.interface: {stack.plugin.interface.value} needs "
            "1.34 or later",
            hint=f"upgrade it first, or {_OTHERWISE}",
        )
        problems.append(problem)
    problems += _of_division(facts, stack)
    problems += _of_partitions(node, _kubelet(facts, stack), stack)
    engine = facts.engines.get(Engine.CONTAINERD.value) if stack.runtime.engine is Engine.CONTAINERD else None
    if engine is not None and () < version_numbers(engine.version) < _CONTAINERD:
        problem = Problem(
            code="engine-without-cdi",
            message=f"{node} has containerd {engine.version}, which takes no CDI devices from a kubelet: containers "
            "would start without the GPUs of their claims",
            hint=f"install containerd 1.7 or later, or {_OTHERWISE}",
        )
        problems.append(problem)
    return tuple(problems)


def _of_division(facts: NodeFacts, stack: StackSpec) -> list[Problem]:
    """Return why a list of GPUs for claims divides nothing on this node.

    One that the node has already is not judged: its GPUs are counted, and one that is lost is missing in the facts.
    """
    claims, count, node = stack.plugin.claims, len(facts.gpus), facts.node.hostname
    is_had = given_by(facts) is GpuInterface.BOTH and _said(facts).get("claims") == list(claims)
    if stack.plugin.interface is not GpuInterface.BOTH or not count or is_had:
        return []
    if unknown := [each for each in claims if each.isdecimal() and int(each) >= count]:
        message = f"plugin.claims names {', '.join(unknown)}, and {node} has {count} GPUs: 0 to {count - 1}"
        hint = "declare plugin.claims for this node or its group, or name GPUs by their UUIDs"
        return [Problem(code="claims-of-no-gpu", message=message, hint=hint)]
    if len(set(claims)) >= count:
        message = f"plugin.claims names all {count} GPUs of {node}, and leaves none to the device plugin"
        hint = "declare plugin.interface: dra for this node, or leave GPUs out of plugin.claims"
        return [Problem(code="claims-of-all-gpus", message=message, hint=hint)]
    return []


def _of_partitions(node: str, kubelet: tuple[int, ...], stack: StackSpec) -> list[Problem]:
    """Return why no MIG device may be made for claims: it would not be offered, or be given twice."""
    plugin = stack.plugin
    ways = [plugin.sharing, *(config.sharing for config in plugin.configs.values())]
    shared = any(each.time_slicing is not None or each.mps is not None for each in ways)
    if not plugin.dynamic_mig or not kubelet:
        return []
    found = ".".join(map(str, kubelet))
    if kubelet < _PARTITIONS:
        message = f"the kubelet of {node} is {found}, and plugin.dynamicMig needs 1.36 or later"
        hint = "upgrade the cluster first, or leave dynamicMig out for this node and declare mig.layout"
        return [Problem(code="kubernetes-without-partitions", message=message, hint=hint)]
    if shared and kubelet < _BESIDE_SHARES:
        message = (
            f"{node} has Kubernetes {found}, whose scheduler may give a partition of a GPU twice where it counts "
            "shares of GPUs as well: plugin.dynamicMig and plugin.sharing together need 1.37"
        )
        hint = "leave one of the two out for this node, or upgrade the cluster first"
        return [Problem(code="partitions-beside-shares", message=message, hint=hint)]
    return []


def dra_warnings(facts: NodeFacts, stack: StackSpec) -> tuple[Problem, ...]:
    """Return that the engine may take no CDI devices, where grapnel does not write that part of its configuration."""
    engine = stack.runtime.engine
    found = facts.engines.get(engine.value)
    if not stack.plugin.interface.has_claims or found is None or engine is Engine.CRIO:
        return ()
    is_on = version_numbers(found.version) >= _CDI_ALWAYS_ON
    if engine is Engine.CONTAINERD and (stack.runtime.enabled or is_on):
        return ()
    texts = [state.content for path, state in facts.files.items() if path.endswith(".toml") and state and state.content]
    said = {word for text in texts for word in _SAID_CDI.findall(text)}
    is_older = any(map(_VERSION_2.search, texts)) if found.config else () < version_numbers(found.version) < (2,)
    if said == {"true"} or not (said or is_older):
        return ()
    how = "says enable_cdi = false" if said else "says nothing of enable_cdi, which is off before containerd 2.0"
    warning = Problem(
        code="engine-cdi-off",
        message=f"{engine.value} on {facts.node.hostname} {how}: containers would start without the GPUs of their "
        "claims",
        hint="write enable_cdi = true into the table of the CRI plugin, and restart the engine's service",
    )
    return (warning,)


def given_by(facts: NodeFacts) -> GpuInterface | None:
    """Return by what the node's file says that its GPUs are given; None where there is none yet."""
    if facts.content(NODE_CONFIG_PATH) is None:
        return None
    said = _said(facts).get("interface")
    return next((each for each in GpuInterface if each.value == said), GpuInterface.DEVICE_PLUGIN)


def _said(facts: NodeFacts) -> dict[str, object]:
    """Return what the node's file says; nothing where somebody has made it one that no daemon takes."""
    try:
        document = msgspec.json.decode(facts.content(NODE_CONFIG_PATH) or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def with_interface(facts: NodeFacts, stack: StackSpec, items: Sequence[Item]) -> tuple[Item, ...]:
    """Return the items, of which the write of node.json says what a change of the interface means for pods."""
    before, said = given_by(facts), _said(facts)
    if before is None:
        return tuple(items)
    if before is stack.plugin.interface:  # a change from which no way leads back to another interface
        if before is GpuInterface.BOTH and said.get("claims") != list(stack.plugin.claims):
            return _of_config(items, _DIVIDED, Disruption.NONE)
        if (said.get("dynamicMig") is True) is stack.plugin.dynamic_mig:
            return tuple(items)
        reason = _MADE_FOR_CLAIMS if stack.plugin.dynamic_mig else _MADE_NO_MORE
        return _of_config(items, reason, Disruption.NONE)
    is_of_others = stack.plugin.device_classes and GpuInterface.DRA in {before, stack.plugin.interface}
    what = "GPUs and other devices" if is_of_others else "GPUs"
    if GpuInterface.BOTH in {before, stack.plugin.interface}:
        reason = (
            f"{what} are given by {stack.plugin.interface.words} instead of {before.words}: pods keep theirs, and one "
            "that is to be given otherwise is withheld until it is free"
        )
        return _of_config(items, reason, Disruption.CHANGE_OVER)
    reason = (
        f"{what} are given by {stack.plugin.interface.words} instead of {before.words}: pods keep theirs, and one that "
        f"a pod has by {before.words} is withheld until it is free"
    )
    return _of_config(items, reason, Disruption.CHANGE_OVER)


def _of_config(items: Sequence[Item], reason: str, disruption: Disruption) -> tuple[Item, ...]:
    return tuple(
        msgspec.structs.replace(item, reason=reason, disruption=disruption) if item.target == NODE_CONFIG_PATH else item
        for item in items
    )


def _kubelet(facts: NodeFacts, stack: StackSpec) -> tuple[int, ...]:
    """Return the version of the node's kubelet, empty where no fact has it: a distribution's is its own."""
    found = facts.engines.get(stack.runtime.engine.value)
    if found is not None and found.config:
        return version_numbers(found.version)[:2]
    return version_numbers(facts.cgroup_v1.kubelet)[:2] if facts.cgroup_v1 else ()
