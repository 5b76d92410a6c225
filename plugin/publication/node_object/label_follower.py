"""Hears of one label of the Node, as soon as it changes: a watch of this Node alone, in a thread of its own.

A watch from version 0 begins with the Node as the API server's cache has it, so nothing has to be read or listed
besides, and etcd is not asked: `watch` of `nodes` is all that it takes, with the name as field selector. Not here: what
the value means.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from plugin.base.errors import ClusterError
from plugin.publication.node_object.answers import content_of
from plugin.publication.node_object.api.budget import Backoff
from plugin.publication.node_object.api.connector import Connector
from plugin.publication.node_object.api.messages import Limits, Request
from plugin.publication.node_object.requests import METADATA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.base.log import Logger

_TOPIC = "kubernetes api: label of the node"
_WATCH_S = 600  # and up to a half more: then the label is told again, whether or not it changed
_SILENCE_S = 90.0  # a watch has a line each minute
_TOLD = ("ADDED", "MODIFIED")


def watch_node(node: str, timeout_s: int) -> Request:
    """Ask for the Node's metadata, now and whenever something of the Node changes."""
    query = {
        "watch": "true",
        "resourceVersion": "0",
        "allowWatchBookmarks": "true",
        "fieldSelector": f"metadata.name={node}",
        "timeoutSeconds": str(timeout_s),
    }
    return Request("GET", f"/api/v1/nodes?{urlencode(query)}", "watch", "nodes", accept=METADATA)


def chance() -> float:
    """Return a number from 0 to 1."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


class LabelFollower:
    """`hear` gets the label's value, "" where the Node has no such label, in this thread; also what did not change."""

    def __init__(  # noqa: PLR0917 - what it speaks of and with
        self,
        node: str,
        label: str,
        source: str,
        environment: Mapping[str, str],
        hear: Callable[[str], None],
        logger: Logger,
        retry_s: float = 1.0,
    ) -> None:
        self._node = node
        self._label = label
        self._connector = Connector(source, environment)
        self._tell = hear
        self._log = logger
        self._backoff = Backoff(chance, retry_s)
        self._seen = ("", 0)  # uid and version
        self._is_ended = threading.Event()
        # A daemon thread: a watch that waits must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="node-label", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Tell nothing any more. What waits for the API server ends with its next line."""
        self._is_ended.set()

    def _run(self) -> None:
        while not self._is_ended.is_set():
            try:
                self._follow()
            except ClusterError as error:
                self._failed(error.message, error.hint, error.retry_after_s)
            except Exception as error:  # noqa: BLE001 - a bug here must not cost GPUs
                self._failed(f"bug: {error!r:.256}", "please report it")
            else:
                self._backoff.succeeded()

    def _failed(self, problem: str, hint: str, at_least_s: float = 0.0) -> None:
        if self._is_ended.is_set():
            return
        self._log.standing(_TOPIC, problem, hint=hint or "the configuration stays; it is tried again")
        self._backoff.failed(time.monotonic(), at_least_s)
        self._is_ended.wait(max(0.0, self._backoff.until_s - time.monotonic()))

    def _follow(self) -> None:
        """Watch until the API server ends it, as it is asked to; raises ClusterError."""
        request = watch_node(self._node, int(_WATCH_S * (1 + chance() / 2)))
        answer = self._connector.connect(Limits(read_s=_SILENCE_S)).follow(request, self._hear)
        self._connector.hear(answer.status)
        content_of(request, answer._replace(body=answer.body or b"{}"))

    def _hear(self, line: bytes) -> None:
        if self._is_ended.is_set():
            raise ClusterError("nobody listens any more")
        if not line:
            return  # the watch begins
        self._log.standing(_TOPIC)
        try:
            event = json.loads(line)
            what, metadata = event.get("type"), (event.get("object") or {}).get("metadata") or {}
            if what in _TOLD and metadata.get("name") == self._node and not self._is_stale(metadata):
                self._tell(str((metadata.get("labels") or {}).get(self._label, "")))
        except (ValueError, AttributeError, TypeError) as error:
            raise ClusterError("the api server tells of a node in no form that is known") from error
        if what == "ERROR":
            words = str((event.get("object") or {}).get("message", ""))[:200]
            raise ClusterError(f"the api server ends the watch of the node: {words}")

    def _is_stale(self, metadata: Mapping[str, Any]) -> bool:
        """Whether the Node was seen in a later version: of several API servers, one can lag behind."""
        seen = str(metadata.get("uid", "")), int(metadata.get("resourceVersion", 0))
        if seen[0] == self._seen[0] and seen[1] < self._seen[1]:
            return True
        self._seen = seen
        return False
