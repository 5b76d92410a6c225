"""Says what became of a driver change on a node, whatever became of those who had asked for it.

A change is carried out by a program on the node, in a unit of its own, which writes down what it does. What called it
may end at any moment: a Job or its pod, an ansible-playbook, a connection. So the node is asked, and only what the
program has written down at its end counts as its word.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from provision.apply.follow import failure_of, follow
from provision.apply.gather import gather_facts
from provision.apply.model import Failure, Status

if TYPE_CHECKING:
    import threading

    from provision.apply.context import ApplyContext
    from provision.apply.model import Observer
    from provision.declaration.fleet.facts.driver import DriverRun
    from provision.declaration.fleet.facts.node import NodeFacts

TRIES: Final = 2  # of what fails beside the program: it may have been ended, and is at fault where that happens again
GONE_BACK: Final = ("done", "returned")  # of a way back: one from a swap that was cut short is that swap's own
_HINTS: Final = {
    "failed": "nothing was changed",
    "returned": "the node has its former driver again",
    "quarantined": "the node is between two drivers",
}


def is_running(facts: NodeFacts) -> bool:
    """Tell whether the program has not come to its end: it is at work, or was killed."""
    run = facts.driver.run
    return run is not None and run.state == "running"


def wait_for_program(context: ApplyContext, node: str, observe: Observer, cancel: threading.Event) -> Failure | None:
    """Wait until the program is not at work on the node; return why that cannot be known."""
    failure = follow(context.runner, context.playbooks.wait_for_driver(node), observe, cancel).failure
    return None if failure is None else unheard(failure)


def settled_facts(context: ApplyContext, node: str, observe: Observer, cancel: threading.Event) -> NodeFacts | Failure:
    """Return the facts of a node once its program is not at work; contacts no package source."""
    facts = _facts(context, node, observe, cancel)
    if isinstance(facts, Failure) or not is_running(facts):
        return facts
    return wait_for_program(context, node, observe, cancel) or _facts(context, node, observe, cancel)


def _facts(context: ApplyContext, node: str, observe: Observer, cancel: threading.Event) -> NodeFacts | Failure:
    request = replace(context.playbooks, offline=True).facts([node])
    try:
        facts = gather_facts(context.runner, request, observe, cancel)[node]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is about this node
        facts = failure_of(error, f"gathering facts of {node}")
    return unheard(facts) if isinstance(facts, Failure) else facts


def unheard(failure: Failure) -> Failure:
    """Return a failure that says nothing of the driver as one of a node that could not be asked: it is asked again."""
    return failure if failure.status is Status.CANCELED else replace(failure, status=Status.UNREACHABLE)


def verdict(
    before: DriverRun | None, now: DriverRun | None, said: Failure | None = None, *, good: tuple[str, ...] = ("done",)
) -> Failure | None:
    """Return with what failure the program has ended since ``before``; None where it has not, or in a ``good`` state.

    ``said`` is the failure of who called it; where that has its reason, it is returned.
    """
    if now is None or now.is_open or now.state in good or is_same(before, now):
        return None
    reason = now.reason or "it gives no reason"
    if said is not None and reason in said.message:
        return said
    return Failure(
        Status.FAILED, f"the driver's {now.verb or 'swap'} ended {now.state}: {reason} ({_HINTS[now.state]})"
    )


def last_word(facts: NodeFacts, said: Failure) -> Failure:
    """Return the failure of what has failed again: it counts, unless the program was killed and is to go on."""
    return unheard(said) if is_running(facts) else said


def is_same(before: DriverRun | None, now: DriverRun | None) -> bool:
    """Tell whether the program has written nothing of a run since."""
    if before is None or now is None:
        return before is now
    return (before.run, before.state, before.reason) == (now.run, now.state, now.reason)
