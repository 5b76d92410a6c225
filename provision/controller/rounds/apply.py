"""Carries out one round: an apply of the nodes of one stack that are due, through the engine of `grapnel apply`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from provision.apply.context import ApplyContext
from provision.apply.converge import assess, converge
from provision.apply.declarations import Declarations
from provision.apply.fleet import apply_all, run_each, settled
from provision.apply.gate import find_obstacle, needs_staging, needs_turn
from provision.apply.model import Assessment, Failure, NodeFinished, NodeResult, Status
from provision.apply.planner_process.bounded import BoundedPlanner
from provision.apply.playbooks import Playbooks
from provision.apply.runner import RunFinished, RunStatus
from provision.base.errors import GrapnelError
from provision.planning.planner.bundled import declared_bundle
from provision.planning.render.kubelet import declared_settings
from provision.report.notify.listeners import Listeners
from provision.rollout.adapters import Adapters
from provision.rollout.decision.prepare import only_in_flight, prepare, runtime_classes
from provision.rollout.errors import ClusterError
from provision.rollout.execution import Job, execute
from provision.rollout.gates import GateKeeper
from provision.rollout.interface.instructions import Instructions
from provision.rollout.interface.node_marks import declared_marks
from provision.rollout.model import BEFORE_SWAP
from provision.rollout.steps.interface_steps import apply_steps
from provision.rollout.steps.node_steps import NodeSteps

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from provision.apply.context import Planner
    from provision.apply.model import PlaybookRunner
    from provision.apply.runner import Event, RunRequest
    from provision.apply.supply.supply import Bundles
    from provision.cluster.kubernetes.cluster import KubernetesCluster
    from provision.controller.decision.choice import Order
    from provision.controller.nodes import SeenNode
    from provision.declaration.spec.model import StackSpec
    from provision.planning.supply.builds.shelf import Shelf
    from provision.planning.supply.payload.model import Payload
    from provision.rollout.decision.prepare import Prepared
    from provision.rollout.interface.cluster import Cluster
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.progress import RolloutObserver
    from provision.rollout.step import Steps

_CHANGES: Final = "apply"  # the playbook that changes a node where it stands
_STAGES: Final = "stage"  # the one that prepares it for a change


@contextmanager
def bounded_planner(declarations: Declarations, payload: Payload) -> Iterator[Planner]:
    """Plan in a process with limits, which ends with the round."""
    planner = BoundedPlanner(declarations, payload)
    try:
        yield planner
    finally:
        planner.worker.end()


def usual_adapters(cluster: Cluster, steps: Steps, gates: GateKeeper) -> Adapters:
    """Return what an engine acts through."""
    return Adapters(cluster=cluster, steps=steps, gates=gates)


class RuntimeClasses:
    """Makes the RuntimeClasses that are declared; what is there is not looked at again."""

    def __init__(self) -> None:
        self._there: set[str] = set()

    def missing(self, spec: StackSpec) -> list[str]:
        """Return the names of those that are not known to be there."""
        return [name for name in runtime_classes([spec]) if name not in self._there]

    def ensure(self, cluster: KubernetesCluster, names: Collection[str]) -> Iterator[ClusterError]:
        """Make them, each with the handler of its name; yield why one cannot be."""
        for name in names:
            try:
                cluster.ensure_runtime_class(name, name)
                self._there.add(name)
            except ClusterError as error:
                yield error


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What rounds act through.

    ``open_cluster`` opens the cluster for the declarations of a round. ``parallel`` is how many nodes are changed in
    place at once. ``shelf`` keeps modules that one node has built for others. ``adapt`` puts together what an engine
    acts through; benches have their own. ``listen`` opens those who are told of a rollout. ``keep`` is called before
    nodes are taken out of service, and keeps the stack until they are back; it raises ClusterError where that cannot
    be. ``withdraw`` takes back that a node is as declared, before something is changed on it; it raises ClusterError.
    """

    runner: PlaybookRunner
    collection: Path
    payload: Payload
    open_cluster: Callable[[Mapping[str, StackSpec]], KubernetesCluster]
    holder: str
    parallel: int
    planner: Callable[[Declarations, Payload], AbstractContextManager[Planner]] = bounded_planner
    bundles: Bundles | None = None
    shelf: Shelf | None = None
    adapt: Callable[[Cluster, Steps, GateKeeper], Adapters] = usual_adapters
    listen: Callable[[KubernetesCluster, Mapping[str, StackSpec]], Listeners] = lambda _cluster, _stacks: Listeners(())
    keep: Callable[[Order], None] = lambda _order: None
    withdraw: Callable[[str], None] = lambda _node: None
    runtime_classes: RuntimeClasses = field(default_factory=RuntimeClasses)


