"""Says what the controller would do about the nodes of stacks, of what the API server knows. Pure.

Nothing is asked of a node: which of them are due is known from fingerprints, what has to change on each of them only
after a look at it. So waves and windows are told as if every due node had to be taken out of service, which is the most
that can come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from provision.controller.decision.choice import is_barred, is_unclaimed
from provision.controller.decision.claim import contradiction
from provision.controller.decision.fingerprint import Part, differences, of_node, of_try, part
from provision.rollout.decision.hours import opening_hours
from provision.rollout.decision.order.together import with_domains
from provision.rollout.decision.policy import Policy, drain_policy, strictest
from provision.rollout.decision.prepare import in_their_places
from provision.rollout.decision.snapshot import NodeState
from provision.rollout.interface.cluster import NodeProblem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from provision.controller.nodes import SeenNode
    from provision.declaration.spec.model import StackSpec
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.standing import Standing
    from provision.rollout.model import NodeView

NEVER: Final = "no controller has brought it to a declaration yet"
JOINS: Final = "it joins the cluster: its taint grapnel.dev/not-ready goes when it is as declared"
DRIFTED: Final = "it has found by itself that it is not as declared: grapnel-node drift"
ASKED: Final = "somebody has asked for another try"
_DIFFERS: Final = {
    Part.DECLARED: "its stack declares something else than it was brought to",
    Part.DEPLOYED: "another grapnel is to be deployed than it has",
    Part.MACHINE: "it was booted since, or has another kernel",
}


class Comes(Enum):
    """What becomes of a node of a stack."""

    DUE = "due"
    BUSY = "being changed"
    LEFT_FAILED = "left failed"
    SKIPPED = "skipped"
    UNCLEAR = "unclear"
    AS_DECLARED = "as declared"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOutlook:
    """What becomes of one node: why it is due, what it waits for, and its wave where it has to leave service."""

    name: str
    comes: Comes
    why: tuple[str, ...] = ()
    waits_for: str = ""
    wave: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What the controller would do about the nodes of one stack; ``closed`` is why none would leave service now."""

    nodes: tuple[NodeOutlook, ...] = ()
    policy: Policy = field(default_factory=Policy)
    closed: str = ""

    def named(self, comes: Comes) -> tuple[NodeOutlook, ...]:
        """Return the nodes that this becomes of."""
        return tuple(node for node in self.nodes if node.comes is comes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is known beside Nodes and stacks: who is at work, and what was said of nodes.

    ``standing`` is what the controller says on its lease, ``told`` what the status of the stack says of nodes.
    """

    now: datetime
    standing: Standing | None = None
    pause: Pause | None = None
    told: Mapping[str, str] = field(default_factory=dict)


def outlook_of(
    spec: StackSpec,
    fingerprint: str,
    members: Mapping[str, SeenNode],
    views: Mapping[str, NodeView | NodeProblem],
    moment: Moment,
) -> Outlook:
    """Return what becomes of the nodes of a stack that is brought to ``fingerprint``, in the order of their names."""
    found = [_node(members[name], fingerprint, spec, moment) for name in sorted(members)]
    due = {node.name for node in found if node.comes in (Comes.DUE, Comes.BUSY)}
    leaving = {name for name in due if not (members[name].is_joining and members[name].record is None)}
    states = _states(spec, views, leaving)
    policy = strictest([spec.rollout], len(states)) if states else Policy()
    closed = opening_hours(states, policy, moment.now).closed if leaving else ""
    waves = {state.name: state.wave for state in states if state.name in leaving}
    nodes = [_waiting(node, waves.get(node.name), moment, closed, is_leaving=node.name in leaving) for node in found]
    return Outlook(nodes=tuple(nodes), policy=policy, closed=closed)


def _completed(fingerprint: str, node: SeenNode) -> str:
    """Return a stack's fingerprint; where nobody knows what would be deployed, what a node has is taken for it."""
    if part(fingerprint, Part.DEPLOYED):
        return fingerprint
    return f"{part(fingerprint, Part.DECLARED)}.{part(node.as_declared, Part.DEPLOYED)}"


def _node(node: SeenNode, fingerprint: str, spec: StackSpec, moment: Moment) -> NodeOutlook:
    fingerprint = _completed(fingerprint, node)
    wanted = of_node(fingerprint, node)
    if node.problem:
        return NodeOutlook(name=node.name, comes=Comes.UNCLEAR, why=(node.problem,))
    doubt = contradiction(node, spec)
    why = why_due(node, wanted, doubt)
    if moment.standing is not None and node.name in moment.standing.out:
        return NodeOutlook(name=node.name, comes=Comes.BUSY, why=why)
    if is_barred(node, of_try(fingerprint, node), spec):
        record = node.record
        reason = "" if record is None else record.complaint
        hint = f"it is not tried again by itself: `grapnel retry {node.name}`, or another declaration"
        return NodeOutlook(name=node.name, comes=Comes.LEFT_FAILED, why=(reason,) if reason else (), waits_for=hint)
    if not (doubt or is_unclaimed(node, wanted) or node.is_drifted):
        return NodeOutlook(name=node.name, comes=Comes.AS_DECLARED)
    comes = Comes.SKIPPED if node.is_skipped else Comes.DUE
    waits_for = f"`grapnel skip --undo {node.name}`" if node.is_skipped else ""
    return NodeOutlook(name=node.name, comes=comes, why=why, waits_for=waits_for)


def why_due(node: SeenNode, wanted: str, doubt: str) -> tuple[str, ...]:
    """Return why a node is not what it is brought to, everything that is true of it; ``doubt`` as `Target` has it."""
    found: list[str] = []
    if node.is_joining:
        found.append(JOINS)
    if not node.as_declared:
        found.append(NEVER)
    elif node.as_declared != wanted:
        found += [_DIFFERS[each] for each in differences(node.as_declared, wanted)]
    if doubt:
        found.append(doubt)
    if node.record is not None and node.is_in_flight:
        found.append(f"its upgrade is under way: {node.record.phase}")
    if node.is_retried:
        found.append(ASKED)
    if node.is_drifted:
        found.append(DRIFTED)
    return tuple(found)


def _states(
    spec: StackSpec, views: Mapping[str, NodeView | NodeProblem], leaving: Collection[str]
) -> Sequence[NodeState]:
    """Return the nodes as a rollout would see them in which each of those has to leave service."""
    rollout = spec.rollout
    drain = drain_policy(rollout, spec.scheduler)
    found = [
        NodeState(
            view=view,
            target=(spec.driver.version or "") if spec.driver.enabled else "",
            drain=drain,
            is_disruptive=name in leaving,
            is_as_declared=name not in leaving,
        )
        for name, view in sorted(views.items())
        if not isinstance(view, NodeProblem)
    ]
    return in_their_places(with_domains(found, rollout.domains, {}), rollout, {})


def _waiting(node: NodeOutlook, wave: int | None, moment: Moment, closed: str, *, is_leaving: bool) -> NodeOutlook:
    """Return a node with what it waits for: a person, the rollout that runs, or a time."""
    if node.comes not in (Comes.DUE, Comes.BUSY):
        return node
    standing = moment.standing
    said = "" if standing is None else standing.waiting.get(node.name, "") or standing.stop
    waits_for = said or moment.told.get(node.name, "")
    if not waits_for and moment.pause is not None and is_leaving:
        waits_for = moment.pause.as_reason
    if not waits_for and closed and is_leaving:
        waits_for = closed
    return NodeOutlook(name=node.name, comes=node.comes, why=node.why, waits_for=waits_for, wave=wave)
