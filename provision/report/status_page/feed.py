"""Follows a fleet on a thread of its own, and tells any number of pages what has changed since they last asked.

A page asks with the version that it has, so one that is slow misses versions and no change, and costs nobody anything.
Every change since then is one message, which is encoded once for all pages that have the same version.
"""

from __future__ import annotations

import secrets
import threading
import time
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.report.runs.remedies import BARE
from provision.report.status_page.rows import Head, Row, head_document, head_of, row_of, states_document, steady_head
from provision.rollout.errors import ClusterError
from provision.rollout.status.derive import fleet_status
from provision.rollout.status.metrics import render_metrics
from provision.rollout.status.words import with_last_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.report.runs.remedies import Invocation
    from provision.rollout.status.model import FleetStatus, NodeStatus, Reader, Seen
    from provision.rollout.status.words import Last

FOLLOW_S: Final = 2.0
RETRY_S: Final = 5.0
RUNS_S: Final = 60.0  # between two looks at the runs that are kept
LOG_LINES: Final = 50  # of one node
MAX_REASONS: Final = 20_000  # that are remembered; then every page is sent everything again
MAX_GONE: Final = 5000  # nodes that are not there any more; so, too
_CACHED: Final = 8
_MAX_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Message:
    """What a page is sent: ``kind`` is "fleet" for everything, "change" for what has changed; ``body`` is JSON."""

    kind: str
    ident: str
    body: bytes


@dataclass(frozen=True, slots=True)
class LogLine:
    """One state that a node was seen to enter, at ``time`` (seconds since 1970)."""

    time: int
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Log:
    """The states that a node was seen in, the last ones first to stay; nobody looked before ``began``."""

    began: int
    lines: tuple[LogLine, ...] = ()


@dataclass(slots=True)
class _Known:
    """A node that pages know by ``number``: what it came from, and the version in which it changed."""

    number: int
    status: NodeStatus
    row: Row
    changed: int
    is_gone: bool = False


