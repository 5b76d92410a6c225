"""What to ask of the API next, given what the Node should show and what it is known to show. Pure.

One step at a time, the most urgent first: the current state, then annotations and labels, then events. Nothing due is
no step, and the time at which something will be.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from plugin.publication.node_object.label_owners import still_refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.publication.node_object.model import Condition, Eviction, Known, NodeFeature, Wanted
    from plugin.publication.node_object.series import EventBook, Series

MESSAGE_PACE_S = 60.0  # when only the words of a condition change
HANDOVER_S = 60.0  # in which Node Feature Discovery labels the Node, before our own labels go


class StepKind(Enum):
    """What a step is about: each kind waits for itself after the API refused it."""

    READ = "the node"
    CONDITIONS = "conditions"
    ANNOTATIONS = "annotations"
    EVICTIONS = "evictions"
    FEATURE = "the node's features"
    LABELS = "labels"
    EVENTS = "events"


@dataclass(frozen=True)
class ReadNode:
    """Ask for the Node: its uid, and its conditions as they were left."""

    kind = StepKind.READ


@dataclass(frozen=True)
class PatchConditions:
    """Send the conditions; it is the heartbeat, too."""

    conditions: tuple[Condition, ...]
    kind = StepKind.CONDITIONS


@dataclass(frozen=True)
class ApplyLabels:
    """Make these, and no others, the daemon's own labels."""

    labels: Mapping[str, str]
    uid: str
    kind = StepKind.LABELS


@dataclass(frozen=True)
class ApplyFeature:
    """Make the NodeFeature object, or bring it to this."""

    feature: NodeFeature
    uid: str
    kind = StepKind.FEATURE


@dataclass(frozen=True)
class PatchAnnotations:
    """Set these annotations, and remove those that are None; all others stay."""

    annotations: Mapping[str, str | None]
    uid: str
    kind = StepKind.ANNOTATIONS


@dataclass(frozen=True)
class EvictPod:
    """Have a pod go, as its budgets allow."""

    pod: Eviction
    kind = StepKind.EVICTIONS


@dataclass(frozen=True)
class SendEvent:
    """Make an event, or count one up."""

    series: Series
    uid: str
    kind = StepKind.EVENTS


Step: TypeAlias = "ReadNode | PatchConditions | PatchAnnotations | ApplyFeature | ApplyLabels | EvictPod | SendEvent"


def next_step(
    known: Known | None, wanted: Wanted, book: EventBook, now_s: float, waits: Mapping[StepKind, float]
) -> tuple[Step | None, float | None]:
    """Return what to do now, or None and when to look again; None twice: when something changes.

    `waits`: until when a kind of step is not tried. Without a known Node everything waits for it.
    """
    if known is None:
        is_told = (wanted.conditions, wanted.annotations, wanted.feature, wanted.evictions, wanted.labels is not None)
        has_work = any(is_told) or book.due_s() is not None
        candidates: list[tuple[Step | None, float | None]] = [(ReadNode(), float("-inf") if has_work else None)]
    else:
        series, annotations = book.due(now_s), annotations_to_set(known, wanted)
        candidates = [
            (PatchConditions(wanted.conditions), _conditions_due_s(known, wanted)),
            _eviction(wanted),
            (PatchAnnotations(annotations, known.uid), float("-inf") if annotations else None),
            (_feature_step(known, wanted), _feature_due_s(known, wanted)),
            (ApplyLabels(labels_to_apply(known, wanted), known.uid), _labels_due_s(known, wanted)),
            (None if series is None else SendEvent(series, known.uid), book.due_s()),
        ]
    times = []
    for (step, due_s), kind in zip(candidates, _kinds(known), strict=True):
        if due_s is None:
            continue
        time_s = max(due_s, waits.get(kind, float("-inf")))
        if step is not None and time_s <= now_s:
            return step, now_s
        times.append(time_s)
    return None, min(times, default=None)


def _kinds(known: Known | None) -> tuple[StepKind, ...]:
    if known is None:
        return (StepKind.READ,)
    return (
        StepKind.CONDITIONS,
        StepKind.EVICTIONS,
        StepKind.ANNOTATIONS,
        StepKind.FEATURE,
        StepKind.LABELS,
        StepKind.EVENTS,
    )


