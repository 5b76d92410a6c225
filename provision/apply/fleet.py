"""Applies to many nodes at once: each on a thread of its own, with one thread that reports progress."""

from __future__ import annotations

import queue
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from provision.apply.converge import converge, stage
from provision.apply.gate import find_obstacle
from provision.apply.model import Assessment, Failure, NodeFinished, NodeResult, Progress, Status

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping

    from provision.apply.context import ApplyContext
    from provision.apply.model import Observer


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Ended(Generic[Result]):
    node: str
    future: Future[Result]


def settled(node: str, answer: Assessment | Failure) -> NodeResult | None:
    """Return the result of a node that is left alone, None for one that is to be changed."""
    if isinstance(answer, Failure):
        return NodeResult(node, answer.status, failure=answer)
    refusal = find_obstacle(answer.plan)
    if refusal is not None:
        return NodeResult(node, Status.REFUSED, failure=refusal)
    return NodeResult(node, Status.UNCHANGED) if answer.plan.is_empty else None


def apply_all(
    context: ApplyContext,
    answers: Mapping[str, Assessment | Failure],
    observe: Observer,
    *,
    parallel: int,
    cancel: threading.Event,
) -> tuple[NodeResult, ...]:
    """Converge the nodes that need it, ``parallel`` at once; return every node's result in the given order.

    ``observe`` is called on this thread only; what it raises ends the apply. When ``cancel`` is set, running nodes are
    ended and no other begins.
    """
    results = {node: result for node, answer in answers.items() if (result := settled(node, answer))}
    todo = {
        node: partial(converge, context, node, answer)
        for node, answer in answers.items()
        if isinstance(answer, Assessment) and node not in results
    }
    for node, result in run_each(todo, observe, parallel=parallel, cancel=cancel):
        results[node] = result
        observe(NodeFinished(result))
    return tuple(results[node] for node in answers)


def stage_all(
    context: ApplyContext,
    answers: Mapping[str, Assessment],
    observe: Observer,
    *,
    parallel: int,
    cancel: threading.Event,
) -> dict[str, Assessment | Failure]:
    """Stage the drivers of nodes, ``parallel`` at once; return what each is then, or why it could not be done."""
    todo = {node: partial(stage, context, node, answer) for node, answer in answers.items()}
    return dict(run_each(todo, observe, parallel=parallel, cancel=cancel))


def run_each(
    todo: Mapping[str, Callable[[Observer, threading.Event], Result]],
    observe: Observer,
    *,
    parallel: int,
    cancel: threading.Event,
) -> Iterator[tuple[str, Result]]:
    """Do something on each node, ``parallel`` at once, and yield the results as they come; ``cancel`` ends them."""
    events: queue.SimpleQueue[Progress | _Ended[Result]] = queue.SimpleQueue()

    def work(node: str) -> None:
        done: Future[Result] = Future()
        try:
            done.set_result(todo[node](events.put, cancel))
        except BaseException as error:  # noqa: BLE001 - raised again on the caller's thread
            done.set_exception(error)
        events.put(_Ended(node, done))

    with ThreadPoolExecutor(max_workers=parallel, thread_name_prefix="node") as pool:
        for node in todo:
            pool.submit(work, node)
        running = len(todo)
        try:
            while running:
                event = events.get()
                if isinstance(event, _Ended):
                    running -= 1
                    yield event.node, event.future.result()
                else:
                    observe(event)
        except BaseException:
            cancel.set()  # leaving the pool waits for its threads
            raise