class Feed:
    """How the fleet stands, with a version that grows. Safe to be asked by several threads."""

    def __init__(
        self,
        reader: Reader,
        *,
        follow_s: float = FOLLOW_S,
        clock: Callable[[], float] = time.time,
        invocation: Invocation = BARE,
        runs: Callable[[], Mapping[str, Last]] = dict,
    ) -> None:
        self._reader = reader
        self._runs = runs
        self._runs_read: float | None = None
        self.last: Mapping[str, Last] = {}
        self.invocation = invocation
        self._follow_s = follow_s
        self._clock = clock
        self._news = threading.Condition()
        self._closed = threading.Event()
        self._status: FleetStatus | None = None
        self._logs: dict[str, deque[LogLine]] = {}
        self._logs_began = int(clock())
        self._thread = threading.Thread(target=self._follow, name="feed", daemon=True)
        self._begin()

    def start(self) -> None:
        """Look once, and follow from then on. Raises ClusterError when the first look fails."""
        self.take(self._reader.look())
        self._thread.start()

    def close(self) -> None:
        """Have waiting pages end; the reader ends with its next answer."""
        self._closed.set()
        with self._news:
            self._news.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will come."""
        return self._closed.is_set()

    def take(self, seen: Seen) -> None:
        """Take note of what was seen."""
        if self._runs_read is None or self._clock() - self._runs_read >= RUNS_S:
            self._runs_read, self.last = self._clock(), self._runs()
        status = with_last_runs(fleet_status(seen), self.last)
        with self._news:
            is_told_otherwise = self._status is not None and self._status.seen.is_led != seen.is_led
            self._status = status
            if len(self._known) > len(status.nodes) + MAX_GONE:
                there = {node.name for node in status.nodes}
                self._logs = {name: lines for name, lines in self._logs.items() if name in there}
                self._begin()
            elif is_told_otherwise or len(self._reasons) > MAX_REASONS:
                self._begin()
            if self._update(status):
                self._cache.clear()
                self._news.notify_all()

    def wait(self, ident: str, timeout_s: float) -> Message | None:
        """Return what a page lacks that has version ``ident``; None when nothing has changed for that long."""
        with self._news:
            if not (self.is_closed or self._lacks(ident)):
                self._news.wait(timeout_s)
            if self.is_closed or not self._lacks(ident):
                return None
            return self._message(ident)

    def node(self, name: str) -> tuple[NodeStatus, FleetStatus, Log] | None:
        """Return what is known of one node, and the states that it was seen in; None where there is no such node."""
        with self._news:
            if self._status is None:
                return None
            found = next((node for node in self._status.nodes if node.name == name), None)
            log = Log(self._logs_began, tuple(self._logs.get(name, ())))
            return None if found is None else (found, self._status, log)

    def metrics(self) -> bytes:
        """Return how the fleet stands as metrics."""
        with self._news:
            status = self._status
        return b"" if status is None else render_metrics(status)

    def _begin(self) -> None:
        """Forget what pages know: each is sent everything."""
        self._epoch = secrets.token_hex(4)
        self._version = 0
        self._known: dict[str, _Known] = {}
        self._reasons: dict[str, int] = {}
        self._reasons_then: list[int] = []  # the version in which each was added
        self._head: Head | None = None
        self._head_changed = 0
        self._cache: dict[int, Message] = {}

    def _follow(self) -> None:
        while not self.is_closed:
            try:
                self.take(self._reader.follow(self._follow_s))
            except ClusterError as error:
                self._complain(f"{error.message}: trying again; this is what was seen last")
                self._closed.wait(RETRY_S)
            except Exception as error:  # noqa: BLE001 - a page that stands still without a word would be believed
                self._complain(f"a bug, {type(error).__name__}: this is what was seen last")
                self._closed.wait(RETRY_S)

    def _complain(self, text: str) -> None:
        if self._status is not None:
            self.take(replace(self._status.seen, complaints=(text,)))

    def _update(self, status: FleetStatus) -> bool:
        version, now = self._version + 1, int(self._clock())
        is_new = False
        for node in status.nodes:
            is_new |= self._update_node(node, status.seen, version, now)
        for name in self._known.keys() - {node.name for node in status.nodes}:
            known = self._known[name]
            if not known.is_gone:
                known.is_gone, known.changed, is_new = True, version, True
        head = steady_head(self._head, head_of(status, self.invocation, self.last))
        if head != self._head:
            self._head, self._head_changed, is_new = head, version, True
        self._version = version if is_new else self._version
        return is_new

    def _update_node(self, node: NodeStatus, seen: Seen, version: int, now: int) -> bool:
        name, known = node.name, self._known.get(node.name)
        if known is not None and known.status == node and not known.is_gone:
            return False
        row = row_of(node, seen).steady(None if known is None else known.row)
        if known is not None and known.row == row and not known.is_gone:
            known.status = node
            return False
        if row.reason not in self._reasons:
            self._reasons[row.reason] = len(self._reasons)
            self._reasons_then.append(version)
        if known is None:
            known = self._known[name] = _Known(len(self._known), node, row, version)
        self._log(name, row, now)
        known.status, known.row, known.changed, known.is_gone = node, row, version, False
        return True

    def _log(self, name: str, row: Row, now: int) -> None:
        lines = self._logs.setdefault(name, deque(maxlen=LOG_LINES))
        if not lines or (lines[-1].state, lines[-1].reason) != (row.state, row.reason):
            lines.append(LogLine(now, row.state, row.reason))

    def _lacks(self, ident: str) -> bool:
        return self._status is not None and ident != self._ident

    @property
    def _ident(self) -> str:
        return f"{self._epoch}-{self._version}"

    def _message(self, ident: str) -> Message:
        epoch, _, number = ident.partition("-")
        is_number = number.isascii() and number.isdecimal() and len(number) <= _MAX_DIGITS
        is_known = epoch == self._epoch and is_number and int(number) < self._version
        before = int(number) if is_known else 0
        if before not in self._cache:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            body = msgspec.json.encode(self._document(before))
            self._cache[before] = Message("change" if is_known else "fleet", self._ident, body)
        return self._cache[before]

    def _document(self, before: int) -> dict[str, Any]:
        """Return what has changed after version ``before``; everything for 0."""
        first = bisect_right(self._reasons_then, before)
        document: dict[str, Any] = {
            "time": int(self._clock()),
            "firstReason": first,
            "reasons": list(self._reasons)[first:],
            "nodes": [
                self._packed(each) for each in self._known.values() if each.changed > before and not each.is_gone
            ],
            "gone": [each.number for each in self._known.values() if each.changed > before and each.is_gone and before],
        }
        if self._head is not None and self._head_changed > before:
            document["head"] = head_document(self._head)
        if not before:
            is_led = self._status is not None and self._status.seen.is_led
            document["states"] = states_document(self.invocation, is_led=is_led)
        return document

    def _packed(self, known: _Known) -> list[Any]:
        row = known.row
        reason = self._reasons[row.reason]
        return [known.number, row.name, row.state, row.wave, row.domain, row.since, row.began, reason, row.ends]
