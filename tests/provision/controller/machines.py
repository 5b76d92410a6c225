"""Machines in memory that also let go of what they have, stop where a test says, and tell when two work at one."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.runner import Outcome, TaskDone, TaskStarted
from tests.provision.apply.fakes import FakeFleet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from provision.runner import Event, RunRequest


@dataclass
class Machines(FakeFleet):
    """``stops`` are machines on which every change waits until it is taken out of there, or the run is canceled.

    ``stuck`` are those from which nothing can be removed. ``together`` are those at which two runs were at once.
    """

    stops: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    together: set[str] = field(default_factory=set)
    _at: Counter[str] = field(default_factory=Counter)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.on_install = self._stop_at

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        """Answer as Ansible would; what only looks may be beside anything."""
        is_change = request.playbook.stem != "facts" and not request.check
        with self._mutex:
            for name in request.nodes if is_change else ():
                self._at[name] += 1
                self.together |= {name} if self._at[name] > 1 else set()
        try:
            yield from super().run(request, cancel)
        finally:
            with self._mutex:
                self._at.subtract(request.nodes if is_change else ())

    def _stop_at(self, name: str, cancel: threading.Event) -> None:
        while name in self.stops and not cancel.is_set():
            self.stopped.add(name)
            cancel.wait(0.02)

    def _works(self) -> dict[str, Callable[[str, RunRequest, threading.Event], Iterator[Event]]]:
        return {**super()._works(), "remove": self._remove}

    def _remove(self, name: str, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        node = self.nodes[name]
        yield TaskStarted(name, "give back")
        if not request.check:
            self._stop_at(name, cancel)
            if cancel.is_set():
                return
            if name in self.stuck:
                yield TaskDone(name, "give back", Outcome.FAILED, message="the engine does not come back")
                return
            node.packages.clear()
        step = {"part": "hook", "action": "delete", "target": "/usr/lib/grapnel", "reason": "grapnel's"}
        answer = {"steps": [step] if node.packages else []}
        yield TaskDone(name, "give back", Outcome.CHANGED, values={"removal": json.dumps(answer).encode()})
