"""Names what a rollout acts through: cluster, nodes, time. Without a rollout the engine itself is not needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from provision.rollout.interface.gates import NO_GATES
from provision.rollout.interface.instructions import Instructions
from provision.rollout.steps.executor import ThreadExecutor

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.interface.cluster import Cluster
    from provision.rollout.interface.gates import Gates
    from provision.rollout.interface.standing import Standing
    from provision.rollout.step import Steps
    from provision.rollout.steps.executor import Executor

POLL_S: Final = 2.0


def utc_now() -> datetime:
    """Return the time in UTC, with its zone."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """What the engine acts through; it observes again after ``poll_s`` at the latest.

    ``executor`` makes what runs ``steps``, at most so many at once, until the event is set; it and ``clock`` have the
    same time. ``publish`` hears how the rollout stands after every turn, beside the cluster; it must not block.
    ``instructions`` are what the engine is told meanwhile.
    """

    cluster: Cluster
    steps: Steps
    clock: Callable[[], datetime] = utc_now
    poll_s: float = POLL_S
    executor: Callable[[Steps, threading.Event, int], Executor] = ThreadExecutor
    publish: Callable[[Standing, Sequence[NodeState]], None] = lambda _standing, _nodes: None
    gates: Gates = NO_GATES
    instructions: Instructions = field(default_factory=Instructions)
