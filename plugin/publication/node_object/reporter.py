"""Keeps the Node up to date, in a thread of its own: whatever the API does, nothing else in the daemon waits for it.

The latest state wins, events are counted up; while the API is away nothing grows, and one line in the log says so.
Without anything to say the thread sleeps until the next heartbeat.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from plugin.base.errors import ClusterError
from plugin.publication.node_object.answers import UNAUTHORIZED, content_of
from plugin.publication.node_object.api.connector import Connector
from plugin.publication.node_object.session import Dependencies, Rhythm, Session

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from plugin.base.log import Logger
    from plugin.publication.node_object.api.connection import Connection
    from plugin.publication.node_object.api.messages import Request
    from plugin.publication.node_object.model import Condition, Eviction, NodeFeature, Note

_AFTER_A_BUG_S = 600.0


class Reporter:
    """Of one Node. Each call returns at once, but for `close`; all are of one thread.

    `source` is a kubeconfig's path or "in-cluster". OpenSSL is loaded by the reporter's thread, once there is a call to
    make. The connection is closed whenever nothing is due.
    """

    def __init__(
        self,
        node: str,
        source: str,
        environment: Mapping[str, str],
        logger: Logger,
        rhythm: Rhythm | None = None,
    ) -> None:
        self._connector = Connector(source, environment)
        self._log = logger
        self._rhythm = rhythm or Rhythm()
        self._dependencies = Dependencies()
        self._session = Session(node, self._ask, logger, self._rhythm, self._dependencies)
        self._wake = threading.Event()
        self._ends_s: float | None = None  # when the last words must have been said
        self._connection: Connection | None = None
        # A daemon thread: an API server that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="kubernetes", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def show(self, conditions: tuple[Condition, ...]) -> None:
        """Have the Node show these from now on."""
        if self._session.show(conditions):
            self._wake.set()

    def label(self, labels: Mapping[str, str]) -> None:
        """Have the Node carry these labels, and no others of ours."""
        if self._session.label(labels):
            self._wake.set()

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Have the Node carry these annotations as well, None for one that goes."""
        if self._session.annotate(annotations):
            self._wake.set()

    def feature(self, feature: NodeFeature) -> None:
        """Have there be this NodeFeature object of the node."""
        if self._session.feature(feature):
            self._wake.set()

    def evict(self, pods: tuple[Eviction, ...]) -> None:
        """Have these pods go, each once, and no others any more."""
        if self._session.evict(pods):
            self._wake.set()

    def note(self, notes: tuple[Note, ...]) -> None:
        """Make events."""
        if self._session.note(notes):
            self._wake.set()

    def close(self) -> bool:
        """Say what is due, for `last_words_s` at most, and end; returns False when a call still hangs then."""
        self._ends_s = self._dependencies.clock() + self._rhythm.last_words_s
        self._wake.set()
        self._thread.join(self._rhythm.last_words_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        begins_s = self._dependencies.clock() + self._dependencies.later(self._rhythm.start_s)
        while self._ends_s is None and self._dependencies.clock() < begins_s:
            self._wake.wait(max(0.0, begins_s - self._dependencies.clock()))
            self._wake.clear()
        while True:
            self._wake.clear()
            wait_s = self._work()
            self._hang_up()
            if self._ends_s is not None and (wait_s is None or self._dependencies.clock() + wait_s > self._ends_s):
                return
            self._wake.wait(wait_s)

    def _work(self) -> float | None:
        try:
            return self._session.work()
        except Exception as error:  # noqa: BLE001 - a bug here must not cost GPUs
            self._log.warning("kubernetes api: bug", error=repr(error)[:256], hint="please report it")
            return _AFTER_A_BUG_S

    def _ask(self, request: Request) -> dict[str, Any]:
        try:
            if self._connection is None:
                self._connection = self._connector.connect()
            return content_of(request, self._connection.call(request))
        except ClusterError as error:
            if error.status in {0, UNAUTHORIZED}:
                self._hang_up()
            self._connector.hear(error.status)
            raise

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
