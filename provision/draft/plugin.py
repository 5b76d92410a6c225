"""Describes a node's daemon, whom GPUs are for, and how they are divided by MIG."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import msgspec

from provision.draft.choose import Choosing, is_allowed
from provision.draft.files import read_object
from provision.draft.model import Plan, Said, Section, Unsaid, stack_of
from provision.node_plan import Role
from provision.render.hook_config import HOOK_CONFIG_PATH
from provision.render.node_config import NODE_CONFIG_PATH

if TYPE_CHECKING:
    from provision.fleet.facts import NodeFacts
    from provision.fleet.mig_facts import MigGpu

_KEYS: Final = (
    "resource", "kubeletRoot", "metricsAddress", "kubernetesApi", "labels", "nodeFeatureNamespace", "memoryLimits",
    "memoryOveruse", "overuseGraceSeconds", "memoryUnits",
)  # fmt: skip
LAYOUT: Final = "as-found"


def describe_plugin(facts: NodeFacts, plan: Plan, earlier: tuple[Said, ...]) -> Section:
    """Return what can be said about the daemon; ``earlier`` is what has been said of driver and engine."""
    choosing = Choosing(facts, plan, "plugin", Role.NODE_DAEMON)
    choosing.said += [each for each in earlier if each.path in {("runtime", "engine"), ("runtime", "entitlement")}]
    taken = len(choosing.said)
    installed = read_object(facts.content(NODE_CONFIG_PATH))
    defaults = msgspec.to_builtins(stack_of({}).plugin)
    for key in _KEYS if installed else ():
        value = installed.get(key, defaults[key] if key != "metricsAddress" else None)
        if value != defaults[key] and value is not None:
            choosing.say(key, value, NODE_CONFIG_PATH)
    choosing.said += _mig(facts)
    offers = choosing.settle(is_ours=facts.installed_digest("node") is not None, reason="grapnel's daemon is there")
    said = [choosing.said[0], *choosing.said[taken + 1 :]]
    return Section((*said, *_tenancy(facts)), tuple(_unsaid(facts)), offers)


def _tenancy(facts: NodeFacts) -> tuple[Said, ...]:
    rules = read_object(facts.content(HOOK_CONFIG_PATH)).get("rules")
    names = rules[0].get("namespaces") if isinstance(rules, list) and rules and isinstance(rules[0], dict) else None
    said = Said(("tenancy", "namespaces"), names, HOOK_CONFIG_PATH)
    return (said,) if isinstance(names, list) and names and is_allowed(said) else ()


def _mig(facts: NodeFacts) -> list[Said]:
    """Return the layout that the GPUs have now, as one of mig-parted's; nothing where no GPU is in MIG mode."""
    gpus = () if facts.mig is None else facts.mig.gpus
    if not any(gpu.enabled for gpu in gpus):
        return []
    by_state: dict[str, list[MigGpu]] = {}
    for gpu in gpus:
        if gpu.enabled is not None:
            by_state.setdefault(json.dumps([gpu.enabled, gpu.devices], sort_keys=True), []).append(gpu)
    entries = [_entry(same) for same in by_state.values()]
    config = {"version": "v1", "mig-configs": {LAYOUT: entries}}
    where = "the GPUs as NVML tells them"
    return [Said(("mig", "layout"), LAYOUT, where), Said(("mig", "config"), config, where)]


def _entry(gpus: list[MigGpu]) -> dict[str, object]:
    enabled = bool(gpus[0].enabled)
    devices = {"mig-devices": dict(sorted(gpus[0].devices.items()))} if enabled else {}
    return {"devices": [gpu.index for gpu in gpus], "mig-enabled": enabled, **devices}


def _unsaid(facts: NodeFacts) -> tuple[Unsaid, ...]:
    if facts.mig is not None or not facts.gpus or facts.installed_digest("node") is not None:
        return ()
    return (
        Unsaid(
            "mig-unknown",
            "how GPUs are divided by MIG is not known: grapnel's daemon, which tells it, is not there",
            "compare with nvidia-smi before mig.layout is declared; without it MIG is left as it is",
        ),
    )
