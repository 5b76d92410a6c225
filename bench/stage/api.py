"""Calls the API server on an open connection, and watches objects with the time of each event.

Raw HTTP and JSON, because a generated client's work would be measured too. Times are of CLOCK_MONOTONIC, which the
nodes share with this machine.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lab.cluster import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.cluster.api import Api

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
WAIT_S = 120.0
GRACE_S = 1
NOT_FOUND, REFUSED = 404, 400
Object = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """An event of a watch: when it arrived, ADDED, MODIFIED or DELETED, and the object."""

    moment: float
    kind: str
    body: Object

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.body["metadata"]["name"])


class Client:
    """Sequential calls on a connection that stays open."""

    def __init__(self, api: Api) -> None:
        self._connection = api.connection()

    def call(self, method: str, path: str, body: Object | None = None) -> Object:
        """Make one call; a missing object is an empty result. Raises ``ClusterError``."""
        headers = {"Content-Type": "application/json"}
        self._connection.request(method, path, json.dumps(body) if body else None, headers)
        response = self._connection.getresponse()
        text = response.read()
        if response.status == NOT_FOUND:
            return {}
        if response.status >= REFUSED:
            raise ClusterError(f"{method} {path}: {response.status} {text.decode(errors='replace')[:300]}")
        answer: Object = json.loads(text)
        return answer

    def create_pod(self, manifest: Object) -> None:
        """Create a pod."""
        self.call("POST", PODS, manifest)

    def delete_pod(self, name: str) -> None:
        """Delete a pod."""
        self.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": GRACE_S})

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


class Watch:
    """All events of a list of objects since the watch began."""

    def __init__(self, api: Api, path: str) -> None:
        listed = Client(api).call("GET", path)
        self._connection = api.connection(None)
        version = listed["metadata"]["resourceVersion"]
        self._connection.request("GET", f"{path}?watch=1&resourceVersion={version}")
        self._changed = threading.Condition()
        self._events: list[Seen] = []
        self._reader = threading.Thread(target=self._read, name=f"watch {path}", daemon=True)
        self._reader.start()

    def mark(self) -> int:
        """Return a position from which ``wait`` and ``since`` can begin."""
        return len(self._events)

    def since(self, mark: int) -> list[Seen]:
        """Return the events from a position on."""
        return self._events[mark:]

    def wait(self, what: str, is_so: Callable[[Seen], bool], mark: int) -> Seen:
        """Return the first matching event from ``mark`` on. Raises ``ClusterError`` after a time limit."""
        deadline = time.monotonic() + WAIT_S
        with self._changed:
            while True:
                found = next((seen for seen in self._events[mark:] if is_so(seen)), None)
                if found:
                    return found
                mark = len(self._events)
                if not self._reader.is_alive():
                    raise ClusterError(f"the watch was lost while waiting: {what}")
                if not self._changed.wait(deadline - time.monotonic()):
                    raise ClusterError(f"not within {WAIT_S:g} s: {what}")

    def close(self) -> None:
        """End the watch."""
        if self._connection.sock is not None:
            with suppress(OSError):  # the server closed it first
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._connection.close()

    def _read(self) -> None:
        response = self._connection.getresponse()
        with suppress(OSError, http.client.HTTPException):  # it does not matter how a watch ends
            while line := response.readline():
                moment = time.monotonic()
                event = json.loads(line)
                with self._changed:
                    self._events.append(Seen(moment, event["type"], event["object"]))
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


@contextmanager
def watching(api: Api, path: str) -> Iterator[Watch]:
    """Watch a list of objects until the end of the block."""
    watch = Watch(api, path)
    try:
        yield watch
    finally:
        watch.close()
