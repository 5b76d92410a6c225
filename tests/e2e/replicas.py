"""Watches how many pods of each deployment are in service, at every moment of a test: sampling would miss the dips."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kubernetes import watch
from kubernetes.client.exceptions import ApiException

from tests.e2e.api import is_ready

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.room import Room

RESUME_S = 5  # a watch ends and begins again this often, so that stopping it takes no longer


class Ledger:
    """The pods of one namespace as reported by a watch."""

    def __init__(self) -> None:
        self._ready: dict[str, str] = {}
        self.least: dict[str, int] = {}
        self.seen: dict[str, set[str]] = {}

    def note(self, kind: str, pod: Any) -> None:
        """Take in one event; a pod that is to be deleted is out of service."""
        name, app = pod.metadata.name, pod.metadata.labels["app"]
        self.seen.setdefault(app, set()).add(name)
        if kind != "DELETED" and is_ready(pod):
            self._ready[name] = app
        else:
            self._ready.pop(name, None)
        self.count()

    def count(self) -> None:
        """Keep the lowest number of each deployment."""
        ready = Counter(self._ready.values())
        for app in self.seen:
            self.least[app] = min(ready[app], self.least.get(app, ready[app]))


@contextmanager
def watched(room: Room) -> Iterator[Ledger]:
    """Watch the room's pods, all of which are ready now, until the end of the block."""
    ledger, stop = Ledger(), threading.Event()
    listed = room.api.core.list_namespaced_pod(room.name)
    for pod in listed.items:
        ledger.note("ADDED", pod)
    ledger.least.clear()  # the pods were taken in one by one
    ledger.count()
    with ThreadPoolExecutor(max_workers=1) as pool:
        following = pool.submit(_follow, room, ledger, stop, listed.metadata.resource_version)
        try:
            yield ledger
        finally:
            stop.set()
        following.result()


def _follow(room: Room, ledger: Ledger, stop: threading.Event, version: str) -> None:
    """Take in every event from ``version`` on; nothing is missed between one watch and the next."""
    while not stop.is_set():
        try:
            stream = watch.Watch().stream(
                room.api.core.list_namespaced_pod,
                room.name,
                resource_version=version,
                timeout_seconds=RESUME_S,
                allow_watch_bookmarks=True,
            )
            for event in stream:
                version = event["raw_object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    ledger.note(event["type"], event["object"])
        except ApiException as error:
            raise AssertionError(f"the watch of {room.name} was lost: what happened meanwhile is unknown") from error