@dataclass(frozen=True, slots=True)
class HoldingRunner:
    """Applies and stages nothing further that is not wanted any more; what runs comes to its end.

    Before it applies a plan, ``withdraw`` takes back that the node is as declared.
    """

    runner: PlaybookRunner
    instructions: Instructions
    withdraw: Callable[[str], None]

    def run(self, request: RunRequest, cancel: threading.Event) -> Iterator[Event]:
        """Yield the events of a run, or that it was called off."""
        if reason := self._why_held(request):
            yield RunFinished(RunStatus.CANCELED, message=reason)
            return
        if request.playbook.stem == _CHANGES:
            try:
                for node in request.nodes:
                    self.withdraw(node)
            except ClusterError as error:
                yield RunFinished(RunStatus.ERROR, message=f"nothing was begun: {error.message}")
                return
        yield from self.runner.run(request, cancel)

    def _why_held(self, request: RunRequest) -> str:
        """Return why nothing is begun on the nodes of a request, empty where something is."""
        what, instructions = request.playbook.stem, self.instructions
        if what in (_CHANGES, _STAGES) and instructions.hand_over.is_set():
            return instructions.reason
        if what == _CHANGES:
            return next((why for name in request.nodes if (why := instructions.called_off.get(name))), "")
        return ""


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What became of the nodes of a round, and what else went wrong.

    ``stop`` is why no further node began, ``pause`` by whose word none was to begin from the outset.
    """

    results: tuple[NodeResult, ...]
    complaints: tuple[GrapnelError, ...] = ()
    stop: str = ""
    pause: Pause | None = None


def carry_out(
    dependencies: Dependencies,
    order: Order,
    observe: RolloutObserver,
    cancel: threading.Event,
    *,
    only_in_place: bool = False,
    instructions: Instructions | None = None,
) -> RoundResult:
    """Bring the due nodes of a stack to its declaration.

    The whole stack is looked at only where a node has to be taken out of service; with ``only_in_place`` such nodes are
    left to a later round, and the result of each says so. ``instructions`` hold for what is changed in place as well.
    Raises GrapnelError where nothing could be begun.
    """
    instructions = instructions or Instructions()
    with opened(dependencies, order) as context:
        holding = replace(context, runner=HoldingRunner(context.runner, instructions, dependencies.withdraw))
        made = _Round(dependencies, order, context, holding, observe, cancel, instructions)
        return made.carry_out(only_in_place=only_in_place)


@contextmanager
def opened(dependencies: Dependencies, order: Order) -> Iterator[ApplyContext]:
    """Open what the nodes of an order are looked at and planned with."""
    spec, due = order.stack.spec, order.due
    declarations = Declarations(dict.fromkeys(order.members, spec))
    kubelet = spec.node.kubelet
    playbooks = Playbooks(
        collection=dependencies.collection,
        inventory=(",".join(sorted(due)) + ",",),
        mig_nodes=frozenset(due if spec.mig.layout is not None else ()),
        kubelets=dict.fromkeys(due, kubelet.unit) if declared_settings(kubelet) else {},
        offline_nodes=frozenset(due if declared_bundle(spec.driver) is not None else ()),
        forks=dependencies.parallel,
    )
    with dependencies.planner(declarations, dependencies.payload) as plan:
        yield ApplyContext(
            runner=dependencies.runner,
            plan=plan,
            playbooks=playbooks,
            declarations=declarations,
            bundles=dependencies.bundles,
            shelf=dependencies.shelf,
        )


def needs_rollout(node: SeenNode, answer: Assessment | Failure) -> bool:
    """Tell whether a node has its turn in a rollout: it leaves service or changes over, or has, even if that failed.

    A plan with problems is refused, whatever else it has: no turn has to be waited for to be told so.
    """
    if node.is_out_of_service or node.is_retried:
        return True
    return isinstance(answer, Assessment) and find_obstacle(answer.plan) is None and needs_turn(answer.plan)


@dataclass(frozen=True, slots=True)
class _Round:
    dependencies: Dependencies
    order: Order
    context: ApplyContext
    in_place: ApplyContext  # the same, for what is not out of service and may be left as it is
    observe: RolloutObserver
    cancel: threading.Event
    instructions: Instructions

    def carry_out(self, *, only_in_place: bool) -> RoundResult:
        answers = assess(self.context, sorted(self.order.due), self.observe, self.cancel)
        joined = self._join({name: answers.pop(name) for name in sorted(self.order.joining & answers.keys())})
        members = self.order.members
        rolling = frozenset(name for name, answer in answers.items() if needs_rollout(members[name], answer))
        if only_in_place:
            answers = {name: answer for name, answer in answers.items() if name not in rolling}
            joined += tuple(NodeResult(name, Status.WAITING) for name in sorted(rolling))
            rolling = frozenset()
        outcome = self._roll_out(answers) if rolling else self._apply(answers)
        results = (*joined, *outcome.results)
        good = [result.node for result in results if result.is_good and not self.instructions.is_outdated]
        return replace(outcome, results=results, complaints=(*outcome.complaints, *self._introduce(good)))

    def _join(self, answers: Mapping[str, Assessment | Failure]) -> tuple[NodeResult, ...]:
        """Provision nodes that no pod uses yet: their taint keeps pods off, so that no turn has to be waited for."""
        results = {name: result for name, answer in answers.items() if (result := settled(name, answer)) is not None}
        todo = {
            name: partial(converge, self.in_place, name, replace(answer, is_out_of_service=True))
            for name, answer in answers.items()
            if isinstance(answer, Assessment) and name not in results
        }
        results.update(run_each(todo, self.observe, parallel=self.dependencies.parallel, cancel=self.cancel))
        for result in results.values():
            self.observe(NodeFinished(result))
        return tuple(results.values())

    def _apply(self, answers: Mapping[str, Assessment | Failure]) -> RoundResult:
        """Change nodes where they stand."""
        if not answers:
            return RoundResult(())
        results = apply_all(
            self.in_place, answers, self.observe, parallel=self.dependencies.parallel, cancel=self.cancel
        )
        for result in results:
            if result.status is not Status.CONVERGED:  # those that were run are told of already
                self.observe(NodeFinished(result))
        return RoundResult(results)

    def _roll_out(self, answers: Mapping[str, Assessment | Failure]) -> RoundResult:
        """Run the engine over the whole stack: what others of its nodes do counts."""
        stacks, spec = self.context.declarations.stacks, self.order.stack.spec
        cluster = self.dependencies.open_cluster(stacks)
        views = cluster.observe(tuple(self.order.members))
        unknown = {name: Failure(Status.UNREACHABLE, why) for name, why in self.order.left_out.items()}
        asked = {**unknown, **answers}
        prepared = self._without_staging(prepare(asked, stacks, views, {}, barred=self.order.barred))
        if (pause := cluster.paused()) is not None:
            prepared = only_in_flight(prepared, pause)
        known = {
            name: each
            for name, each in answers.items()
            if not isinstance(each, Failure) and not needs_staging(each.plan)
        }
        if prepared.rollout:
            self.dependencies.keep(self.order)
        keeper = GateKeeper(spec.rollout.gates if prepared.rollout else ())
        steps = apply_steps(NodeSteps(self.context, stacks, known), prepared)
        adapters = self.dependencies.adapt(cluster, steps, keeper)
        listeners = self.dependencies.listen(cluster, stacks)
        job = Job(
            context=self.in_place,
            adapters=replace(adapters, publish=listeners.see, instructions=self.instructions),
            prepared=prepared,
            answers=answers,
            stacks=stacks,
            known=known,
        )
        observe = listeners.observing(self.observe)
        try:
            with keeper:
                done = execute(
                    job,
                    observe,
                    parallel=self.dependencies.parallel,
                    cancel=self.cancel,
                    holder=self.dependencies.holder,
                )
        finally:
            untold = listeners.close()
        return RoundResult(done.results, (*done.complaints, *(GrapnelError(each) for each in untold)), pause=pause)

    def _without_staging(self, prepared: Prepared) -> Prepared:
        """Stage nothing for nodes that are put back into service with what they have."""
        called_off = self.instructions.called_off
        back = {
            state.name
            for state in prepared.states
            if state.name in called_off and (state.record is None or state.record.phase in BEFORE_SWAP)
        }
        return replace(prepared, staging=tuple(name for name in prepared.staging if name not in back))

    def _introduce(self, nodes: Collection[str]) -> tuple[GrapnelError, ...]:
        """Make what the cluster needs for nodes that are as declared: RuntimeClasses; labels and taints of Nodes."""
        spec, members = self.order.stack.spec, self.order.members
        classes = self.dependencies.runtime_classes
        missing = classes.missing(spec) if nodes else []
        marked = [name for name in nodes if declared_marks(spec) or members[name].has_marks]
        if not missing and not marked:
            return ()
        cluster = self.dependencies.open_cluster(dict.fromkeys(nodes, spec))
        complaints = tuple(classes.ensure(cluster, missing))  # the nodes are done, and their results have to be seen
        try:
            cluster.observe(marked)
            failed = cluster.set_marks({name: declared_marks(spec) for name in marked}) if marked else {}
        except ClusterError as error:
            return (*complaints, error)
        return (*complaints, *dict.fromkeys(failed.values()))
