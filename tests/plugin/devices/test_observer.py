from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from plugin.devices.observer import Observation, Observer, ObserverThread, Pace
from plugin.driver.snapshot import Snapshot
from tests.plugin.fakes import VERSION, DictTree, FileSource, gpu, gpus, write_driver

if TYPE_CHECKING:
    from pathlib import Path

PACE = Pace(refresh_s=5, retry_s=15)


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def observer(tmp_path: Path, clock: Clock | None = None) -> tuple[Observer, FileSource]:
    source = FileSource(tmp_path / "driver.json")
    return Observer(source, DictTree(), PACE, clock or Clock()), source


def healthy(observation: Observation) -> list[bool]:
    return [device.is_healthy for device in observation.inventory.devices]


def test_no_driver_is_waited_for_and_found_when_it_appears(tmp_path: Path) -> None:
    watcher, source = observer(tmp_path)
    assert watcher.observe().waiting_for == "nvml does not answer: driver not loaded"
    write_driver(source.path, Snapshot(VERSION, gpus(2)))
    assert healthy(watcher.observe()) == [True, True]


def test_a_driver_without_gpus_is_waited_for_with_a_new_session_each_time(tmp_path: Path) -> None:
    watcher, source = observer(tmp_path)
    write_driver(source.path, Snapshot(VERSION, ()))
    assert watcher.observe().waiting_for == "nvml lists no gpu"
    assert not source.is_open
    write_driver(source.path, Snapshot(VERSION, gpus(1)))
    assert healthy(watcher.observe()) == [True]


def test_one_session_serves_many_looks(tmp_path: Path) -> None:
    watcher, source = observer(tmp_path)
    write_driver(source.path, Snapshot(VERSION, gpus(1)))
    for _ in range(5):
        watcher.observe()
    assert source.opened == 1


def test_a_driver_that_goes_leaves_unhealthy_devices_and_no_session(tmp_path: Path) -> None:
    watcher, source = observer(tmp_path)
    write_driver(source.path, Snapshot(VERSION, gpus(2)))
    watcher.observe()
    write_driver(source.path, None)
    gone = watcher.observe()
    assert healthy(gone) == [False, False]
    assert gone.waiting_for
    assert not source.is_open
    write_driver(source.path, Snapshot("560.35.05", gpus(2)))
    assert healthy(watcher.observe()) == [True, True]


def test_a_missing_gpu_is_looked_for_in_a_new_session_at_the_slow_pace(tmp_path: Path) -> None:
    clock = Clock()
    watcher, source = observer(tmp_path, clock)
    write_driver(source.path, Snapshot(VERSION, gpus(2)))
    watcher.observe()
    write_driver(source.path, Snapshot(VERSION, (gpu(0),)))
    clock.now = 14
    assert healthy(watcher.observe()) == [True, False]
    assert source.opened == 1
    clock.now = 15
    assert healthy(watcher.observe()) == [True, False]
    assert source.opened == 2
    watcher.observe()
    assert source.opened == 2


def test_a_gpu_that_is_added_is_found_by_its_device_node_and_for_one_new_session_alone(tmp_path: Path) -> None:
    clock, tree = Clock(), DictTree(nodes={"nvidia0"})
    source = FileSource(tmp_path / "driver.json")
    watcher = Observer(source, tree, PACE, clock)
    write_driver(source.path, Snapshot(VERSION, gpus(1)))
    watcher.observe()
    tree.nodes.add("nvidia1")
    write_driver(source.path, Snapshot(VERSION, gpus(2)))
    clock.now = 14
    watcher.observe()
    assert source.opened == 1
    clock.now = 15
    assert healthy(watcher.observe()) == [True, True]
    assert source.opened == 2
    tree.nodes.add("nvidia9")  # one that nothing is behind
    for clock.now in (30, 45, 60):
        assert healthy(watcher.observe()) == [True, True]
    assert source.opened == 3


class Seen:
    """What a thread handed over, and how often it said that it has let go."""

    def __init__(self) -> None:
        self.observations: list[tuple[Observer, Observation]] = []
        self.crashes: list[BaseException] = []
        self.arrived = threading.Semaphore(0)
        self.released = threading.Semaphore(0)
        self.thread = ObserverThread(self.publish, self.released.release, self.crashes.append)

    def publish(self, observer: Observer, observation: Observation) -> None:
        self.observations.append((observer, observation))
        self.arrived.release()


