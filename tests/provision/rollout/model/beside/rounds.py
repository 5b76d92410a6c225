"""Carries out the rounds of a controller in virtual time: what a lane begins goes on turn by turn.

The lane is the product's, and so are preparation, engine and results. Of a round
(`provision.controller.rounds.apply`) what is left is the order of its moments, between which anything may happen: a
look at each node, the stack that has to stay, staging, the rollout. On the simulated machines a driver is all that
can differ, so that nothing is changed in place.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from provision.apply.errors import CanceledError
from provision.apply.fleet import settled
from provision.apply.model import Assessment, Failure, NodeFinished, NodeResult, Status
from provision.base.errors import GrapnelError
from provision.controller.rounds.apply import RoundResult, needs_rollout
from provision.controller.rounds.lane import Lane, _Running
from provision.planning.node_plan import Disruption, NodePlan
from provision.rollout.decision.outcome import RolloutResult, results_of
from provision.rollout.decision.policy import drain_policy
from provision.rollout.decision.prepare import Prepared, only_in_flight, prepare
from provision.rollout.execution import refuse_if_changed
from provision.rollout.model import NodeView, Phase
from provision.rollout.returns import forget_returns
from tests.provision.apply.fakes import item
from tests.provision.rollout.model.beside.objects import NodeCluster
from tests.provision.rollout.model.invariants import Invariants, hold
from tests.provision.rollout.model.process import KilledError, facts_of, started

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from provision.controller.decision.choice import Order
    from provision.controller.rounds.lane import LaneTenure
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.progress import RolloutObserver
    from provision.rollout.interface.standing import Standing
    from provision.rollout.model import Origin, Record
    from provision.rollout.simulate.machine import Machine
    from tests.provision.rollout.model.beside.controller import VirtualController
    from tests.provision.rollout.model.beside.objects import NodeWorld
    from tests.provision.rollout.model.beside.stacks import Shelf
    from tests.provision.rollout.model.process import Process

LOOK_S: Final = 3.0  # what a look at nodes takes, in Jobs
STAGE_S: Final = 5.0
HEARD_S: Final = 10.0  # after which a declaration has reached whoever is at work

Moments = "Generator[None, None, Outcome]"


@dataclass
class RoundInvariants(Invariants):
    """Holds in addition that a node is not taken to what has not been declared for a while."""

    shelf: Shelf | None = None

    @property
    def is_heard(self) -> bool:
        """Whether what is declared has been so for long enough that every round has heard of it."""
        assert self.shelf is not None
        return self.world.time.now_s - self.shelf.changed_s > HEARD_S

    def step(self, node: str, phase: Phase, back: Origin | None = None) -> None:
        super().step(node, phase, back)
        assert self.shelf is not None
        target = self.shelf.target
        if phase is Phase.SWAP and back is None and target and self.is_heard:
            ordered = self.engine._nodes[node].target
            hold(ordered == target, f"{node} is taken to {ordered}, and {target} is declared")

    def hold_domain(self, machine: Machine) -> None:
        """Hold it while something is declared: of a stack that is deleted, nodes go back to what they were."""
        assert self.shelf is not None
        if self.shelf.target:
            super().hold_domain(machine)

    def forget(self, machine: Machine, record: Record | None) -> None:
        """Hold in addition that a failure is forgotten where the driver that the node went back to is declared."""
        if record is None or record.phase is not Phase.RETURNED:
            super().forget(machine, record)
            return
        assert self.shelf is not None
        is_declared = self.shelf.target in ("", machine.driver) or not self.is_heard
        what = f"{machine.name} is forgotten with {machine.driver}, and {self.shelf.target} is declared"
        hold(machine.driver == record.origin and is_declared, what)


@dataclass(eq=False)
class RoundCluster(NodeCluster):
    """The cluster of one lane, on its controller's lease."""

    tenure: LaneTenure | None = None
    lease_of: NodeCluster | None = None
    waits: bool = True  # whether jobs are to be waited for: else nobody asks which there are

    def _look(self, node: str) -> None:
        super()._look(node)
        view = self._views[node]
        if not self.waits and isinstance(view, NodeView) and view.jobs:
            self._views[node] = replace(view, jobs=())

    @property
    def tenant(self) -> object:
        """Who the lease belongs to."""
        return self.lease_of

    def renew(self) -> None:
        """Renew the controller's lease."""
        assert self.lease_of is not None
        self.lease_of.renew()

    def check_lease(self) -> None:
        """Raise LeaseLostError where the controller has lost it."""
        assert self.lease_of is not None
        self.lease_of.check_lease()

    @contextlib.contextmanager
    def lease(self, holder: str) -> Iterator[None]:
        """The controller has it."""
        del holder
        yield

    def give_back(self) -> None:
        """The controller keeps it."""

    def close(self) -> None:
        """Watch no more, if it did."""
        if self in self.world.watchers:
            super().close()

    def paused(self) -> Pause | None:
        """Return who wants no further node to begin: a person, or the lane."""
        assert self.tenure is not None
        return self.tenure.pause

    def publish(self, standing: Standing) -> None:
        """Put it on the board."""
        super().publish(standing)
        assert self.tenure is not None
        self.tenure.publish(standing)


