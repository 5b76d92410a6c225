"""What several Jobs say at once is heard in turn, and a node that says more than is heard waits."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from provision.apply.runner import RunFinished, RunRequest, RunStatus, TaskStarted
from provision.controller.jobs.manifest import JobKind
from provision.controller.jobs.node_run import NodeRun
from provision.controller.jobs.runner import JobRunner

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.apply.runner import Event

SETTLED_S = 0.5
MOST = 8


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the log of a node has said that floods it until nobody hears it any more."""
    done: list[str] = []

    def flood(run: NodeRun, _request: RunRequest, say: Callable[[Event], None]) -> RunFinished:
        if run.node == "quiet":
            say(TaskStarted(run.node, "x"))
            return RunFinished(RunStatus.SUCCESSFUL)
        for number in itertools.count():
            if run.is_to_stop():
                break
            say(TaskStarted(run.node, str(number)))
            done.append(str(number))
        return RunFinished(RunStatus.CANCELED)

    monkeypatch.setattr(NodeRun, "carry_out", flood)
    return done


def begin(*nodes: str) -> Any:
    nothing: Any = None
    runner = JobRunner(nothing, JobKind(image="example.com/grapnel:1", namespace="x"))
    return runner.run(RunRequest(playbook=Path("facts.yml"), inventory=(), nodes=nodes), threading.Event())


def settled(said: list[str]) -> int:
    """Return how much was said once nothing further is."""
    while True:
        before = len(said)
        time.sleep(SETTLED_S)  # on a busy machine less was said by then, which is no failure
        if len(said) == before:
            return before


def test_a_log_is_read_no_faster_than_it_is_heard(said: list[str]) -> None:
    events = begin("loud", "quiet")
    heard = [next(events)]
    assert settled(said) <= len(heard) + MOST
    while heard[-1].node != "quiet":
        heard.append(next(events))
        assert len(said) <= len(heard) + MOST
    events.close()  # although it has more to say


def test_what_nobody_hears_any_more_keeps_nothing_from_ending(said: list[str]) -> None:
    events = begin("loud")
    next(events)
    settled(said)
    events.close()
    assert len(said) <= MOST + 1
