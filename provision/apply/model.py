"""Defines what happens to nodes during plan and apply, as values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import threading

    from provision.apply.runner import CutOff, Event, RunRequest, TaskDone, TaskStarted
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.node_plan import NodePlan


class PlaybookRunner(Protocol):
    """Runs playbooks: ``provision.apply.runner.AnsibleRunner``, or a scripted one in tests."""

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        """Yield the events of a run, the last of them ``RunFinished``."""


class Status(Enum):
    """What became of a node, the best first."""

    UNCHANGED = "unchanged"  # was as declared: nothing was run
    CONVERGED = "converged"  # was changed, and is now as declared
    STAGED = "staged"  # its driver, its engine are ready to be exchanged; nothing that runs was changed
    RETURNED = "returned"  # has the driver again that was there before
    REMOVED = "removed"  # its driver was taken away
    REBOOTED = "rebooted"  # is in another boot, with the driver and the GPUs that it had
    SKIPPED = "skipped"  # would be taken out of service, and somebody wants it left alone: not touched
    CHECKED = "checked"  # check mode: the roles said what they would do
    UNFINISHED = "unfinished"  # was applied, and its plan is still not empty
    WAITING = "waiting"  # has to be taken out of service, and its turn has not come: not touched
    REFUSED = "refused"  # its plan has problems, or would disturb work: not touched
    CANCELED = "canceled"
    FAILED = "failed"
    UNREACHABLE = "unreachable"

    @property
    def is_good(self) -> bool:
        """Whether a node with it, and without a failure, is where the caller wanted it."""
        return self in _GOOD


_GOOD = frozenset(
    {
        Status.UNCHANGED,
        Status.CONVERGED,
        Status.STAGED,
        Status.RETURNED,
        Status.REMOVED,
        Status.REBOOTED,
        Status.SKIPPED,
        Status.CHECKED,
    }
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a node could not be asked or changed: the task, one line, and the end of what it printed."""

    status: Status
    message: str
    task: str = ""
    tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A node's way through the rollout: driver versions, and how long it has been out of service."""

    origin: str
    target: str
    out_of_service_s: float
    is_out: bool = False


@dataclass(frozen=True, slots=True)
class NodeResult:
    """What became of one node. ``passes`` counts runs that were allowed to change it, ``changes`` items of its plan.

    With a ``failure`` it is not where it should be, whatever the status. ``upgrade`` is there when the node was taken
    out of service, ``verification`` is the node daemon's last answer (``docs/contracts/expectation``, JSON) when the
    driver was verified. ``note`` is one line about a good result.
    """

    node: str
    status: Status
    passes: int = 0
    changes: int = 0
    failure: Failure | None = None
    upgrade: Upgrade | None = None
    verification: bytes = b""
    note: str = ""

    @property
    def is_good(self) -> bool:
        """Whether the node is where the caller wanted it: not one whose new driver failed."""
        return self.status.is_good and self.failure is None


@dataclass(frozen=True, slots=True)
class Assessment:
    """A node's facts and the plan that follows from them.

    With an ``expectation`` (``docs/contracts/expectation``) the driver is verified when the plan is applied.
    ``is_out_of_service``: nobody can be given one of its GPUs meanwhile.
    """

    facts: NodeFacts
    plan: NodePlan
    expectation: Mapping[str, object] | None = None
    is_out_of_service: bool = False


@dataclass(frozen=True, slots=True)
class PassStarted:
    """A node's plan is about to be applied, for the first or a further time."""

    node: str
    number: int
    items: int


@dataclass(frozen=True, slots=True)
class Staging:
    """A driver, an engine or both (``what``) are about to be staged on a node in use, or (``is_done``) are now."""

    node: str
    what: str = "driver"
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class NodeTask:
    """A task began or ended on a node. ``gathering`` says that it only gathers facts."""

    event: TaskStarted | TaskDone
    gathering: bool


@dataclass(frozen=True, slots=True)
class NodeFinished:
    """Nothing more will be done about a node."""

    result: NodeResult


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a reader of the progress wants to know; ``node`` is empty when it is about all of them.

    With a ``reason``, a word as Kubernetes writes reasons, it is an Event of the node as well.
    """

    node: str
    text: str
    reason: str = ""


def told_of(cut: CutOff) -> Note:
    """Return what people are told where whatever carries a run out on a node was ended."""
    return Note(cut.node, cut.message, reason="JobCutOff")


Progress = PassStarted | Staging | NodeTask | NodeFinished | Note
Observer = Callable[[Progress], None]