def test_the_thread_publishes_changes_observers_and_closes_the_session(tmp_path: Path) -> None:
    first, source = observer(tmp_path)
    write_driver(source.path, Snapshot(VERSION, gpus(1)))
    seen = Seen()
    seen.thread.replace_observer(first)
    seen.thread.start()
    assert seen.arrived.acquire(timeout=10)
    second, other = observer(tmp_path)
    seen.thread.replace_observer(second)
    assert seen.arrived.acquire(timeout=10)
    assert (source.is_open, other.is_open) == (False, True)
    assert seen.thread.stop(10)
    assert not other.is_open
    assert [(by is first, healthy(what)) for by, what in seen.observations] == [(True, [True]), (False, [True])]
    assert seen.crashes == []


def test_the_thread_lets_go_says_so_and_looks_again(tmp_path: Path) -> None:
    first, source = observer(tmp_path)
    write_driver(source.path, Snapshot(VERSION, gpus(1)))
    seen = Seen()
    seen.thread.replace_observer(first)
    seen.thread.start()
    assert seen.arrived.acquire(timeout=10)
    seen.thread.replace_observer(None)
    assert seen.released.acquire(timeout=10)
    assert not source.is_open
    assert not seen.arrived.acquire(timeout=0.3)
    again, other = observer(tmp_path)
    seen.thread.replace_observer(again)
    assert seen.arrived.acquire(timeout=10)
    assert other.is_open
    assert seen.thread.stop(10)


def test_a_question_is_asked_within_the_session_and_does_not_wait_for_the_next_look(tmp_path: Path) -> None:
    first, source = observer(tmp_path)
    write_driver(source.path, Snapshot(VERSION, gpus(1)))
    seen, answered = Seen(), threading.Semaphore(0)
    answers: list[tuple[bool, bool]] = []

    def question() -> None:
        answers.append((source.is_open, threading.current_thread().name == "nvml"))
        answered.release()

    seen.thread.replace_observer(first)
    seen.thread.start()
    for _ in range(3):
        seen.thread.ask(question)
        assert answered.acquire(timeout=4), "it waited for the pace of the looks"
    assert answers == [(True, True)] * 3
    assert seen.thread.stop(10)


def test_no_question_takes_the_place_of_another(tmp_path: Path) -> None:
    seen, answered = Seen(), threading.Semaphore(0)
    seen.thread.start()
    for _ in range(5):
        seen.thread.ask(answered.release)
    first, source = observer(tmp_path)
    write_driver(source.path, Snapshot(VERSION, gpus(1)))
    seen.thread.replace_observer(first)
    for _ in range(5):
        assert answered.acquire(timeout=10)
    assert seen.thread.stop(10)


def test_a_question_waits_while_nobody_looks(tmp_path: Path) -> None:
    seen, answered = Seen(), threading.Semaphore(0)
    seen.thread.start()
    assert seen.released.acquire(timeout=10)
    seen.thread.ask(answered.release)
    assert seen.released.acquire(timeout=10)
    assert not answered.acquire(blocking=False)
    first, source = observer(tmp_path)
    write_driver(source.path, Snapshot(VERSION, gpus(1)))
    seen.thread.replace_observer(first)
    assert answered.acquire(timeout=10)
    assert seen.thread.stop(10)


def test_a_known_gpu_that_a_new_session_does_not_list_is_unhealthy(tmp_path: Path) -> None:
    first, source = observer(tmp_path)
    write_driver(source.path, Snapshot(VERSION, gpus(2)))
    known = first.observe().inventory
    write_driver(source.path, Snapshot(VERSION, gpus(1)))
    again = Observer(FileSource(source.path), DictTree(), PACE, Clock(), inventory=known)
    assert healthy(again.observe()) == [True, False]


def test_a_bug_in_the_thread_is_handed_over() -> None:
    class Broken:
        def open(self) -> None:
            raise ZeroDivisionError

        def snapshot(self) -> Snapshot:
            raise AssertionError

        def close(self) -> None:
            raise AssertionError

    seen = Seen()
    seen.thread.replace_observer(Observer(Broken(), DictTree(), PACE))
    seen.thread.start()
    assert seen.thread.stop(10)
    assert [type(error) for error in seen.crashes] == [ZeroDivisionError]
