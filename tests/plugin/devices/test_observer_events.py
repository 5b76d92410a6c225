"""The observer between a driver that has events and whoever judges them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plugin.base.errors import DriverNotReady
from plugin.devices.observer import Observation, Observer, ObserverThread, Pace
from plugin.driver.reading import XidEvent
from plugin.driver.snapshot import LostGpu, Snapshot
from tests.plugin.devices.test_observer import Clock
from tests.plugin.fakes import VERSION, DictTree, FileSource, gpu, gpus, write_driver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from plugin.devices.health.model import Transition
    from plugin.devices.inventory import Inventory
    from plugin.driver.reading import Reading

PACE = Pace(refresh_s=5, retry_s=15, health_s=30)
EVENT = XidEvent(gpu(0).uuid, 48)


@dataclass
class EventSource(FileSource):
    """A driver whose events a test puts on a list; None in it is an event set that breaks."""

    events: list[XidEvent | None] = field(default_factory=list)
    happened: Callable[[], None] = lambda: None
    readings: int = 0

    def read_health(self) -> dict[str, Reading]:
        self.readings += 1
        return super().read_health()

    def watch_events(self, happened: Callable[[], None]) -> None:
        super().watch_events(happened)
        self.happened = happened

    def take_events(self) -> tuple[XidEvent, ...]:
        taken, self.events = self.events, []
        if None in taken:
            raise DriverNotReady("nvml has no events: gpu is lost")
        return tuple(event for event in taken if event is not None)


@dataclass
class Judge:
    """Judges nothing and remembers what it was given."""

    is_pressing: bool = False
    heard: list[XidEvent] = field(default_factory=list)
    events: list[XidEvent] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    watch: list[str] = field(default_factory=list)

    def watch_begins(self) -> None:
        self.watch.append("begins")

    def watch_ends(self, *, lost_events: bool = False) -> None:
        self.watch.append("breaks" if lost_events else "ends")

    def hear(self, events: tuple[XidEvent, ...]) -> None:
        self.heard += events

    def judge(self, inventory: Inventory, readings: Mapping[str, Reading]) -> tuple[Inventory, tuple[Transition, ...]]:
        self.events += self.heard
        self.heard.clear()
        self.read.append(len(readings))
        return inventory, ()


def parts(tmp_path: Path, pace: Pace = PACE) -> tuple[Observer, EventSource, Judge, Clock]:
    source, judge, clock = EventSource(tmp_path / "driver.json"), Judge(), Clock()
    write_driver(source.path, Snapshot(VERSION, gpus(2)))
    return Observer(source, DictTree(), pace, clock, health=judge), source, judge, clock


def test_gpus_are_read_at_a_slow_pace_and_at_every_look_while_evidence_is_awaited(tmp_path: Path) -> None:
    watcher, source, judge, clock = parts(tmp_path)
    for now in (0, 5, 29, 30, 35):
        clock.now = now
        watcher.observe()
    assert judge.read == [2, 0, 0, 2, 0]
    judge.is_pressing = True
    watcher.observe()
    assert judge.read[-1] == 2
    assert source.readings == 3


def test_an_event_is_judged_once(tmp_path: Path) -> None:
    watcher, source, judge, _ = parts(tmp_path)
    watcher.observe()
    source.events = [EVENT]
    watcher.observe()
    watcher.observe()
    assert judge.events == [EVENT]


def test_an_event_is_kept_while_the_driver_does_not_answer(tmp_path: Path) -> None:
    watcher, source, judge, _ = parts(tmp_path)
    watcher.observe()
    source.events = [EVENT]
    write_driver(source.path, None)
    assert watcher.observe().waiting_for
    assert judge.events == []
    write_driver(source.path, Snapshot(VERSION, gpus(2)))
    watcher.observe()
    assert judge.events == [EVENT]


def test_an_event_at_the_end_of_a_session_is_kept_for_whoever_looks_next(tmp_path: Path) -> None:
    watcher, source, judge, _ = parts(tmp_path)
    watcher.observe()
    source.events = [EVENT]
    watcher.close()
    Observer(FileSource(source.path), DictTree(), PACE, health=judge).observe()
    assert judge.events == [EVENT]


def test_an_event_set_that_breaks_is_a_gap_and_ends_with_a_new_session(tmp_path: Path) -> None:
    watcher, source, judge, clock = parts(tmp_path)
    watcher.observe()
    clock.now = 100
    source.events = [None]
    watcher.observe()
    assert source.opened == 1
    watcher.observe()
    assert source.opened == 2
    assert judge.watch == ["begins", "breaks", "begins"]
    watcher.close()
    assert judge.watch[-1] == "ends"


def test_sessions_that_are_all_deaf_are_begun_at_the_pace_of_a_retry_and_it_is_said_once(tmp_path: Path) -> None:
    watcher, source, _, clock = parts(tmp_path, Pace(refresh_s=5, retry_s=15))
    findings = set()
    for now in range(5, 66, 5):
        clock.now = now
        source.events = [None]
        findings.add(watcher.observe().inventory.findings)
    assert source.opened == 5
    assert findings == {(("xid events", "xid errors are not heard: nvml has no events: gpu is lost"),)}
    for now in (80, 145):
        clock.now = now
        last = watcher.observe().inventory.findings
    assert last == ()


def test_a_gpu_that_is_lost_is_looked_for_in_a_new_session_and_a_condemned_one_is_not(tmp_path: Path) -> None:
    watcher, source, judge, clock = parts(tmp_path)
    judge.is_pressing = True
    watcher.observe()
    clock.now = 1000
    watcher.observe()
    assert source.opened == 1
    write_driver(source.path, Snapshot(VERSION, (gpu(0),), (LostGpu(1, None, "gpu is lost"),)))
    watcher.observe()
    watcher.observe()
    assert source.opened == 2


def test_the_thread_looks_at_once_when_something_happens_and_when_it_is_told(tmp_path: Path) -> None:
    watcher, source, judge, _ = parts(tmp_path, Pace(refresh_s=3600, retry_s=3600))
    seen = threading.Semaphore(0)

    def publish(_observer: Observer, _observation: Observation) -> None:
        seen.release()

    crashes: list[BaseException] = []
    thread = ObserverThread(publish, lambda: None, crashes.append)
    watcher.happened = thread.observe_now
    thread.replace_observer(watcher)
    thread.start()
    assert seen.acquire(timeout=10)
    source.events = [EVENT]
    source.happened()
    assert seen.acquire(timeout=10)
    assert judge.events == [EVENT]
    thread.observe_now()
    assert seen.acquire(timeout=10)
    assert thread.stop(10)
    assert (crashes, source.is_open) == ([], False)
