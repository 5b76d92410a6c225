"""Follows Nodes or pods: lists them, watches what changes, and begins from the start where the API server forgot.

In a thread of its own, where objects become values: most pods want no units, and are dropped there.
"""

from __future__ import annotations

import json
import random
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from plugin.base.errors import ClusterError
from plugin.gpushare.requests import list_page, watch
from plugin.publication.node_object.answers import content_of
from plugin.publication.node_object.api.budget import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plugin.base.log import Logger
    from plugin.gpushare.connections import Connections
    from plugin.gpushare.requests import Collection

_GONE = 410
_TOLD = ("ADDED", "MODIFIED")
_MAX_WAIT_S = 10.0


class FollowedKind(NamedTuple):
    """What is followed. `parse` returns None for an object that does not matter; `key` is that of a document."""

    collection: Collection
    parse: Callable[[dict[str, Any]], Any]
    key: Callable[[dict[str, Any]], str]
    replace: Callable[[list[Any]], None]
    put: Callable[[Any], None]
    remove: Callable[[str], None]


def pages(api: Connections, collection: Collection) -> Iterator[dict[str, Any]]:
    """List a collection, page by page; raises ClusterError."""
    token = ""
    while True:
        page = api.call(list_page(collection, token))
        yield page
        token = (page.get("metadata") or {}).get("continue") or ""
        if not token:
            return


class Follower:
    """Of one kind. What it calls of `kind` is called through `tell`, which takes it to the thread of the books."""

    def __init__(self, api: Connections, kind: FollowedKind, tell: Callable[..., object], logger: Logger) -> None:
        self._api = api
        self._kind = kind
        self._tell = tell
        self._log = logger
        self._known: set[str] = set()
        self._version = ""
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=kind.collection.kind, daemon=True)
        self.is_complete = False
        self.behind_since_s: float | None = time.monotonic()  # None: it follows

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing any more. What waits for the API server ends with the process."""
        self._is_ended.set()

    def behind_s(self) -> float:
        """Return for how long nothing has been heard that should have been."""
        since_s = self.behind_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def _run(self) -> None:
        backoff = Backoff(random.random)
        topic = f"kubernetes {self._kind.collection.kind}"
        while not self._is_ended.is_set():
            try:
                self._follow()
            except ClusterError as error:
                self._fell_behind()
                backoff.failed(time.monotonic(), error.retry_after_s)
                self._log.standing(topic, error.message, hint=error.hint or "it is tried again")
                self._is_ended.wait(min(_MAX_WAIT_S, max(0.0, backoff.until_s - time.monotonic())))
            except Exception as error:  # noqa: BLE001 - a bug here must not silently end the view of the cluster
                self._fell_behind()
                self._version = ""
                self._log.warning(f"{topic}: bug", error=repr(error)[:256], hint="please report it")
                self._is_ended.wait(_MAX_WAIT_S)
            else:
                backoff.succeeded()
                self._log.standing(topic)

    def _fell_behind(self) -> None:
        if self.behind_since_s is None:
            self.behind_since_s = time.monotonic()

    def _follow(self) -> None:
        if not self._version:
            self._list()
        request = watch(self._kind.collection, self._version)
        answer = self._api.follow(request, self._hear)
        if answer.status == _GONE:
            self._version = ""
        else:
            content_of(request, answer._replace(body=answer.body or b"{}"))

    def _list(self) -> None:
        values, known, version = [], set(), ""
        for page in pages(self._api, self._kind.collection):
            version = str((page.get("metadata") or {}).get("resourceVersion", ""))
            for document in page.get("items") or ():
                value = self._kind.parse(document)
                if value is not None:
                    values.append(value)
                    known.add(self._kind.key(document))
        self._known, self._version = known, version
        self._tell(self._kind.replace, values)
        self._tell(self._caught_up)

    def _caught_up(self) -> None:
        self.is_complete, self.behind_since_s = True, None

    def _hear(self, line: bytes) -> None:
        self.behind_since_s = None
        if not line:
            return  # the watch begins, with all that has happened since the version
        event = json.loads(line)
        document, what = event.get("object") or {}, event.get("type")
        if what == "ERROR":
            self._version = ""
            raise ClusterError(f"the api server ends the watch: {str(document.get('message', ''))[:200]}")
        self._version = str((document.get("metadata") or {}).get("resourceVersion", self._version))
        if what == "BOOKMARK":
            return
        key = self._kind.key(document)
        value = self._kind.parse(document) if what in _TOLD else None
        if value is not None:
            self._known.add(key)
            self._tell(self._kind.put, value)
        elif key in self._known:
            self._known.discard(key)
            self._tell(self._kind.remove, key)