class VirtualLane(Lane):
    """A lane whose rounds go on when they are told to; ``rounds`` are those that have not ended."""

    owner: VirtualController

    def __init__(self, *given: object, owner: VirtualController) -> None:
        super().__init__(*given)  # type: ignore[arg-type]  # what a lane is given
        self.owner = owner
        self.rounds: list[Round] = []

    def _begin(self, order: Order, *, only_in_place: bool) -> _Running:
        running = _Running(order)
        if order.stack.is_going:
            running.call_off(order.members, "its GpuStack was deleted")
        self.rounds.append(Round(self, running, only_in_place=only_in_place))
        return running

    def _carry_out(self, running: _Running, *, only_in_place: bool) -> RoundResult:
        """Return, or raise, what has become of a round that has ended."""
        ended = next(each for each in self.rounds if each.running is running)
        self.rounds.remove(ended)
        if isinstance(ended.ending, RoundResult):
            return ended.ending
        raise ended.ending

    def end(self, ended: Round) -> None:
        """Have a round say its last word, as its thread does."""
        self._run(ended.running, only_in_place=ended.only_in_place)


class Round:
    """One round, which goes on with each turn."""

    def __init__(self, lane: VirtualLane, running: _Running, *, only_in_place: bool) -> None:
        self.lane, self.running, self.only_in_place = lane, running, only_in_place
        self.process: Process | None = None
        self.ending: RoundResult | GrapnelError = RoundResult(())
        self._moments = self._carry_out()

    @property
    def world(self) -> NodeWorld:
        """Where it is at work."""
        return self.lane.owner.fleet.nodes

    def turn(self) -> None:
        """Go on to the next moment, or to its end."""
        try:
            next(self._moments)
        except StopIteration as end:
            self.ending = end.value
        except GrapnelError as error:
            self.ending = error
        else:
            return
        self.leave()
        self.lane.end(self)

    def leave(self) -> None:
        """Let go of everything, as the kernel does for a process that is gone."""
        if self.process is not None:
            self.process.leave()
            self.process = None

    def _pass(self, seconds: float) -> None:
        self.lane.owner.fleet.pass_time(seconds)
        if self.lane.owner.is_killed:
            raise KilledError
        if self.running.cancel.is_set():
            raise CanceledError("it was ended")

    def _carry_out(self) -> Moments:
        order, observe = self.running.order, self.lane._observer(self.running)
        yield
        self._pass(LOOK_S)
        answers = {name: self._look(name, order) for name in sorted(order.due)}
        yield
        members = self.running.order.members
        rolling = {name for name, answer in answers.items() if needs_rollout(members[name], answer)}
        aside: tuple[NodeResult, ...] = ()
        if self.only_in_place:
            aside = tuple(NodeResult(name, Status.WAITING) for name in sorted(rolling))
            answers = {name: answer for name, answer in answers.items() if name not in rolling}
            rolling = set()
        if rolling:
            outcome = yield from self._roll_out(answers, observe)
        else:
            outcome = RoundResult(
                tuple(result for name in answers if (result := settled(name, answers[name])) is not None)
            )
            for result in outcome.results:
                observe(NodeFinished(result))
        return replace(outcome, results=(*aside, *outcome.results))

    def _look(self, name: str, order: Order) -> Assessment | Failure:
        """Return what a node says, and its plan."""
        world = self.world
        machine, target = world.machine(name), order.stack.spec.driver.version or ""
        facts = facts_of(machine)
        if isinstance(facts, Failure) or world.is_away or machine.is_deleted:
            return Failure(Status.UNREACHABLE, f"{name} cannot be reached")
        if machine.is_drifted:
            machine.is_drifted = False
            world.changed(name)
        is_elsewhere = machine.change is not None and machine.change.target != target
        is_there = machine.driver == target and not is_elsewhere
        items = () if is_there else (item(target, disruption=Disruption.DRAIN),)
        return Assessment(facts, NodePlan(node=name, items=items))

    def _roll_out(self, answers: Mapping[str, Assessment | Failure], observe: RolloutObserver) -> Moments:
        order, dependencies = self.running.order, self.lane.dependencies
        stacks = dict.fromkeys(order.members, order.stack.spec)
        cluster: RoundCluster = dependencies.open_cluster(stacks)  # type: ignore[assignment]  # of this model
        cluster.waits = drain_policy(order.stack.spec.rollout, order.stack.spec.scheduler).waits
        try:
            views = cluster.observe(tuple(order.members))
            unknown = {name: Failure(Status.UNREACHABLE, why) for name, why in order.left_out.items()}
            prepared = prepare({**unknown, **answers}, stacks, views, {}, barred=order.barred)
            if (pause := cluster.paused()) is not None:
                prepared = only_in_flight(prepared, pause)
            if prepared.rollout:
                dependencies.keep(order)
                refuse_if_changed(cluster, prepared)
            yield
            self._pass(STAGE_S)
            ended = {} if not prepared.rollout else (yield from self._engine(cluster, prepared, observe))
            results = tuple(self._result(name, answers[name], ended, prepared) for name in answers)
            if not self.running.instructions.is_outdated:
                forget_returns(cluster, prepared, results, observe, dependencies.holder)
        finally:
            cluster.close()
        return RoundResult(results, pause=pause)

    @staticmethod
    def _result(
        name: str, answer: Assessment | Failure, ended: Mapping[str, NodeResult], prepared: Prepared
    ) -> NodeResult:
        refusal = prepared.refusals.get(name)
        refused = None if refusal is None else NodeResult(name, refusal.status, failure=refusal)
        return ended.get(name) or refused or settled(name, answer) or NodeResult(name, Status.WAITING)

    def _engine(
        self, cluster: RoundCluster, prepared: Prepared, observe: RolloutObserver
    ) -> Generator[None, None, dict[str, NodeResult]]:
        owner, cancel = self.lane.owner, self.running.cancel
        process = self.process = started(
            owner.fleet,
            cluster,
            prepared.states,
            prepared.policy,
            observe=observe,
            cancel=cancel,
            instructions=self.running.instructions,
            make=lambda *given: RoundInvariants(*given, shelf=owner.fleet.shelf),
        )
        process.invariants.before = owner.count
        yield
        while not process.turn():
            yield
        self.process = None
        engine = process.engine
        ending = RolloutResult(
            nodes=tuple(engine._nodes.values()),
            moved=frozenset(engine._moved),
            waiting=engine._decision.waiting,
            stop=engine._stop or engine._decision.stop or "",
            failures=engine._failures,
            swapped=engine._swapped,
            ended=self.world.time(),
            is_handed_over=engine._is_handing_over,
        )
        results = results_of(ending, prepared.rollout, canceled=cancel.is_set())
        for result in results.values():
            observe(NodeFinished(result))
        return results
