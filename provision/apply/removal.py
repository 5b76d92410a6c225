"""Asks nodes what `grapnel remove` would take away and give back on them, and reads what they answer."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from provision.apply.errors import CanceledError, RunError
from provision.apply.follow import ToldRun
from provision.apply.gather import SILENT
from provision.apply.model import Failure, Status
from provision.apply.playbooks import FORESEEN_RESULT, REMOVAL_RESULT
from provision.apply.runner import RunStatus, TaskDone, TaskOutcome
from provision.base import strict_json
from provision.base.printable import printable
from provision.base.strict_json import MalformedError

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from provision.apply.model import Observer, PlaybookRunner
    from provision.apply.runner import RunRequest

_LIMIT_BYTES: Final = 1 << 20
_LONGEST: Final = 1000
_Text = Annotated[str, Meta(max_length=4096)]
_RESULTS: Final = (FORESEEN_RESULT, REMOVAL_RESULT)
_REMOVE: Final = "remove"
_OF_FILES: Final = (_REMOVE, "restore")


class Part(StrEnum):
    """What can be taken away by itself."""

    DRIVER = "driver"
    RUNTIME = "runtime"
    DAEMON = "daemon"
    HOOK = "hook"
    NODE = "node"


ALL_PARTS: Final = frozenset(Part)


class RemovalStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that is done on a node (docs/contracts/removal)."""

    part: Part
    action: _Text
    target: _Text
    reason: _Text

    def __post_init__(self) -> None:
        for name in ("action", "target", "reason"):
            msgspec.structs.force_setattr(self, name, printable(getattr(self, name), limit=_LONGEST))


class NodeRemoval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of a node. ``notes`` say what cannot be given back; with ``problems`` nothing is begun."""

    steps: Annotated[tuple[RemovalStep, ...], Meta(max_length=4096)] = ()
    notes: Annotated[tuple[_Text, ...], Meta(max_length=256)] = ()
    problems: Annotated[tuple[_Text, ...], Meta(max_length=256)] = ()

    def __post_init__(self) -> None:
        for name in ("notes", "problems"):
            lines = tuple(printable(line, limit=_LONGEST) for line in getattr(self, name))
            msgspec.structs.force_setattr(self, name, lines)


_NOTHING: Final = NodeRemoval()


def parse_removal(data: bytes) -> NodeRemoval | Failure:
    """Return what a node answered, or why it is not believed."""
    try:
        return strict_json.decode(data, NodeRemoval, limit_bytes=_LIMIT_BYTES)
    except MalformedError as error:
        return Failure(Status.FAILED, f"its answer about a removal cannot be read: {error}")


def gather_removals(
    runner: PlaybookRunner, request: RunRequest, observe: Observer, cancel: threading.Event
) -> Mapping[str, NodeRemoval | Failure]:
    """Return what would be done on every node of the request, or the node's failure; nothing is changed.

    Raises RunError when Ansible could not run at all, CanceledError when it was interrupted.
    """
    answers: dict[str, NodeRemoval | Failure] = {}
    run = ToldRun(runner, request, observe, gathering=True)
    for event in run.tasks(cancel):
        if isinstance(event, TaskDone) and (answer := _answer(event)) is not None:
            answers[event.node] = together(answers.get(event.node, _NOTHING), answer)
    end = run.end
    if end.status is RunStatus.CANCELED:
        raise CanceledError("canceled while looking at nodes", hint="nothing was changed")
    if end.status in {RunStatus.ERROR, RunStatus.NO_NODES}:
        raise RunError(f"ansible could not look at the nodes: {end.message}")
    silent = Failure(Status.FAILED, end.message if end.status is RunStatus.TIMED_OUT else SILENT)
    return {node: answers.get(node, silent) for node in request.nodes}


def together(first: NodeRemoval | Failure, then: NodeRemoval | Failure) -> NodeRemoval | Failure:
    """Return what becomes of a node on which one is done and then the other; what the first takes away is gone."""
    if isinstance(first, Failure) or isinstance(then, Failure):
        return first if isinstance(first, Failure) else then
    gone = {step.target for step in first.steps if step.action == _REMOVE}
    left = tuple(step for step in then.steps if step.target not in gone or step.action not in _OF_FILES)
    return NodeRemoval(
        steps=(*first.steps, *left), notes=(*first.notes, *then.notes), problems=(*first.problems, *then.problems)
    )


def _answer(done: TaskDone) -> NodeRemoval | Failure | None:
    if done.outcome is TaskOutcome.UNREACHABLE:
        return Failure(Status.UNREACHABLE, done.message)
    if done.outcome is TaskOutcome.FAILED and not done.ignored:
        return Failure(Status.FAILED, done.message, done.task, done.tail)
    return next((parse_removal(done.values[name]) for name in _RESULTS if name in done.values), None)