def _eviction(wanted: Wanted) -> tuple[Step | None, float | None]:
    return (EvictPod(wanted.evictions[0]), float("-inf")) if wanted.evictions else (None, None)


def labels_to_apply(known: Known, wanted: Wanted) -> dict[str, str]:
    """Return the labels that are wanted and that no other field manager owns."""
    return {key: value for key, value in (wanted.labels or {}).items() if key not in known.refused}


def annotations_to_set(known: Known, wanted: Wanted) -> dict[str, str | None]:
    """Return the annotations that are wanted and not known to be there."""
    return {key: value for key, value in wanted.annotations.items() if known.annotations.get(key, ()) != value}


def _feature_step(known: Known, wanted: Wanted) -> ApplyFeature | None:
    return None if wanted.feature is None else ApplyFeature(wanted.feature, known.uid)


def _feature_due_s(known: Known, wanted: Wanted) -> float | None:
    if wanted.feature is None:
        return None
    return known.feature_due_s if known.feature == wanted.feature else float("-inf")


def _labels_due_s(known: Known, wanted: Wanted) -> float | None:
    """Labels that an object is to bring go some time after it was made, and not before."""
    if wanted.labels is None or known.labels == labels_to_apply(known, wanted):
        return None
    if not wanted.labels and wanted.feature is not None and wanted.feature.labels:
        return known.feature_told_s + HANDOVER_S if known.feature == wanted.feature else None
    return float("-inf")


def _conditions_due_s(known: Known, wanted: Wanted) -> float | None:
    if not wanted.conditions:
        return None
    due_s = known.heartbeat_s
    for condition in wanted.conditions:
        there = known.conditions.get(condition.kind)
        if there is None or (there.status, there.reason) != (condition.status, condition.reason):
            return float("-inf")
        if there.message != condition.message:
            due_s = min(due_s, known.told_s + MESSAGE_PACE_S)
    return due_s


def after_conditions(known: Known, sent: tuple[Condition, ...], now_s: float, heartbeat_s: float) -> Known:
    """Return what is known once conditions were taken; the next heartbeat is `heartbeat_s` later."""
    there = {**known.conditions, **{condition.kind: condition for condition in sent}}
    return known._replace(conditions=there, told_s=now_s, heartbeat_s=now_s + heartbeat_s)


def after_metadata(
    known: Known, wanted: Wanted, uid: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Known | None:
    """Return what is known once the Node's metadata was seen; None: it is another Node of the same name.

    Labels and annotations that others changed or removed are not known to be there any more; a label that the other
    owner let go of is not refused any more.
    """
    if uid != known.uid:
        return None
    refused = still_refused(known.refused, wanted.labels or {}, labels)
    sent = {key: value for key, value in known.annotations.items() if annotations.get(key) == value}
    known = known._replace(annotations=sent)
    if known.labels is None:
        return known._replace(refused=refused)
    kept = {key: value for key, value in known.labels.items() if labels.get(key) == value}
    return known._replace(labels=kept, refused=refused)


# Whose turn it is to be evicted, of the pods that are to go: each until the API took it, and never again.

_REMEMBERED = 4096


class EvictionBook:
    """Remembers by uid: another pod of the same name is another one."""

    def __init__(self) -> None:
        self._taken: OrderedDict[str, None] = OrderedDict()
        self._refusals: Counter[str] = Counter()

    def due(self, wanted: Iterable[Eviction]) -> tuple[Eviction, ...]:
        """Return those of the pods that did not go so far, the one that was refused least often first."""
        left = [each for each in wanted if each.uid not in self._taken]
        self._refusals = Counter({each.uid: self._refusals[each.uid] for each in left})
        return tuple(sorted(left, key=lambda each: self._refusals[each.uid]))

    def taken(self, uid: str) -> None:
        """Hear that a pod goes, or is gone."""
        self._refusals.pop(uid, None)
        self._taken[uid] = None
        if len(self._taken) > _REMEMBERED:
            self._taken.popitem(last=False)

    def refused(self, uid: str) -> None:
        """Hear that a pod may not go now: the next one has its turn."""
        self._refusals[uid] += 1
