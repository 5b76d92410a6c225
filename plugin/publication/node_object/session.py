"""What was said to the API and what is to be said: one step after another, and what each answer or failure means.

The calls themselves are made by whoever is given as `ask`; nothing here waits. Not here: threads and connections
(`reporter`).
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plugin.base.errors import ClusterError
from plugin.publication.node_object.answers import (
    BAD_REQUEST,
    BROKEN,
    CONFLICT,
    FORBIDDEN,
    INVALID,
    NOT_FOUND,
    TOO_LARGE,
    TOO_MANY,
    node_state,
)
from plugin.publication.node_object.api.budget import FIRST_WAIT_S, Backoff, Bucket
from plugin.publication.node_object.conditions import bounded
from plugin.publication.node_object.model import Known, Note, Wanted
from plugin.publication.node_object.plan import (
    ApplyFeature,
    ApplyLabels,
    EvictionBook,
    EvictPod,
    PatchAnnotations,
    PatchConditions,
    ReadNode,
    SendEvent,
    StepKind,
    after_conditions,
    after_metadata,
    next_step,
)
from plugin.publication.node_object.requests import (
    apply_feature,
    apply_labels,
    event_name,
    evict_pod,
    patch_annotations,
    patch_conditions,
    read_node,
    send_event,
    with_transition_times,
)
from plugin.publication.node_object.series import EventBook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

    from plugin.base.log import Logger
    from plugin.publication.node_object.api.messages import Request
    from plugin.publication.node_object.model import Condition, Eviction, NodeFeature
    from plugin.publication.node_object.plan import Step

    Ask: TypeAlias = "Callable[[Request], dict[str, Any]]"

EVIDENCE_S = 30.0  # a request for an eviction counts so long
EVICTED = "GPUMemoryPodEvicted"
_TOPIC = "kubernetes api"
_OTHERS = "labels of others"
_NEVER = (BAD_REQUEST, TOO_LARGE, INVALID)  # the same content will be refused again
_OF_ONE_KIND = (*_NEVER, FORBIDDEN, NOT_FOUND, CONFLICT)  # the API serves: what was asked is what it does not want
_OF_A_POD = (*_OF_ONE_KIND, TOO_MANY, BROKEN)  # a budget; two budgets of one pod


def utc_now() -> str:
    """Return now as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True)
class Rhythm:
    """Seconds. `start_s`: before the first call, so that GPUs are offered first. `retry_s`: after a first failure.

    Chance adds up to a half to each but the last.
    """

    start_s: float = 2.0
    retry_s: float = FIRST_WAIT_S
    heartbeat_s: float = 600.0
    last_words_s: float = 2.0


@dataclass(frozen=True)
class Dependencies:
    """Time and chance, so that a test can have others."""

    clock: Callable[[], float] = time.monotonic
    utc: Callable[[], str] = utc_now
    number: Callable[[], int] = field(default=lambda: int.from_bytes(os.urandom(8), "big"))  # of 64 bits

    def chance(self) -> float:
        """Return a number from 0 to 1."""
        return self.number() / 2**64

    def later(self, seconds: float) -> float:
        """Return so many seconds, or up to a half more."""
        return seconds * (1 + self.chance() / 2)


