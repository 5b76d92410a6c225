"""Says why a Node does not take a pod that asks for devices, from what both of them say. Pure.

It goes by what the scheduler goes by, as far as that is about devices and about which nodes may be had at all: cpu,
memory, volumes and spreading are in the scheduler's own words.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.cluster.kubernetes.nodes.reported import devices_of
from provision.cluster.kubernetes.objects.nodes import Taint
from provision.cluster.kubernetes.pods.pod_rules import TAINT
from provision.rollout.status.reported import CLASS, WHOLE, Room, only_gpus
from provision.rollout.status.situations import CORDONED, NOT_READY, SHORT_OF_GPUS, UNCLEAR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from provision.cluster.kubernetes.objects.core import SelectorRequirement
    from provision.cluster.kubernetes.objects.nodes import Node
    from provision.cluster.kubernetes.objects.pods import AskedPod, NodeSelectorTerm, Toleration
    from provision.rollout.status.model import NodeStatus

UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
# Kubernetes sets them for what is told in other words here.
_TOLD: Final = frozenset(
    {UNSCHEDULABLE.key, "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"},
)
_KUBERNETES: Final = "node.kubernetes.io/"
_OURS: Final = "grapnel.dev/"
_KEEP_OFF: Final = frozenset({"NoSchedule", "NoExecute"})
EXPLAIN: Final = "`grapnel explain node NODE`"
_MORE: Final = f"{EXPLAIN} says why"
_HOLDERS: Final = f"{EXPLAIN} names those pods"
_MANY: Final = "NODE"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a node does not take a pod, and what would help; NODE stands for its name. ``do`` is empty where time does.

    ``is_final``: no more has to be said of the node.
    """

    why: str
    do: str = ""
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A Node, and how it stands: None where it has no GPUs and no upgrade."""

    node: Node
    status: NodeStatus | None

    @property
    def is_out(self) -> bool:
        """Whether an upgrade has it out of service."""
        record = None if self.status is None else self.status.record
        return record is not None and record.is_out

    @property
    def published(self) -> Mapping[str, Room]:
        """What the node has for claims, by class, as far as that is known."""
        return (self.status and self.status.reported and self.status.reported.published) or {}

    @property
    def devices(self) -> dict[str, int]:
        """How many devices there are, by resource and class."""
        return {**devices_of(self.node.status.capacity), **{name: room.has for name, room in self.published.items()}}

    def room(self, resource: str) -> Room:
        """Return how many devices of a resource, or of a class, there are."""
        if resource in self.published:
            return self.published[resource]
        users = None if self.status is None or self.status.reported is None else self.status.reported.users
        held = None if users is None else sum(user.devices.get(resource, 0) for user in users)
        has, gives = (devices_of(each) for each in (self.node.status.capacity, self.node.status.allocatable))
        return Room(has.get(resource, 0), gives.get(resource, 0), held)


def alike(
    pod: AskedPod, candidates: Iterable[Candidate], asked: Mapping[str, int]
) -> list[tuple[tuple[str, ...], tuple[Obstacle, ...]]]:
    """Return the nodes of which the same is in the way, those with the least of it first."""
    groups: dict[tuple[Obstacle, ...], list[str]] = {}
    for each in candidates:
        found = tuple(obstacles(pod, each, asked))
        groups.setdefault(found, []).append(each.node.metadata.name)
    ranked = sorted(groups.items(), key=lambda group: (any(each.is_final for each in group[0]), len(group[0])))
    return [(tuple(sorted(names)), found) for found, names in ranked]


def obstacles(pod: AskedPod, candidate: Candidate, asked: Mapping[str, int]) -> list[Obstacle]:
    """Return everything that is in the way of a pod on a node; of one that can never take it, that alone."""
    lacking = [found for name, number in asked.items() if (found := _lacking(candidate, name, number)) is not None]
    if any(each.is_final for each in lacking):
        return [each for each in lacking if each.is_final]
    return [*lacking, *_closed(pod, candidate), *_taints(pod, candidate), *_labels(pod, candidate.node)]


def _lacking(candidate: Candidate, name: str, number: int) -> Obstacle | None:
    room, status = candidate.room(name), candidate.status
    reported = None if status is None else status.reported
    trouble = "" if reported is None else reported.driver_trouble or reported.gpu_trouble
    because = f": {trouble}" if trouble else ""
    if not room.has:
        plugin = None if status is None else status.plugin
        if name == (WHOLE if plugin is None else plugin.resource) and CLASS in candidate.published:
            return _by_claims(candidate.published[CLASS], name)
        has = only_gpus(candidate.devices, plugin)
        others = sorted(each for each, number in has.items() if number)
        offers = f", and offers {', '.join(others)}" if others else because
        do = "" if status is None else _MORE
        return Obstacle(f"has no {name}{offers}", do, is_final=True)
    if number > room.has:
        return Obstacle(f"has {room.has} {name}, and {number} are asked for{_beside(candidate, name)}", is_final=True)
    if number > room.gives:
        is_short = status is not None and status.situation is SHORT_OF_GPUS
        return Obstacle(
            f"can give {room.gives} of its {room.has} {name}{because}", SHORT_OF_GPUS.todo if is_short else _MORE
        )
    if number > room.free:
        why = f"{room.held} of its {room.gives} {name} are held by other pods, {room.free} free"
        return Obstacle(f"{why}{_beside(candidate, name)}", _HOLDERS)
    return None


def _beside(candidate: Candidate, name: str) -> str:
    """Return that a node gives its other GPUs by claims: a pod that asks for a number of these is given none there."""
    plugin = None if candidate.status is None else candidate.status.plugin
    if name != (WHOLE if plugin is None else plugin.resource) or CLASS not in candidate.published:
        return ""
    room = candidate.published[CLASS]
    return f"; {room.has} more GPUs are given by claims alone, {room.free} of them free"


def _by_claims(room: Room, name: str) -> Obstacle:
    """Say when a node that gives its GPUs to claims gives one to a pod that asks for a resource."""
    why = f"gives its GPUs by claims, {room.free} of {room.has} {CLASS} are free, and {name} only by its DeviceClass"
    return Obstacle(why, f"`kubectl get deviceclass {CLASS} -o yaml`: its extendedResourceName has to be {name}")


def _closed(pod: AskedPod, candidate: Candidate) -> Iterator[Obstacle]:
    """Yield what keeps every pod off a node: its upgrade, a cordon, or that it is not ready."""
    node, status = candidate.node, candidate.status
    if candidate.is_out and status is not None:
        reason = f", {status.reason}" if status.reason else ""
        yield Obstacle(f"out of service for its upgrade: {status.situation.title}{reason}", status.situation.todo)
    elif node.spec.unschedulable and not is_tolerated(UNSCHEDULABLE, pod.spec.tolerations):
        told = CORDONED if status is None or status.situation is not UNCLEAR else UNCLEAR
        remarks = "".join(f", {each}" for each in (() if status is None else status.remarks))
        yield Obstacle(f"{told.title}{remarks}", told.todo)
    if not node.is_ready:
        ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
        said = f": {ready.message or ready.reason}" if ready is not None and (ready.message or ready.reason) else ""
        yield Obstacle(f"{NOT_READY.title}{said}", NOT_READY.todo)


def _taints(pod: AskedPod, candidate: Candidate) -> Iterator[Obstacle]:
    for taint in candidate.node.spec.taints:
        is_told = taint.key in _TOLD or (taint.key == TAINT and candidate.is_out)
        if is_told or taint.effect not in _KEEP_OFF or is_tolerated(taint, pod.spec.tolerations):
            continue
        written = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
        yield Obstacle(f"taint {written} is not tolerated", _help_with(taint))


def _help_with(taint: Taint) -> str:
    """Return what helps with a taint; those of Kubernetes and of grapnel itself go when their reason does."""
    if taint.key.startswith(_OURS):
        return _MORE
    if taint.key.startswith(_KUBERNETES):
        return f"`kubectl describe node {_MANY}` says why"
    return (
        f"in the pod: `tolerations: [{{key: {taint.key}, operator: Exists, effect: {taint.effect}}}]`, if it may be "
        f"there; or `kubectl taint node {_MANY} {shlex.quote(f'{taint.key}:{taint.effect}-')}`"
    )


def _labels(pod: AskedPod, node: Node) -> Iterator[Obstacle]:
    has = node.metadata.labels
    for key, value in pod.spec.node_selector.items():
        if has.get(key) != value:
            found = f"is {has[key]}" if key in has else "is not set"
            yield Obstacle(
                f"label {key} {found}, and nodeSelector wants {value}",
                f"`kubectl label node {_MANY} {shlex.quote(f'{key}={value}')}`, if that is true of it; or another "
                "nodeSelector in the pod",
            )
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity and pod.spec.affinity.node_affinity.required
    if affinity and not any(_meets(node, term) for term in affinity.node_selector_terms):
        yield Obstacle(
            "the pod's nodeAffinity does not match its labels",
            f"`kubectl get node {_MANY} --show-labels` shows what it has; or another nodeAffinity in the pod",
        )


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Tell whether a taint does not keep off a pod with these tolerations."""
    return any(
        each.effect in ("", taint.effect)
        and (each.key == taint.key or (not each.key and each.operator == "Exists"))
        and (each.operator == "Exists" or each.value == taint.value)
        for each in tolerations
    )


def _meets(node: Node, term: NodeSelectorTerm) -> bool:
    """Tell whether a Node meets all of a term; an empty one selects nothing, as Kubernetes has it."""
    fields = {"metadata.name": node.metadata.name}
    told = [(each, node.metadata.labels) for each in term.match_expressions]
    told += [(each, fields) for each in term.match_fields]
    return bool(told) and all(_is_met(each, found) for each, found in told)


def _is_met(wanted: SelectorRequirement, found: Mapping[str, str]) -> bool:
    value = found.get(wanted.key)
    match wanted.operator:
        case "In":
            return value in wanted.values
        case "NotIn":
            return value not in wanted.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(wanted, value)
    return False


def _compares(wanted: SelectorRequirement, value: str | None) -> bool:
    try:
        has, than = int(value or ""), int("".join(wanted.values[:1]))
    except ValueError:
        return False
    return has > than if wanted.operator == "Gt" else has < than
