"""Gathers the facts of nodes in one run: the facts of each, or why there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.apply.errors import CanceledError, RunError
from provision.apply.follow import ToldRun
from provision.apply.model import Failure, Status
from provision.apply.runner import RunFinished, RunStatus, TaskDone, TaskOutcome
from provision.declaration.fleet.errors import FactsError
from provision.declaration.fleet.facts.node import NodeFacts, parse_facts

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from provision.apply.model import Observer, PlaybookRunner
    from provision.apply.runner import RunRequest

RESULT = "facts"
WITHOUT_FACTS = "its answer has no facts"
SILENT = "ansible returned nothing for it: is it still in the inventory?"


def gather_facts(
    runner: PlaybookRunner, request: RunRequest, observe: Observer, cancel: threading.Event
) -> Mapping[str, NodeFacts | Failure]:
    """Return the facts of every node of the request, in its order, or the node's failure.

    Raises RunError when Ansible could not run at all, CanceledError when it was interrupted.
    """
    answers: dict[str, NodeFacts | Failure] = {}
    run = ToldRun(runner, request, observe, gathering=True)
    for event in run.tasks(cancel):
        if isinstance(event, TaskDone):
            answer = _answer(event)
            if answer is not None:
                answers[event.node] = answer
            elif event.outcome is not TaskOutcome.FAILED:
                answers.setdefault(event.node, Failure(Status.FAILED, WITHOUT_FACTS, event.task))
    _raise_for(run.end)
    silent = Failure(Status.FAILED, run.end.message if run.end.status is RunStatus.TIMED_OUT else SILENT)
    return {node: answers.get(node, silent) for node in request.nodes}


def _answer(done: TaskDone) -> NodeFacts | Failure | None:
    if done.outcome is TaskOutcome.UNREACHABLE:
        return Failure(Status.UNREACHABLE, done.message)
    if done.outcome is TaskOutcome.FAILED and not done.ignored:
        return Failure(Status.FAILED, done.message, done.task, done.tail)
    return facts_in(done.values, done.node, done.task)


def facts_in(values: Mapping[str, bytes], node: str, task: str = "") -> NodeFacts | Failure | None:
    """Return the facts among what a run returned about a node, None when there are none."""
    if RESULT not in values:
        return None
    try:
        return parse_facts(values[RESULT], node=node)
    except FactsError as error:
        return Failure(Status.FAILED, error.message, task)


def _raise_for(end: RunFinished) -> None:
    if end.status is RunStatus.CANCELED:
        raise CanceledError("canceled while gathering facts", hint="nothing was changed")
    if end.status is RunStatus.ERROR:
        raise RunError(f"ansible could not gather facts: {end.message}")
    if end.status is RunStatus.NO_NODES:
        raise RunError(
            f"ansible finds none of the nodes: {end.message or 'no play matches them'}",
            hint="compare with: ansible-inventory --graph",
        )
