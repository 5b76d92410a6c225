"""Writes Events of GpuStacks, on a thread of its own: few of each stack, and never in the way.

The same Event again counts up. A stack may have `BURST` Events at once and one more every `REFILL_S` seconds; what goes
beyond that, and beyond the queue, is dropped and counted: the status of the stack says how it stands in any case.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.base.printable import printable
from provision.cluster.errors import ForbiddenError
from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import Request, StatusError
from provision.cluster.kubernetes.notices import COMPONENT, MAX_MESSAGE, NAMESPACE
from provision.cluster.kubernetes.reporter import STRATEGIC_PATCH
from provision.declaration.spec.model import API_VERSION, KIND
from provision.rollout.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.cluster.kubernetes.api.client import Api
    from provision.controller.publication.news import StackEvent

BURST: Final = 25
REFILL_S: Final = 30.0
MAX_WAITING: Final = 500
MAX_REMEMBERED: Final = 1000
TIMEOUT_S: Final = 5.0
CLOSE_S: Final = 5.0
_EVENTS: Final = f"/api/v1/namespaces/{NAMESPACE}/events"


@dataclass(frozen=True, slots=True)
class _Due:
    stack: str
    uid: str
    event: StackEvent
    time: datetime


@dataclass(slots=True)
class Allowance:
    """How many Events a stack may still have: a bucket that fills up again."""

    left: float = BURST
    at_s: float = 0.0

    def take(self, now_s: float) -> bool:
        """Tell whether there may be one more now, and count it."""
        self.left = min(float(BURST), self.left + (now_s - self.at_s) / REFILL_S)
        self.at_s = now_s
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


def render_event(due: _Due, name: str) -> dict[str, Any]:
    """Return the Event for the first time that something happens."""
    moment = f"{due.time:%Y-%m-%dT%H:%M:%SZ}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "involvedObject": {"apiVersion": API_VERSION, "kind": KIND, "name": due.stack, "uid": due.uid},
        "reason": due.event.reason,
        "message": printable(due.event.message, limit=MAX_MESSAGE),
        "type": "Warning" if due.event.is_warning else "Normal",
        "source": {"component": f"{COMPONENT}-controller"},
        "reportingComponent": f"{COMPONENT}-controller",
        "reportingInstance": f"{COMPONENT}-controller",
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


class EventWriter:
    """Writes what it is told, from construction to `close`; ``complain`` is told what was not written."""

    def __init__(
        self,
        api: Api,
        complain: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api, self._complain, self._clock, self._now = api, complain, clock, now
        self._waiting: deque[_Due] = deque()
        self._news = threading.Condition()
        self._is_closing = self._is_forbidden = False
        self._allowances: dict[str, Allowance] = {}
        self._told: dict[tuple[str, str, str], tuple[str, int]] = {}
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="stack events", daemon=True)
        self._thread.start()

    def tell(self, stack: str, uid: str, event: StackEvent) -> None:
        """Have an Event written soon, if the stack may have one more."""
        with self._news:
            allowance = self._allowances.setdefault(uid, Allowance(at_s=self._clock()))
            if self._is_forbidden or len(self._waiting) >= MAX_WAITING or not allowance.take(self._clock()):
                self.dropped += 1
                return
            self._waiting.append(_Due(stack, uid, event, self._now()))
            self._news.notify()

    def close(self) -> None:
        """Write what is left, for a while."""
        with self._news:
            self._is_closing = True
            self._news.notify()
        self._thread.join(CLOSE_S)
        if lost := self.dropped + len(self._waiting):
            self._complain(f"{lost} Events of stacks were not written")

    def _work(self) -> None:
        while True:
            with self._news:
                while not self._waiting and not self._is_closing:
                    self._news.wait()
                if not self._waiting:
                    return
                due = self._waiting.popleft()
            self._write(due)

    def _write(self, due: _Due) -> None:
        if self._is_forbidden:
            self.dropped += 1
            return
        try:
            self._send(due)
        except ForbiddenError as error:
            self._is_forbidden = True
            self._complain(f"Events of stacks are not written: {error.message} ({error.hint})")
        except (ClusterError, StatusError):
            self.dropped += 1
        except Exception as error:  # noqa: BLE001 - an Event never ends the controller
            self.dropped += 1
            self._complain(f"an Event was not written, with a bug: {type(error).__name__}: {error}")

    def _send(self, due: _Due) -> None:
        """Create an Event, or count another one like it."""
        key = (due.uid, due.event.reason, due.event.message)
        name, count = self._told.get(key, ("", 0))
        if count:
            moment = f"{due.time:%Y-%m-%dT%H:%M:%SZ}"
            body: dict[str, Any] = {"count": count + 1, "lastTimestamp": moment}
            path = f"{_EVENTS}/{name}"
            again = Request(method="PATCH", path=path, body=body, content_type=STRATEGIC_PATCH, timeout_s=TIMEOUT_S)
            try:
                self._api.call(again, msgspec.Raw, expected=(NOT_FOUND,), patience_s=0)
            except StatusError:  # the API server has forgotten it, as it does after an hour
                count = 0
        if not count:
            name = f"{due.stack}.{int(due.time.timestamp() * 1e6):x}"
            first = Request(method="POST", path=_EVENTS, body=render_event(due, name), timeout_s=TIMEOUT_S)
            self._api.call(first, msgspec.Raw, expected=(CONFLICT,), patience_s=0)
        if len(self._told) >= MAX_REMEMBERED:
            self._told.clear()
        self._told[key] = (name, count + 1)
