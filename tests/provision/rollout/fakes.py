"""A cluster and nodes in memory: what is written, evicted and carried out really changes them."""

from __future__ import annotations

import contextlib
import itertools
import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from provision.apply.model import Failure, NodeResult, Status
from provision.rollout.adapters import Adapters
from provision.rollout.decision.policy import DrainPolicy
from provision.rollout.decision.snapshot import Holder, NodeState
from provision.rollout.engine import Engine
from provision.rollout.errors import ConflictError, HeldError
from provision.rollout.interface.cluster import Eviction, EvictionOutcome, NodeProblem, OneByOne
from provision.rollout.model import GpuPod, NodeView, Phase, Record
from provision.rollout.step import StepOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from provision.apply.model import Observer
    from provision.rollout.decision.policy import Policy
    from provision.rollout.errors import ClusterError
    from provision.rollout.interface.node_marks import MarkChange, NodeMarks
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.progress import RolloutObserver
    from provision.rollout.interface.standing import Standing
    from provision.rollout.model import Origin

OLD, NEW = "535.261.03", "535.309.01"
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
CALM: Callable[[str], None] = lambda _what: None  # noqa: E731 - an effect that nothing disturbs


class KilledError(BaseException):
    """The process ends here."""


def killed_at(number: int) -> Callable[[str], None]:
    """Return an effect that ends the process before the effect of that number, from 0."""
    count = itertools.count()

    def effect(what: str) -> None:
        if next(count) == number:
            raise KilledError(what)

    return effect


def pod(name: str, **more: object) -> GpuPod:
    fields = {"is_terminating": False, "is_mirror_or_daemon": False, "controller": "ReplicaSet/web", **more}
    return GpuPod(namespace="shop", name=name, uid=f"uid-{name}", **fields)  # type: ignore[arg-type]  # fields by name


def view(name: str, record: Record | None = None, **more: object) -> NodeView:
    is_out = record is not None and not record.phase.is_in_service
    fields = {"is_cordoned": is_out, "is_ready": True, **more}
    return NodeView(name=name, record=record, **fields)  # type: ignore[arg-type]  # fields of the view, by name


def record(phase: Phase, **more: object) -> Record:
    fields = {"target": NEW, "origin": OLD, "began": NOON, "since": NOON, **more}
    if phase is Phase.ROLLBACK:
        fields = {"is_returning": True, "failed_in": Phase.VERIFY, "reason": "3 of 4 GPUs answer", **fields}
    return Record(phase=phase, **fields)  # type: ignore[arg-type]  # fields of the record, by name


def state(name: str, seen: NodeView | None = None, **more: object) -> NodeState:
    """Return a node that has to go from OLD to NEW."""
    fields = {"target": NEW, "origin": OLD, "drain": DrainPolicy(), "is_disruptive": True, **more}
    return NodeState(view=seen or view(name), **fields)  # type: ignore[arg-type]  # fields of the state, by name


@dataclass
class FakeNode:
    """One machine and its Node object. Evicted pods leave after ``pods_stay`` looks at the cluster."""

    record: Record | None = None
    is_cordoned: bool = False
    is_ready: bool = True
    is_skipped: bool = False
    pods: list[GpuPod] = field(default_factory=list)
    problem: str = ""
    driver: str = OLD
    is_released: bool = False
    held_for: int = 0  # how many releases still find a process
    hidden: list[GpuPod] = field(default_factory=list)  # pods that hold a GPU without having asked for one
    broken: Phase | None = None
    ailment: str = ""
    broken_back: Phase | None = None  # a phase of the way back
    touched: list[Phase] = field(default_factory=list)


