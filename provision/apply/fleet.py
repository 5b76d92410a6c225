"""Applies to many nodes at once: each on a thread of its own, with one thread that reports progress."""

from __future__ import annotations

import queue
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from provision.apply.converge import converge
from provision.apply.gate import find_obstacle
from provision.apply.model import Assessment, Failure, NodeFinished, NodeResult, Progress, Status

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from provision.apply.context import ApplyContext
    from provision.apply.model import Observer


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
    events: queue.SimpleQueue[Progress | Future[NodeResult]] = queue.SimpleQueue()
    with ThreadPoolExecutor(max_workers=parallel, thread_name_prefix="node") as pool:
        futures = [
            pool.submit(converge, context, node, answer, events.put, cancel)
            for node, answer in answers.items()
            if isinstance(answer, Assessment) and node not in results
        ]
        for future in futures:
            future.add_done_callback(events.put)
        try:
            for result in _drain(events, observe, len(futures)):
                results[result.node] = result
        except BaseException:
            cancel.set()  # leaving the pool waits for its threads
            raise
    return tuple(results[node] for node in answers)


def _drain(
    events: queue.SimpleQueue[Progress | Future[NodeResult]], observe: Observer, running: int
) -> list[NodeResult]:
    results: list[NodeResult] = []
    while len(results) < running:
        event = events.get()
        if isinstance(event, Future):
            results.append(event.result())
            observe(NodeFinished(results[-1]))
        else:
            observe(event)
    return results
