"""Machines in memory that also let go of what they have, stop where a test says, and tell when two work at one."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from provision.apply.runner import TaskDone, TaskOutcome, TaskStarted
from tests.provision.apply.fakes import FakeFleet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from provision.apply.runner import Event, RunRequest


@dataclass
class Machines(FakeFleet):
    """``stops`` are machines on which every change waits until it is taken out of there, or the run is canceled.

    With ``stops_in``, they wait in this playbook alone. ``stuck`` are those from which nothing can be removed.
    ``together`` are those at which two runs were at once. Where they ``remember``, the driver before the last one is
    the way back of each.
    """

    stops: set[str] = field(default_factory=set)
    stops_in: str = ""
    stopped: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    together: set[str] = field(default_factory=set)
    remember: bool = False
    former: dict[str, list[str]] = field(default_factory=dict)
    returned: list[str] = field(default_factory=list)
    _at: Counter[str] = field(default_factory=Counter)
    _doing: dict[str, str] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.on_install = self._stop_at

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        """Answer as Ansible would; what only looks may be beside anything."""
        is_change = request.playbook.stem != "facts" and not request.check
        with self._mutex:
            for name in request.nodes if is_change else ():
                self._at[name] += 1
                self._doing[name] = request.playbook.stem
                self.together |= {name} if self._at[name] > 1 else set()
        try:
            yield from super().run(request, cancel)
        finally:
            with self._mutex:
                self._at.subtract(request.nodes if is_change else ())

    def _stop_at(self, name: str, cancel: threading.Event) -> None:
        while name in self.stops and self.stops_in in ("", self._doing[name]) and not cancel.is_set():
            self.stopped.add(name)
            cancel.wait(0.02)

    def _works(self) -> dict[str, Callable[[str, RunRequest, threading.Event], Iterator[Event]]]:
        back = {"driver": self._go_back} if self.remember else {}
        return {**super()._works(), "apply": self._exchange, "remove": self._remove, **back}

    def _exchange(self, name: str, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        """Apply a plan; a machine has one driver, the one that was installed last."""
        packages = self.nodes[name].packages
        for event in self._install(name, request, cancel):
            former = [each for each in packages if each.startswith("driver-")][:-1]
            packages[:] = [each for each in packages if each not in former]
            self.former.setdefault(name, []).extend(former)
            yield event

    def _look(self, name: str, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        for event in super()._look(name, request, cancel):
            if isinstance(event, TaskDone) and "facts" in event.values:
                facts = {**json.loads(event.values["facts"]), **self._driver_of(name)}
                yield replace(event, values={"facts": json.dumps(facts).encode()})
            else:
                yield event

    def _driver_of(self, name: str) -> dict[str, object]:
        has = [each.removeprefix("driver-") for each in self.nodes[name].packages if each.startswith("driver-")]
        former = self.former.get(name, [])
        if not has:
            return {}
        module = {"module": {"loaded": True, "version": has[-1]}}
        if not self.remember:
            return module
        run = {"state": "done", "verb": "back" if name in self.returned else "swap", "change": "0123456789ab"}
        back = {"back": former[-1].removeprefix("driver-")} if former else {}
        return {
            **module,
            "driver": {"current": f"change-{len(former)}", "managed": True, "run": run, **back},
        }

    def _go_back(self, name: str, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        assert request.extra_vars["grapnel_driver_verb"] == "back"
        yield TaskStarted(name, "change the driver")
        self._stop_at(name, cancel)
        if cancel.is_set():
            return
        former, packages = self.former.get(name, []), self.nodes[name].packages
        if not former:
            yield TaskDone(name, "change the driver", TaskOutcome.FAILED, message="there is no way back")
            return
        packages[:] = [*(each for each in packages if not each.startswith("driver-")), former.pop()]
        self.returned.append(name)
        yield TaskDone(name, "change the driver", TaskOutcome.CHANGED)

    def _remove(self, name: str, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        node = self.nodes[name]
        yield TaskStarted(name, "give back")
        if not request.check:
            self._stop_at(name, cancel)
            if cancel.is_set():
                return
            if name in self.stuck:
                yield TaskDone(name, "give back", TaskOutcome.FAILED, message="the engine does not come back")
                return
            node.packages.clear()
        step = {"part": "hook", "action": "delete", "target": "/usr/lib/grapnel", "reason": "grapnel's"}
        answer = {"steps": [step] if node.packages else []}
        yield TaskDone(name, "give back", TaskOutcome.CHANGED, values={"removal": json.dumps(answer).encode()})
