"""Describes a node's daemon, and whom GPUs are for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.planning.draft.choose import Choosing, is_allowed
from provision.planning.draft.files import read_object
from provision.planning.draft.mig import describe_mig
from provision.planning.draft.model import Plan, Said, Section, Unsaid
from provision.planning.draft.settings import daemon_settings
from provision.planning.node_plan import Role
from provision.planning.render.hook_config import HOOK_CONFIG_PATH

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts


def describe_plugin(facts: NodeFacts, plan: Plan, earlier: tuple[Said, ...]) -> Section:
    """Return what can be said about the daemon; ``earlier`` is what has been said of driver and engine."""
    choosing = Choosing(facts, plan, "plugin", Role.NODE_DAEMON)
    choosing.said += [each for each in earlier if each.path in {("runtime", "engine"), ("runtime", "entitlement")}]
    taken = len(choosing.said)
    for key, value, where in daemon_settings(facts):
        choosing.say(key, value, where)
    choosing.said += describe_mig(facts)
    offers = choosing.settle(is_ours=facts.installed_digest("node") is not None, reason="grapnel's daemon is there")
    said = [choosing.said[0], *choosing.said[taken + 1 :]]
    return Section((*said, *_tenancy(facts)), tuple(_unsaid(facts)), offers)


def _tenancy(facts: NodeFacts) -> tuple[Said, ...]:
    rules = read_object(facts.content(HOOK_CONFIG_PATH)).get("rules")
    names = rules[0].get("namespaces") if isinstance(rules, list) and rules and isinstance(rules[0], dict) else None
    said = Said(("tenancy", "namespaces"), names, HOOK_CONFIG_PATH)
    return (said,) if isinstance(names, list) and names and is_allowed(said) else ()


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
