"""Writes Events and conditions of a rollout on Nodes, on a thread of its own: slowly, and never in the way.

While it lives it renews the conditions that are "True", so that an old heartbeat tells of an engine that was killed;
what such a one has left on a node whose upgrade is over, the next engine corrects.

Whoever upgrades does not depend on it. A permission that is missing is told once, an API server that does not answer
costs some Events, and more than the queue holds is dropped and counted, older notices of the same node first: the last
one is what its conditions are about.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from provision.apply.model import Note
from provision.base.printable import brief
from provision.cluster.errors import ForbiddenError
from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import Request, StatusError
from provision.cluster.kubernetes.notices import NAMESPACE, Notice, Remark, conditions, event, event_name, heartbeats
from provision.rollout.errors import ClusterError
from provision.rollout.interface.progress import PhaseEntered
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.objects.nodes import Node
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.interface.progress import RolloutProgress
    from provision.rollout.interface.standing import Standing

MAX_WAITING: Final = 2000
PAUSE_S: Final = 0.1  # between two nodes: ten a second, of the hundreds that an API server takes
CLOSE_S: Final = 15.0
TIMEOUT_S: Final = 5.0
HEARTBEAT_S: Final = 300.0
REMARK_AGAIN: Final = timedelta(seconds=10)
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
_EVENTS: Final = f"/api/v1/namespaces/{NAMESPACE}/events"


class NodeReporter:
    """Reports what nodes enter. ``find`` returns the Node of a name of the inventory, as it was last seen."""

    def __init__(
        self,
        api: Api,
        find: Callable[[str], Node | None],
        *,
        events: bool,
        kinds: Collection[str],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        pause_s: float = PAUSE_S,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._api, self._find, self._clock = api, find, clock
        self._pause_s, self._heartbeat_s = pause_s, heartbeat_s
        self._has_seen = False
        self._uids: dict[str, str] = {}
        self._writes_events, self._kinds = events, tuple(kinds)
        self._waiting: deque[Notice | Remark] = deque()
        self._remarked: dict[str, datetime] = {}
        self._news = threading.Condition()
        self._is_closing = False
        self._told: dict[tuple[str, str, str], tuple[int, Notice | Remark]] = {}
        self._conditions: dict[str, dict[str, tuple[str, str]]] = {}
        self._dropped = 0
        self._troubles: dict[str, str] = {}
        self._renewal = time.monotonic() + heartbeat_s
        self._thread = threading.Thread(target=self._work, name="reporter", daemon=True)
        self._thread.start()

    def hear(self, progress: RolloutProgress) -> None:
        """Take note of a phase that a node entered, and of what else is an Event of it."""
        if not isinstance(progress, PhaseEntered | Note) or (isinstance(progress, Note) and not progress.reason):
            return
        if (node := self._find(progress.node)) is None:
            return
        meta, now = node.metadata, self._clock()
        if isinstance(progress, PhaseEntered):
            notice: Notice | Remark = Notice(
                node=meta.name,
                uid=meta.uid,
                phase=progress.phase,
                reason=brief(progress.reason) or progress.remark,
                time=now,
                takes_pods=progress.takes_pods,
                is_in_place=progress.is_in_place,
            )
        elif self._may_remark(meta.name, now):
            notice = Remark(node=meta.name, uid=meta.uid, word=progress.reason, text=progress.text, time=now)
        else:
            return
        with self._news:
            if len(self._waiting) >= MAX_WAITING:
                self._drop(notice.node)
            self._waiting.append(notice)
            self._news.notify()

    def _may_remark(self, node: str, now: datetime) -> bool:
        """Tell whether a node may have another Event beside those of its phases: few in any time."""
        before = self._remarked.get(node)
        if before is not None and now - before < REMARK_AGAIN:
            self._dropped += 1
            return False
        self._remarked[node] = now
        return True

    def see(self, standing: Standing, nodes: Sequence[NodeState]) -> None:
        """Look once for what a killed engine has left; phases are heard of."""
        del standing
        if self._has_seen or not self._kinds:
            return
        self._has_seen = True
        for each in nodes:
            record, node = each.record, self._find(each.name)
            if node is None or not each.view.told or (record is not None and not record.phase.is_over):
                continue
            phase, reason = (Phase.DONE, "") if record is None else (record.phase, record.complaint)
            notice = Notice(
                node=node.metadata.name,
                uid=node.metadata.uid,
                phase=phase,
                reason=reason,
                time=self._clock(),
                is_forgotten=record is None,
                left=each.view.told,
            )
            with self._news:
                self._waiting.append(notice)
                self._news.notify()

    def close(self) -> str:
        """Write what is left, for a while, and return what could not be written."""
        with self._news:
            self._is_closing = True
            self._news.notify()
        self._thread.join(CLOSE_S)
        lost = self._dropped + len(self._waiting)
        return "; ".join([*self._troubles.values(), *([f"{lost} Events were not written"] if lost else [])])

    def _drop(self, node: str) -> None:
        """Make room: for a notice of the same node, which says less than the new one, else for the oldest."""
        victim = next((one for one in self._waiting if one.node == node), self._waiting[0])
        self._waiting.remove(victim)
        self._dropped += 1

    def _work(self) -> None:
        while True:
            notice = self._next()
            if notice is None and self._is_closing:
                return
            if notice is None:
                self._renew()
                continue
            if self._writes_events and (isinstance(notice, Remark) or not notice.left):
                self._try("Events", lambda one=notice: self._tell(one))  # type: ignore[misc]  # bound at once
            if self._kinds and isinstance(notice, Notice):
                self._try("conditions", lambda one=notice: self._mark(one))  # type: ignore[misc]  # bound at once
            if not self._is_closing:
                time.sleep(self._pause_s)

    def _next(self) -> Notice | Remark | None:
        """Return the next notice; None at the end, and where the conditions are to be renewed."""
        with self._news:
            if not self._waiting and not self._is_closing:
                self._news.wait(max(0.0, self._renewal - time.monotonic()))
            is_due = time.monotonic() >= self._renewal and not self._is_closing
            return self._waiting.popleft() if self._waiting and not is_due else None

    def _renew(self) -> None:
        """Say of the conditions that are "True" that whoever set them lives."""
        if time.monotonic() < self._renewal:
            return
        self._renewal = time.monotonic() + self._heartbeat_s
        for node, known in self._conditions.items():
            types = [kind for kind, (status, _) in known.items() if status == "True"]
            if types and self._kinds and not self._is_closing:
                body = {
                    "metadata": {"uid": self._uids[node]},
                    "status": {"conditions": heartbeats(types, self._clock())},
                }
                self._try("conditions", partial(self._patch, node, body))
                time.sleep(self._pause_s)

    def _try(self, what: str, act: Callable[[], None]) -> None:
        try:
            act()
        except ForbiddenError as error:
            self._troubles[what] = f"{what} of nodes are not written: {error.message} ({error.hint})"
            if what == "Events":
                self._writes_events = False
            else:
                self._kinds = ()
        except ClusterError as error:
            self._dropped += 1
            self._troubles[what] = f"some {what} of nodes were not written: {error.message}"
        except StatusError:  # the node is gone, or an Event has been forgotten
            self._dropped += 1

    def _tell(self, notice: Notice | Remark) -> None:
        """Create an Event, or count another one like it."""
        what = (notice.word, notice.text) if isinstance(notice, Remark) else (notice.phase.value, notice.reason)
        key = (notice.node, *what)
        count, first = self._told.get(key, (0, notice))
        if count:
            body = {"count": count + 1, "lastTimestamp": event(notice, count=1, first=notice.time)["lastTimestamp"]}
            path = f"{_EVENTS}/{event_name(first)}"
            request = Request(method="PATCH", path=path, body=body, content_type=STRATEGIC_PATCH, timeout_s=TIMEOUT_S)
        else:
            body = event(notice, count=1, first=notice.time)
            request = Request(method="POST", path=_EVENTS, body=body, timeout_s=TIMEOUT_S)
        self._api.call(request, msgspec.Raw, expected=(CONFLICT, NOT_FOUND), patience_s=0)
        self._told[key] = (count + 1, first)

    def _mark(self, notice: Notice) -> None:
        """Set the conditions that have changed."""
        before = self._conditions.setdefault(notice.node, dict.fromkeys(notice.left, ("True", "")))
        self._uids[notice.node] = notice.uid
        changed = conditions(notice, kinds=notice.left or self._kinds, before=before)
        if not changed:
            return
        body = {"metadata": {"uid": notice.uid}, "status": {"conditions": changed}}  # not of a node of the same name
        self._patch(notice.node, body)
        before.update({each["type"]: (each["status"], each["reason"]) for each in changed})

    def _patch(self, node: str, body: Mapping[str, object]) -> None:
        path = f"/api/v1/nodes/{node}/status"
        request = Request(method="PATCH", path=path, body=body, content_type=STRATEGIC_PATCH, timeout_s=TIMEOUT_S)
        self._api.call(request, msgspec.Raw, expected=(CONFLICT, NOT_FOUND), patience_s=0)
