"""Keeps the Node up to date, in a thread of its own: whatever the API does, nothing else in the daemon waits for it.

The latest state wins, events are counted up; while the API is away nothing grows and one line in the journal says so.
Without anything to say the thread sleeps until the next heartbeat.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plugin.cluster.answers import CONFLICT, INVALID, NOT_FOUND, UNAUTHORIZED, content_of, node_state
from plugin.cluster.budget import Backoff, Bucket
from plugin.cluster.model import Known, Wanted
from plugin.cluster.plan import (
    ApplyLabels,
    Kind,
    PatchConditions,
    ReadNode,
    SendEvent,
    after_conditions,
    after_metadata,
    next_step,
)
from plugin.cluster.requests import (
    apply_labels,
    event_name,
    patch_conditions,
    read_node,
    send_event,
    with_transition_times,
)
from plugin.cluster.series import EventBook
from plugin.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.cluster.answers import NodeState
    from plugin.cluster.connection import Connection
    from plugin.cluster.credentials import Credentials
    from plugin.cluster.model import Condition, Note
    from plugin.cluster.plan import Step
    from plugin.cluster.requests import Request
    from plugin.log import Journal

_TOPIC = "kubernetes api"
_BAD_REQUEST, _TOO_LARGE = 400, 413
_NEVER = (_BAD_REQUEST, _TOO_LARGE, INVALID)  # the same content will be refused again
_OF_ONE_KIND = (*_NEVER, 403, NOT_FOUND, CONFLICT)  # the API serves: what was asked is what it does not want


def utc_now() -> str:
    """Return now as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True)
class Rhythm:
    """Seconds. `start_s`: before the first call, so that GPUs are offered first. Chance adds up to a half to each."""

    start_s: float = 2.0
    heartbeat_s: float = 600.0
    last_words_s: float = 2.0


@dataclass(frozen=True)
class Seams:
    """Time, chance and the network, so that a test can have others."""

    clock: Callable[[], float] = time.monotonic
    utc: Callable[[], str] = utc_now
    number: Callable[[], int] = field(default=lambda: int.from_bytes(os.urandom(8), "big"))  # of 64 bits

    def chance(self) -> float:
        """Return a number from 0 to 1."""
        return self.number() / 2**64