class Session:
    """Of one Node. `show`, `label`, `annotate`, `feature` and `note` are of one thread, `work` may be of another."""

    def __init__(self, node: str, ask: Ask, logger: Logger, rhythm: Rhythm, dependencies: Dependencies) -> None:
        self._node = node
        self._ask = ask
        self._log = logger
        self._rhythm = rhythm
        self._dependencies = dependencies
        self._lock = threading.Lock()
        self._wanted = Wanted()
        self._book = EventBook()
        # From here on: of the thread that works.
        self._dropped = 0
        self._known: Known | None = None
        self._evictions = EvictionBook()
        self._evidence_s = float("-inf")  # when evictions were last asked for
        self._bucket = Bucket()
        self._backoff = Backoff(dependencies.chance, rhythm.retry_s)
        self._waits = {kind: Backoff(dependencies.chance, rhythm.retry_s) for kind in StepKind}

    def show(self, conditions: tuple[Condition, ...]) -> bool:
        """Have the Node show these from now on; returns whether that is something new."""
        return self._want(self._wanted._replace(conditions=conditions))

    def label(self, labels: Mapping[str, str]) -> bool:
        """Have the Node carry these labels, and no others of ours; returns whether that is something new."""
        return self._want(self._wanted._replace(labels=dict(labels)))

    def annotate(self, annotations: Mapping[str, str | None]) -> bool:
        """Have the Node carry these annotations as well, None for one that goes; returns whether that is new."""
        return self._want(self._wanted._replace(annotations={**self._wanted.annotations, **annotations}))

    def feature(self, feature: NodeFeature) -> bool:
        """Have there be this NodeFeature object; returns whether that is something new."""
        return self._want(self._wanted._replace(feature=feature))

    def evict(self, pods: tuple[Eviction, ...]) -> bool:
        """Have these pods go, each once, and no others any more; returns whether that is something new.

        It has to be said again and again: what is not said any more is not so any more.
        """
        self._evidence_s = self._dependencies.clock()
        return self._want(self._wanted._replace(evictions=pods))

    def note(self, notes: tuple[Note, ...]) -> bool:
        """Make events; returns whether there are any."""
        with self._lock:
            for note in notes:
                self._book.note(note, self._dependencies.utc(), self._dependencies.clock(), self._dependencies.number())
        return bool(notes)

    def _want(self, wanted: Wanted) -> bool:
        if wanted == self._wanted:
            return False
        with self._lock:
            self._wanted = wanted
        return True

    def work(self) -> float | None:
        """Do all that is due; return after how many seconds there may be more, None: when there is something new."""
        while True:
            now_s = self._dependencies.clock()
            if now_s < self._backoff.until_s:
                return self._backoff.until_s - now_s
            with self._lock:
                waits = {kind: each.until_s for kind, each in self._waits.items()}
                is_fresh = now_s - self._evidence_s <= EVIDENCE_S
                evictions = self._evictions.due(self._wanted.evictions if is_fresh else ())
                wanted = self._wanted._replace(evictions=evictions)
                step, due_s = next_step(self._known, wanted, self._book, now_s, waits)
            if step is None:
                return None if due_s is None else due_s - now_s
            ready_s = self._bucket.ready_s(now_s)
            if ready_s > now_s:
                return ready_s - now_s
            self._bucket.take(now_s)
            self._try(step)

    def _try(self, step: Step) -> None:
        try:
            self._apply(step)
        except ClusterError as error:
            self._failed(step, error)
        else:
            self._backoff.succeeded()
            self._waits[step.kind].succeeded()
            self._log.standing(_TOPIC)
            self._log.standing(_topic(step.kind))
        self._tell_dropped()

    def _apply(self, step: Step) -> None:
        if isinstance(step, ReadNode):
            state = node_state(self._ask(read_node(self._node)))
            self._known = Known(state.uid, state.conditions)
        elif isinstance(step, PatchConditions):
            self._patch_conditions(step)
        elif isinstance(step, ApplyLabels):
            self._ask(apply_labels(self._node, step))
            self._know(labels=step.labels)
        elif isinstance(step, EvictPod):
            self._evict(step.pod)
        elif isinstance(step, ApplyFeature):
            self._apply_feature(step)
        elif isinstance(step, PatchAnnotations):
            self._patch_annotations(step)
        else:
            self._send_event(step)

    def _patch_conditions(self, step: PatchConditions) -> None:
        known, utc = self._known, self._dependencies.utc()
        if known is None:
            return
        sent = with_transition_times(step.conditions, known.conditions, utc)
        state = node_state(self._ask(patch_conditions(self._node, sent, utc)))
        known = after_conditions(
            known, sent, self._dependencies.clock(), self._dependencies.later(self._rhythm.heartbeat_s)
        )
        self._known = after_metadata(known, self._wanted, state.uid, state.labels, state.annotations)
        if self._known is not None and not self._known.refused:
            self._log.standing(_OTHERS)

    def _patch_annotations(self, step: PatchAnnotations) -> None:
        self._ask(patch_annotations(self._node, step))
        if self._known is not None:
            self._know(annotations={**self._known.annotations, **step.annotations})

    def _apply_feature(self, step: ApplyFeature) -> None:
        self._ask(apply_feature(self._node, step))
        now_s = self._dependencies.clock()
        due_s = now_s + self._dependencies.later(self._rhythm.heartbeat_s)
        self._know(feature=step.feature, feature_told_s=now_s, feature_due_s=due_s)

    def _evict(self, pod: Eviction) -> None:
        try:
            self._ask(evict_pod(pod))
        except ClusterError as error:
            if error.status != NOT_FOUND:
                raise
            self._evictions.taken(pod.uid)  # it has gone by itself
            return
        self._evictions.taken(pod.uid)
        self._log.warning("pod evicted", pod=f"{pod.namespace}/{pod.name}", uid=pod.uid, why=pod.why)
        what = f"{pod.namespace}/{pod.name} is evicted: {pod.why}"
        self.note((Note(is_warning=True, reason=EVICTED, message=bounded(what), subject=pod.uid),))

    def _send_event(self, step: SendEvent) -> None:
        name = step.series.name or event_name(self._node, step.series.number)
        try:
            self._ask(send_event(self._node, step, name))
        except ClusterError as error:
            if error.status == NOT_FOUND and step.series.name:
                with self._lock:
                    self._book.forgotten(step.series)
                return
            if error.status != CONFLICT:  # it is there already: the answer to an earlier try was lost
                raise
        with self._lock:
            self._book.told(step.series, name, self._dependencies.clock())

    # What goes wrong

    def _failed(self, step: Step, error: ClusterError) -> None:
        now_s = self._dependencies.clock()
        hint = {"hint": error.hint} if error.hint else {}
        if error.owners and isinstance(step, ApplyLabels) and self._known is not None:
            self._leave_to_others(self._known, error.owners)
            return
        if isinstance(step, EvictPod) and error.status in _OF_A_POD:
            self._evictions.refused(step.pod.uid)
            self._log.standing(_topic(step.kind), f"{step.pod.namespace}/{step.pod.name}: {error.message}", **hint)
            self._waits[step.kind].failed(now_s, error.retry_after_s)
            return
        if error.status not in _OF_ONE_KIND:
            self._backoff.failed(now_s, error.retry_after_s)
            self._log.standing(_TOPIC, error.message, **hint)
            return
        self._log.standing(_TOPIC)  # it answers
        self._log.standing(_topic(step.kind), error.message, **hint)
        if isinstance(step, SendEvent) and error.status in _NEVER:
            with self._lock:
                self._book.give_up(step.series)
        # It is gone, or another one.
        is_node = error.status in (NOT_FOUND, CONFLICT) and step.kind is not StepKind.FEATURE
        if error.status == INVALID and step.kind is StepKind.ANNOTATIONS:
            # To a merge patch with another uid the API server says that the field is immutable; or they are too large.
            is_node = True
            self._waits[step.kind].failed(now_s, error.retry_after_s)
        if is_node:
            self._known = None
        self._waits[StepKind.READ if is_node else step.kind].failed(now_s, error.retry_after_s)

    def _leave_to_others(self, known: Known, owners: Mapping[str, str]) -> None:
        """Do without the labels that others own: they are never taken over."""
        refused = {**known.refused, **owners}
        self._know(refused=refused)
        named = ", ".join(f"{key} ({owner})" for key, owner in sorted(refused.items()))
        hint = "stop the other one (GPU Feature Discovery?) or remove the label: kubectl label node NAME KEY-"
        self._log.standing(_OTHERS, f"labels that others own are left to them: {named}", hint=hint)

    def _know(self, **changes: object) -> None:
        if self._known is not None:
            self._known = self._known._replace(**changes)  # type: ignore[arg-type] # named by the callers above

    def _tell_dropped(self) -> None:
        if self._book.dropped > self._dropped:
            count, self._dropped = self._book.dropped - self._dropped, self._book.dropped
            self._log.warning("events were dropped", count=count, hint="the journal has what they say")


def _topic(kind: StepKind) -> str:
    return f"kubernetes {kind.value}"