@dataclass
class FakeCluster(OneByOne):
    """Node state as an API server keeps it. ``effect`` is called before every change, and may refuse it."""

    nodes: dict[str, FakeNode]
    budget: int = 99  # how many more evictions are allowed
    effect: Callable[[str], None] = CALM
    on_observe: Callable[[], None] = lambda: None
    name: str = "cluster test"
    writes: list[tuple[str, Phase, bool | None]] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    is_held: bool = False
    most_out: int = 0
    published: list[Standing] = field(default_factory=list)
    pause: Pause | None = None
    needed: dict[str, str] = field(default_factory=dict)  # why RuntimeClasses have to stay
    marks: dict[str, MarkChange] = field(default_factory=dict)  # what would be taken off Nodes
    claims: set[str] = field(default_factory=set)  # nodes that a controller says to be as declared

    def observe(self, nodes: Collection[str]) -> dict[str, NodeView | NodeProblem]:
        self.on_observe()
        answer = {name: self._see(name) for name in nodes}
        for node in self.nodes.values():
            node.pods = [each for each in node.pods if not each.is_terminating]
            node.hidden = [each for each in node.hidden if not each.is_terminating]
        return answer

    def _see(self, name: str) -> NodeView | NodeProblem:
        node = self.nodes[name]
        if node.problem:
            return NodeProblem(name=name, message=node.problem, hint="--no-cluster")
        return NodeView(
            name=name,
            record=node.record,
            is_cordoned=node.is_cordoned,
            is_ready=node.is_ready,
            is_skipped=node.is_skipped,
            gpu_pods=tuple(node.pods),
            ailment=node.ailment,
        )

    def write(self, node: str, record: Record | None, *, cordoned: bool | None = None) -> None:
        self.effect(f"write {node} {record.phase if record else 'nothing'}")
        found = self.nodes[node]
        if found.problem:
            raise ConflictError(f"{node} is gone")
        found.record = record
        found.is_cordoned = found.is_cordoned if cordoned is None else cordoned
        if record is not None:
            self.writes.append((node, record.phase, cordoned))
        out = [each for each in self.nodes.values() if each.record and not each.record.phase.is_in_service]
        self.most_out = max(self.most_out, len(out))

    def find_pods(self, node: str, uids: Collection[str]) -> tuple[GpuPod, ...]:
        return tuple(pod for pod in self.nodes[node].hidden if pod.uid in uids)

    def evict(self, pod: GpuPod) -> Eviction:
        self.effect(f"evict {pod}")
        for pods in (pods for node in self.nodes.values() for pods in (node.pods, node.hidden)):
            for index, each in enumerate(pods):
                if each.uid == pod.uid:
                    if not self.budget:
                        return Eviction(outcome=EvictionOutcome.BLOCKED, reason="budget web allows no more")
                    self.budget -= 1
                    self.evicted.append(pod.name)
                    pods[index] = replace(each, is_terminating=True)
                    return Eviction(outcome=EvictionOutcome.EVICTED)
        return Eviction(outcome=EvictionOutcome.GONE)

    def has_runtime_class(self, name: str, handler: str) -> bool:
        assert name == handler
        return name in self.classes

    def ensure_runtime_class(self, name: str, handler: str) -> bool:
        self.effect(f"class {name} {handler}")
        if name in self.classes:
            return False
        self.classes.append(name)
        return True

    def why_runtime_class_stays(self, name: str) -> str | None:
        return self.needed.get(name, "") if name in self.classes else None

    def remove_runtime_class(self, name: str) -> str:
        self.effect(f"no class {name}")
        if not (reason := self.needed.get(name, "")):
            self.classes.remove(name)
        return reason

    def withdraw_claims(self, nodes: Collection[str]) -> None:
        for name in self.claims.intersection(nodes):
            self.effect(f"withdraw {name}")
            self.claims.discard(name)

    def compare_marks(self, wanted: Mapping[str, NodeMarks]) -> dict[str, MarkChange]:
        return {name: self.marks[name] for name, marks in wanted.items() if name in self.marks and not marks}

    def set_marks(self, wanted: Mapping[str, NodeMarks]) -> dict[str, ClusterError]:
        for name in wanted:
            self.effect(f"marks {name}")
            del self.marks[name]
        return {}

    def paused(self) -> Pause | None:
        return self.pause

    def check_lease(self) -> None:
        pass

    def publish(self, standing: Standing) -> None:
        if not self.published or self.published[-1] != standing:
            self.published.append(standing)

    @contextlib.contextmanager
    def lease(self, holder: str) -> Iterator[None]:
        assert holder
        if self.is_held:
            raise HeldError("somebody else is at work")
        self.is_held = True
        try:
            yield
        finally:
            self.is_held = False


