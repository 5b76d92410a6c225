"""One rollout over a real Slurm: everything but the steps on the nodes is what an apply has."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from provision.apply.model import Failure, NodeResult, Note, Status
from provision.cluster.local.cluster import LocalCluster
from provision.cluster.schedulers.cluster import ScheduledCluster
from provision.cluster.schedulers.program import Program
from provision.cluster.schedulers.slurm.client import LIMIT_BYTES, SlurmScheduler
from provision.rollout.adapters import Adapters
from provision.rollout.decision.policy import DrainPolicy, Policy
from provision.rollout.decision.snapshot import NodeState
from provision.rollout.engine import Engine
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.interface.progress import NodeWaits, PhaseEntered
from provision.rollout.model import NodeView, Origin, Phase
from provision.rollout.step import StepOutcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lab.slurm import SlurmMachine
    from provision.apply.model import Observer
    from provision.rollout.decision.outcome import RolloutResult
    from provision.rollout.interface.progress import RolloutProgress

OLD: Final = "535.261.03"
NEW: Final = "550.163.01"
TIMEOUT_S: Final = 60.0


@dataclass
class Steps:
    """Steps of nodes that are only there in Slurm; a swap makes sure that Slurm gives the node no work."""

    slurm: SlurmMachine
    names: dict[str, str]
    done: list[tuple[str, Phase]] = field(default_factory=list)
    broken: tuple[Phase, ...] = ()
    also: Callable[[str, Phase], None] = lambda _node, _phase: None

    def run(
        self, node: str, phase: Phase, observe: Observer, cancel: threading.Event, back: Origin | None = None
    ) -> StepOutcome:
        """Do what the phase is about."""
        del observe, cancel, back
        if phase is Phase.SWAP:
            assert self.slurm.states(self.names[node]) >= {"IDLE", "DRAIN"}, "a job may be on it"
        self.done.append((node, phase))
        self.also(node, phase)
        if phase in self.broken:
            return StepOutcome(failure=Failure(Status.FAILED, f"{phase} is broken"))
        return StepOutcome(swapped=NodeResult(node, Status.CONVERGED) if phase is Phase.SWAP else None)


def connect(
    slurm: SlurmMachine, state_file: Path, *, reservation: str = "", registers: timedelta = timedelta(0)
) -> ScheduledCluster:
    """Return what an apply with scheduler.slurm opens; most steps of these tests do not start a slurmd again."""
    program = Program(timeout_s=20.0, limit_bytes=LIMIT_BYTES, environ=os.environ)
    scheduler = SlurmScheduler(program, slurm.prefix, {}, reservation=reservation)
    return ScheduledCluster(LocalCluster(state_file), scheduler, registers=registers)


@dataclass
class Rollout:
    """One engine at work, on a thread of its own."""

    cluster: ScheduledCluster
    steps: Steps
    nodes: tuple[str, ...]
    policy: Policy = field(default_factory=lambda: Policy(max_unavailable=9, max_parallel=9))
    seen: list[RolloutProgress] = field(default_factory=list)
    ended: list[RolloutResult] = field(default_factory=list)
    told: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for(self, is_so: Callable[[RolloutProgress], bool]) -> None:
        """Wait until the engine has told something."""
        with self.told:
            assert self.told.wait_for(lambda: any(map(is_so, self.seen)) or bool(self.ended), TIMEOUT_S), self.seen
            assert any(map(is_so, self.seen)), (self.seen, self.ended)

    def waits(self, node: str, words: str) -> None:
        """Wait until a node waits for something."""
        self.wait_for(lambda one: isinstance(one, NodeWaits) and one.node == node and words in one.reason)

    def notes(self, words: str) -> None:
        """Wait until the engine says something that is about no node."""
        self.wait_for(lambda one: isinstance(one, Note) and words in one.text)

    def end(self) -> RolloutResult:
        """Wait until it is over."""
        self._thread.join(TIMEOUT_S)
        assert self.ended, self.seen
        return self.ended[0]

    def phases(self, node: str) -> list[Phase]:
        """Return the phases that a node has entered."""
        return [one.phase for one in self.seen if isinstance(one, PhaseEntered) and one.node == node]

    def _run(self) -> None:
        views = self.cluster.observe(self.nodes)
        states = [_state(view) for view in views.values()]
        adapters = Adapters(cluster=self.cluster, steps=self.steps, poll_s=0.2)
        engine = Engine(adapters, states, self.policy, observe=self._tell, cancel=threading.Event())
        with self.cluster.lease("ada@laptop"):
            result = engine.run()
        with self.told:
            self.ended.append(result)
            self.told.notify_all()

    def _tell(self, one: RolloutProgress) -> None:
        with self.told:
            self.seen.append(one)
            self.told.notify_all()


def _state(view: NodeView | NodeProblem) -> NodeState:
    assert not isinstance(view, NodeProblem), view
    return NodeState(
        view=view,
        target=NEW,
        origin=OLD,
        drain=DrainPolicy(waits=True),
        is_disruptive=view.record is None or view.record.phase is not Phase.DONE,
    )
