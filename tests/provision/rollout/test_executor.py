"""Steps beside the engine, on threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from provision.apply.model import Note
from provision.rollout.model import Phase
from provision.rollout.step import StepOutcome
from provision.rollout.steps.executor import Event, StepEnded, ThreadExecutor

if TYPE_CHECKING:
    from provision.apply.model import Observer

LONG_S = 20.0  # nothing waits for it to pass


@dataclass
class Gated:
    """Steps that end when they are allowed to, or raise ``error``."""

    go: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def run(self, node: str, phase: Phase, observe: Observer, cancel: threading.Event) -> StepOutcome:
        del phase, cancel
        observe(Note(node, "begins"))
        assert self.go.wait(LONG_S)
        if self.error is not None:
            raise self.error
        return StepOutcome()


def wait_for(executor: ThreadExecutor, count: int) -> list[Event]:
    found: list[Event] = []
    while len(found) < count:
        events = executor.wait(LONG_S)
        assert events
        found += events
    return found


def test_a_step_runs_beside_its_caller_and_tells_its_progress_and_its_end() -> None:
    steps = Gated()
    executor = ThreadExecutor(steps, threading.Event(), 1)
    executor.start("n1", Phase.SWAP)
    assert wait_for(executor, 1) == [Note("n1", "begins")]
    assert executor.wait(0) == []
    steps.go.set()
    assert wait_for(executor, 1) == [StepEnded("n1", Phase.SWAP, StepOutcome())]
    executor.close()


def test_a_bug_in_a_step_is_the_failure_of_its_node() -> None:
    steps = Gated(error=ValueError("no such GPU"))
    steps.go.set()
    executor = ThreadExecutor(steps, threading.Event(), 1)
    executor.start("n1", Phase.SWAP)
    _begins, ended = wait_for(executor, 2)
    assert isinstance(ended, StepEnded)
    assert ended.outcome.failure is not None
    assert "running swap on n1" in ended.outcome.failure.message
    executor.close()


def test_what_ends_a_process_is_raised_where_it_waits() -> None:
    steps = Gated(error=KeyboardInterrupt())
    executor = ThreadExecutor(steps, threading.Event(), 1)
    executor.start("n1", Phase.SWAP)
    assert wait_for(executor, 1) == [Note("n1", "begins")]
    steps.go.set()
    with pytest.raises(KeyboardInterrupt):
        executor.wait(LONG_S)
    executor.close()


def test_waking_ends_a_wait_without_an_event() -> None:
    executor = ThreadExecutor(Gated(), threading.Event(), 1)
    threading.Thread(target=executor.wake).start()
    assert executor.wait(LONG_S) == []
    executor.close()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_wait_ends_however_long_its_thread_was_kept_from_running() -> None:
    """With CPython's SimpleQueue, one of these waits has no end: its time is over before it begins to sleep."""
    for _ in range(20_000):
        assert ThreadExecutor(Gated(), threading.Event(), 1).wait(1e-6) == []