@dataclass
class FakeSteps:
    """Steps that change the fake nodes."""

    cluster: FakeCluster
    effect: Callable[[str], None] = CALM
    is_cut: Callable[[str, Phase], bool] = lambda _node, _phase: False  # nobody can reach the node
    meet: Callable[[str, Phase, threading.Event], None] = lambda _node, _phase, _cancel: None

    def run(
        self, node: str, phase: Phase, observe: Observer, cancel: threading.Event, back: Origin | None = None
    ) -> StepOutcome:
        del observe
        self.effect(f"{phase} {node}")
        found = self.cluster.nodes[node]
        assert found.record is not None, "a step without a record cannot be gone on with"
        assert found.record.phase is phase, "the record names the phase before anything is done"
        assert found.record.way_back == back, "whoever is on the way back is told so"
        found.touched.append(phase)
        self.meet(node, phase, cancel)
        if cancel.is_set():
            return StepOutcome(failure=Failure(Status.CANCELED, "apply again to finish"))
        if self.is_cut(node, phase):
            return StepOutcome(failure=Failure(Status.UNREACHABLE, f"no route to {node}"))
        if phase is (found.broken if back is None else found.broken_back):
            return StepOutcome(failure=Failure(Status.FAILED, f"{phase} is broken", "the task", ("E: broken",)))
        if phase is Phase.ROLLBACK:
            return self._roll_back(found)
        if phase is Phase.VERIFY and found.driver != (found.record.target if back is None else back.version):
            return StepOutcome(failure=Failure(Status.FAILED, f"driver {found.driver} is not as expected"))
        if phase is Phase.RELEASE:
            found.is_released = True
            found.held_for -= 1
            hidden = tuple(Holder(pid=8, command="smi", pod_uid=pod.uid) for pod in found.hidden)
            return StepOutcome(holders=(Holder(pid=7, command="train"), *hidden) if found.held_for >= 0 else hidden)
        if phase is Phase.SWAP:
            assert found.is_released
            assert not [each for each in found.pods if not each.is_mirror_or_daemon], "work was lost"
            found.driver = found.record.target
            return StepOutcome(swapped=NodeResult(node, Status.CONVERGED, 1, 11))
        if phase is Phase.RESUME:
            found.is_released = False
        return StepOutcome()

    @staticmethod
    def _roll_back(found: FakeNode) -> StepOutcome:
        assert found.record is not None
        if found.driver != found.record.origin:
            found.is_released = True
            assert not [each for each in found.pods if not each.is_mirror_or_daemon], "work was lost"
            found.driver = found.record.origin
        return StepOutcome()


@dataclass
class Clock:
    """Every look at it costs some time, but none passes while a step runs: a slow machine fails no test."""

    now: datetime = NOON
    step: timedelta = timedelta(seconds=2)
    is_stopped: Callable[[], bool] = lambda: False

    def __call__(self) -> datetime:
        if not self.is_stopped():
            self.now += self.step
        return self.now


def make_engine(
    cluster: FakeCluster,
    steps: FakeSteps,
    nodes: list[NodeState],
    policy: Policy,
    clock: Clock,
    *,
    observe: RolloutObserver = lambda _progress: None,
    cancel: threading.Event | None = None,
) -> Engine:
    """Return an engine that does not wait, and whose clock stands still while steps run."""
    adapters = Adapters(cluster=cluster, steps=steps, clock=clock, poll_s=0.0005)
    engine = Engine(adapters, nodes, policy, observe=observe, cancel=cancel or threading.Event())
    clock.is_stopped = lambda: any(node.is_busy for node in engine._nodes.values())
    return engine