class Reporter:
    """Of one Node. `show`, `note` and `label` return at once; they and `close` are of one thread.

    `source` is a kubeconfig's path or "in-cluster". OpenSSL is loaded by the thread, once there is a call to make.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what it speaks of and with, and its seams
        self,
        node: str,
        source: str,
        environment: Mapping[str, str],
        journal: Journal,
        rhythm: Rhythm | None = None,
        seams: Seams | None = None,
    ) -> None:
        self._node = node
        self._source = source
        self._environment = environment
        self._journal = journal
        self._rhythm = rhythm or Rhythm()
        self._seams = seams or Seams()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ends_s: float | None = None  # when the last words must have been said
        self._wanted = Wanted()
        self._book = EventBook()
        self._dropped = 0
        # From here on: of the thread alone.
        self._known: Known | None = None
        self._credentials: Credentials | None = None
        self._connection: Connection | None = None
        self._bucket = Bucket()
        self._backoff = Backoff(self._seams.chance)
        self._waits = {kind: Backoff(self._seams.chance) for kind in Kind}
        self._thread = threading.Thread(target=self._run, name="kubernetes", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def show(self, conditions: tuple[Condition, ...]) -> None:
        """Have the Node show these from now on."""
        self._want(self._wanted._replace(conditions=conditions))

    def label(self, labels: Mapping[str, str]) -> None:
        """Have the Node carry these labels, and no others of ours."""
        self._want(self._wanted._replace(labels=dict(labels)))

    def note(self, notes: tuple[Note, ...]) -> None:
        """Make events."""
        if not notes:
            return
        with self._lock:
            for note in notes:
                self._book.note(note, self._seams.utc(), self._seams.clock())
        self._wake.set()

    def close(self) -> bool:
        """Say what is due, for `last_words_s` at most, and end; returns False when a call still hangs then."""
        self._ends_s = self._seams.clock() + self._rhythm.last_words_s
        self._wake.set()
        self._thread.join(self._rhythm.last_words_s)
        return not self._thread.is_alive()

    def _want(self, wanted: Wanted) -> None:
        if wanted != self._wanted:
            with self._lock:
                self._wanted = wanted
            self._wake.set()

    # The thread

    def _run(self) -> None:
        begins_s = self._seams.clock() + self._later(self._rhythm.start_s)
        while self._ends_s is None and self._seams.clock() < begins_s:
            self._wake.wait(max(0.0, begins_s - self._seams.clock()))
            self._wake.clear()
        while True:
            self._wake.clear()
            wait_s = self._work()
            if self._ends_s is not None and (wait_s is None or self._seams.clock() + wait_s > self._ends_s):
                break
            self._hang_up()
            self._wake.wait(wait_s)
        self._hang_up()

    def _work(self) -> float | None:
        """Do all that is due; return after how many seconds there may be more, None: when something changes."""
        while True:
            now_s = self._seams.clock()
            if now_s < self._backoff.until_s:
                return self._backoff.until_s - now_s
            with self._lock:
                waits = {kind: each.until_s for kind, each in self._waits.items()}
                step, due_s = next_step(self._known, self._wanted, self._book, now_s, waits)
            if step is None:
                return None if due_s is None else due_s - now_s
            ready_s = self._bucket.ready_s(now_s)
            if ready_s > now_s:
                return ready_s - now_s
            self._bucket.take(now_s)
            self._try(step)

    def _try(self, step: Step) -> None:
        try:
            self._carry_out(step)
        except ClusterError as error:
            self._failed(step, error)
        except Exception as error:  # noqa: BLE001 - a bug here must not cost GPUs
            self._hang_up()
            self._backoff.failed(self._seams.clock(), 300.0)
            self._journal.warning("kubernetes api: bug", error=repr(error), hint="please report it")
        else:
            self._backoff.succeeded()
            self._waits[step.kind].succeeded()
            self._journal.standing(_TOPIC)
            self._journal.standing(_topic(step.kind))

    def _carry_out(self, step: Step) -> None:
        if isinstance(step, ReadNode):
            self._read()
        elif isinstance(step, PatchConditions):
            self._patch_conditions(step)
        elif isinstance(step, ApplyLabels):
            self._ask(apply_labels(self._node, step))
            self._know(labels=step.labels)
        else:
            self._send_event(step)
        self._tell_dropped()

    def _read(self) -> None:
        state = node_state(self._ask(read_node(self._node)))
        refused = {} if self._known is None else self._known.refused
        self._known = Known(state.uid, state.conditions, refused=refused)
        self._journal.info("kubernetes", node=self._node)

    def _patch_conditions(self, step: PatchConditions) -> None:
        known, utc = self._known, self._seams.utc()
        if known is None:
            return
        sent = with_transition_times(step.conditions, known.conditions, utc)
        state = node_state(self._ask(patch_conditions(self._node, sent, utc)))
        known = after_conditions(known, sent, self._seams.clock(), self._later(self._rhythm.heartbeat_s))
        self._known = self._compare(known, state)

    def _compare(self, known: Known, state: NodeState) -> Known | None:
        after = after_metadata(known, self._wanted, state.uid, state.labels)
        if after is not None and not after.refused:
            self._journal.standing("labels of others")
        return after

    def _send_event(self, step: SendEvent) -> None:
        name = step.series.name or event_name(self._node, self._seams.number())
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
            self._book.told(step.series, name, self._seams.clock())

    def _ask(self, request: Request) -> dict[str, object]:
        if self._connection is None:
            self._connection = self._connect()
        return content_of(request, self._connection.call(request))

    def _connect(self) -> Connection:
        if sys.modules.get("ssl", sys) is None:
            del sys.modules["ssl"]  # kept from asyncio (plugin.cli.run), which has been imported by now
        from plugin.cluster.connection import Connection  # noqa: PLC0415 - OpenSSL: not before it is needed
        from plugin.cluster.credentials import Credentials  # noqa: PLC0415 - the same

        if self._credentials is None:
            self._credentials = Credentials(self._source, self._environment)
        return Connection(self._credentials.way(), self._environment)

    # What goes wrong

    def _failed(self, step: Step, error: ClusterError) -> None:
        now_s = self._seams.clock()
        hint = {"hint": error.hint} if error.hint else {}
        if error.owners and isinstance(step, ApplyLabels) and self._known is not None:
            self._leave_to_others(error.owners)
            return
        if error.status == UNAUTHORIZED and self._credentials is not None:
            self._credentials.forget()
        if error.status not in _OF_ONE_KIND:
            self._hang_up()
            self._backoff.failed(now_s, error.retry_after_s)
            self._journal.standing(_TOPIC, error.message, **hint)
            return
        self._journal.standing(_TOPIC)  # it answers
        self._journal.standing(_topic(step.kind), error.message, **hint)
        if error.status in (NOT_FOUND, CONFLICT):
            self._known = None  # the Node is gone, or another one
        if isinstance(step, SendEvent) and error.status in _NEVER:
            with self._lock:
                self._book.give_up(step.series)
        wait = self._waits[Kind.READ if self._known is None else step.kind]
        wait.failed(now_s, error.retry_after_s)

    def _leave_to_others(self, owners: Mapping[str, str]) -> None:
        """Do without the labels that others own: they are never taken over."""
        if self._known is None:
            return
        refused = {**self._known.refused, **owners}
        self._know(refused=refused)
        named = ", ".join(f"{key} ({owner})" for key, owner in sorted(refused.items()))
        hint = "stop the other one (GPU Feature Discovery?) or remove the label: kubectl label node NAME KEY-"
        self._journal.standing("labels of others", f"labels that others own are left to them: {named}", hint=hint)

    def _know(self, **changes: object) -> None:
        if self._known is not None:
            self._known = self._known._replace(**changes)  # type: ignore[arg-type] # named by the callers above

    def _tell_dropped(self) -> None:
        if self._book.dropped > self._dropped:
            count, self._dropped = self._book.dropped - self._dropped, self._book.dropped
            self._journal.warning("events were dropped", count=count, hint="the journal has all of them")

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _later(self, seconds: float) -> float:
        return seconds * (1 + self._seams.chance() / 2)


def _topic(kind: Kind) -> str:
    return f"kubernetes {kind.value}"
