"""Drafts the declaration of a fleet: equal nodes are one group, and what all groups share stands above them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from provision.planning.draft.model import NodeDraft, Path, Plan, Said, default_of, values_of
from provision.planning.draft.node import draft_node
from provision.planning.products.recognise import recognise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.products.recognise import Recognised

_MISSING: Final = object()


@dataclass(frozen=True)
class Group:
    """Nodes of which the same is said. ``said`` is all of it, ``own`` what differs from what all groups share."""

    name: str
    nodes: tuple[str, ...]
    said: tuple[Said, ...]
    own: tuple[Said, ...] = ()


@dataclass(frozen=True)
class FleetDraft:
    """``common`` is said for all nodes; ``nodes`` are the drafts by node, ``products`` what else is on each."""

    common: tuple[Said, ...]
    groups: tuple[Group, ...]
    nodes: Mapping[str, NodeDraft]
    products: Mapping[str, tuple[Recognised, ...]]


def draft_fleet(facts: Mapping[str, NodeFacts], plan: Plan) -> FleetDraft:
    """Return the draft for nodes with facts, in their order; nodes whose facts say the same are drafted once."""
    drafts: dict[bytes, NodeDraft] = {}
    nodes: dict[str, NodeDraft] = {}
    for name, one in facts.items():
        key = _key(one)
        if key not in drafts:
            drafts[key] = draft_node(one, plan)
        nodes[name] = drafts[key]
    groups = _groups(nodes)
    common = _common(groups)
    return FleetDraft(
        common=common,
        groups=tuple(_with_own(group, common) for group in groups),
        nodes=nodes,
        products={name: recognise(one) for name, one in facts.items()},
    )


def _key(facts: NodeFacts) -> bytes:
    """Return what of a node's facts can make a difference: not who it is, what runs on it now, and since when."""
    gpus = () if facts.mig is None else facts.mig.gpus
    plain = msgspec.structs.replace(
        facts,
        node=msgspec.structs.replace(facts.node, hostname="n", machine_id="m", boot_id="b"),
        package_manager=msgspec.structs.replace(facts.package_manager, lists_age_s=None, locked_by=None),
        services={
            unit: each and msgspec.structs.replace(each, newer_files=()) for unit, each in facts.services.items()
        },
        device_holders=(),
        disk_free={},
        traces=None,
        module=msgspec.structs.replace(facts.module, refcount=0),
        mig=facts.mig
        and msgspec.structs.replace(facts.mig, gpus=tuple(msgspec.structs.replace(gpu, uuid="GPU-0") for gpu in gpus)),
    )
    return msgspec.json.encode(plain, order="deterministic")


def _groups(nodes: Mapping[str, NodeDraft]) -> list[Group]:
    """Return the groups, the largest first; of equally large ones the one whose first node comes first."""
    members: dict[bytes, list[str]] = {}
    for name, draft in nodes.items():
        key = msgspec.json.encode([[*each.path, each.value] for each in draft.said], order="deterministic")
        members.setdefault(key, []).append(name)
    ordered = sorted(members.values(), key=len, reverse=True)
    names = _names([nodes[each[0]] for each in ordered])
    return [Group(name, tuple(each), nodes[each[0]].said) for name, each in zip(names, ordered, strict=True)]


def _names(drafts: Iterable[NodeDraft]) -> list[str]:
    """Return a name for each group: engine and driver, and a number where that is not enough."""
    return _unique(
        [
            f"grapnel_{draft.stack.runtime.engine.value}_{(draft.stack.driver.version or 'none').replace('.', '_')}"
            for draft in drafts
        ]
    )


def _unique(names: Sequence[str]) -> list[str]:
    return [name if names.index(name) == place else f"{name}_{place + 1}" for place, name in enumerate(names)]


def _common(groups: Sequence[Group]) -> tuple[Said, ...]:
    """Return what the largest group says, without what a smaller one could not take back.

    Nothing (null) takes nothing back: a key whose default it is stands in the groups that have it, unless the section
    is off in all others.
    """
    if not groups:
        return ()
    others = [values_of(group.said) for group in groups[1:]]
    return tuple(
        each
        for each in groups[0].said
        if default_of(each.path) is not None or all(_bears(values, each.path) for values in others)
    )


def _bears(values: Mapping[Path, object], path: Path) -> bool:
    """Tell whether a group may have a value of another one: it has its own, or the section is off."""
    return path in values or values.get((path[0], "enabled")) is False


def _with_own(group: Group, common: tuple[Said, ...]) -> Group:
    shared, values = values_of(common), values_of(group.said)
    own = [each for each in group.said if shared.get(each.path, _MISSING) != each.value]
    reason = "the default: the other groups differ"
    absent = [path for path in shared if path not in values and default_of(path) is not None]
    own += [Said(path, default_of(path), reason) for path in absent]
    return Group(group.name, group.nodes, group.said, tuple(own))
