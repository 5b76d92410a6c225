"""Follows one run of a playbook on one node to its end: what changed, what it returned, why it failed.

An exception about one node becomes that node's failure; the others go on.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.apply.carried_out import step_name
from provision.apply.errors import CanceledError
from provision.apply.model import Failure, NodeTask, Status, told_of
from provision.apply.runner import CutOff, RunFinished, RunStatus, TaskDone, TaskOutcome, TaskStarted
from provision.base.bug import describe_bug
from provision.base.errors import GrapnelError

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from provision.apply.model import Observer, PlaybookRunner
    from provision.apply.runner import RunRequest

_LOG = logging.getLogger(__name__)

AGAIN = "apply again to finish"


@dataclass(slots=True)
class Followed:
    """What a run came to; ``values`` are the kept keys of all its tasks, as JSON, ``changed`` steps that changed it."""

    changes: int = 0
    changed: set[str] = field(default_factory=set)
    values: dict[str, bytes] = field(default_factory=dict)
    failure: Failure | None = None


class ToldRun:
    """The tasks of a run, each reported as it comes; ``end`` is how it ended, once there are no more."""

    def __init__(self, runner: PlaybookRunner, request: RunRequest, observe: Observer, *, gathering: bool) -> None:
        self.end = RunFinished(RunStatus.ERROR, message="the run ended without saying why")
        self._runner, self._request, self._observe, self._gathering = runner, request, observe, gathering

    def tasks(self, cancel: threading.Event) -> Iterator[TaskStarted | TaskDone]:
        """Run, and yield the tasks that begin and end."""
        for event in self._runner.run(self._request, cancel):
            if isinstance(event, RunFinished):
                self.end = event
            elif isinstance(event, CutOff):
                self._observe(told_of(event))
            else:
                self._observe(NodeTask(event, gathering=self._gathering))
                yield event


def follow(
    runner: PlaybookRunner, request: RunRequest, observe: Observer, cancel: threading.Event, *, gathering: bool = False
) -> Followed:
    """Run a playbook on one node and report its tasks; a failure is in the result."""
    followed, run = Followed(), ToldRun(runner, request, observe, gathering=gathering)
    task, broken = "", None
    for event in run.tasks(cancel):
        if isinstance(event, TaskStarted):
            task = event.task
        else:
            if event.outcome is TaskOutcome.CHANGED:
                followed.changes += 1
                followed.changed.add(step_name(event.task, event.role))
            followed.values.update(event.values)
            broken = _worse(broken, event)
    followed.failure = _failure_of(run.end, task, broken)
    return followed


def _worse(former: TaskDone | None, done: TaskDone) -> TaskDone | None:
    bad = done.outcome is TaskOutcome.UNREACHABLE or (done.outcome is TaskOutcome.FAILED and not done.ignored)
    return done if bad else former


def _failure_of(end: RunFinished, task: str, broken: TaskDone | None) -> Failure | None:
    if end.status is RunStatus.SUCCESSFUL:  # a failed task that the playbook rescued is no failure
        return None
    if end.status is RunStatus.CANCELED:
        return Failure(Status.CANCELED, AGAIN, task)
    if end.status is RunStatus.TIMED_OUT or broken is None:
        return Failure(Status.FAILED, end.message, task)
    status = Status.UNREACHABLE if broken.outcome is TaskOutcome.UNREACHABLE else Status.FAILED
    return Failure(status, broken.message, broken.task, broken.tail)


def failure_of(error: Exception, doing: str) -> Failure:
    """Return the failure of the node that ``error`` is about; ``doing`` is such as "planning n1".

    An unexpected exception is reported as a bug, and its traceback is logged.
    """
    if isinstance(error, CanceledError):
        return Failure(Status.CANCELED, AGAIN)
    if isinstance(error, GrapnelError):
        return Failure(Status.FAILED, error.message)
    _LOG.debug("a bug while %s", doing, exc_info=error)
    return Failure(Status.FAILED, describe_bug(error, doing))
