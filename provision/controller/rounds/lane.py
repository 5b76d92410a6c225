"""Carries out the rounds of one stack, beside the controller's loop: one that may take days, and short ones beside it.

A rollout waits for windows, gates and people. Nodes that join meanwhile, or are changed where they stand, do not wait
for it: they have a round of their own at its side. When a declaration changes, or is deleted, the round hands over:
what runs on nodes comes to its end, and the next round begins at once, from where the records say. Nodes that leave the
stack, and all nodes of one that no process can go on with, are put back into service as far as that is possible.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from provision.apply.errors import CanceledError
from provision.apply.model import NodeFinished, NodeResult, Note, Status
from provision.base.errors import GrapnelError
from provision.controller.rounds.apply import RoundResult, carry_out
from provision.controller.rounds.verbs import roll_back, take_off
from provision.declaration.spec.text.excerpt import few
from provision.rollout.interface.instructions import Instructions
from provision.rollout.interface.progress import PhaseEntered
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from provision.cluster.kubernetes.cluster import Held
    from provision.controller.decision.choice import Order
    from provision.controller.publication.board import Board
    from provision.controller.rounds.apply import Dependencies
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.progress import RolloutObserver, RolloutProgress
    from provision.rollout.interface.standing import Standing

IDLE_S: Final = 60.0  # for so long no node is out of service before a rollout makes way for nodes that wait to be in it
REST_S: Final = 3.0  # a turn of the engine later
GONE_S: Final = 60.0  # a machine that registers again has done so by then; an engine alone would wait for longer
_DONE: Final = frozenset({Status.UNCHANGED, Status.CONVERGED})
_FAILED: Final = frozenset({Phase.FAILED, Phase.RETURNED})


@dataclass(frozen=True, slots=True)
class Told:
    """What a round says, for the loop: nodes that are as declared, or left failed; at its end what became of all."""

    order: Order
    done: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    outcome: RoundResult | None = None


@dataclass(frozen=True, slots=True)
class LaneTenure:
    """The controller's hold on the lease, as the cluster of one stack sees it."""

    held: Held
    board: Board
    stack: str

    @property
    def pause(self) -> Pause | None:
        """Who wants no further node to begin."""
        return self.held.pause

    def check(self) -> None:
        """Raise LeaseLostError when the lease is lost."""
        self.held.check()

    def publish(self, standing: Standing) -> None:
        """Put it on the board."""
        self.board.put(self.stack, standing)


@dataclass(slots=True)
class _Running:
    order: Order
    cancel: threading.Event = field(default_factory=threading.Event)
    instructions: Instructions = field(default_factory=Instructions)
    thread: threading.Thread | None = None
    ever_called_off: set[str] = field(default_factory=set)

    def hand_over(self, reason: str) -> None:
        """Have another round go on from where this one leaves the nodes."""
        if not self.instructions.hand_over.is_set():
            self.instructions.reason = reason
            self.instructions.hand_over.set()

    def call_off(self, nodes: Collection[str], reason: str) -> None:
        """Have these nodes, and no others, put back into service as far as their driver was not touched."""
        called_off = dict.fromkeys(sorted(nodes), reason)
        self.ever_called_off |= called_off.keys()
        if called_off != self.instructions.called_off:
            self.instructions.called_off = called_off


@dataclass(slots=True)
class Lane:
    """The rounds of one stack. Everything but what a round's thread does belongs to the loop's thread.

    ``ending`` is why no node is to be changed any more, empty while nodes are.
    """

    name: str
    dependencies: Dependencies
    board: Board
    tell: Callable[[Told], None]
    say: Callable[[str], None]
    clock: Callable[[], float]
    ending: str = ""
    _main: _Running | None = None
    _side: _Running | None = None
    _deferred: set[str] = field(default_factory=set)
    _idle_since: float | None = None
    _missing: dict[str, float] = field(default_factory=dict)

    @property
    def busy(self) -> frozenset[str]:
        """The nodes of the rounds that run."""
        return frozenset().union(*(each.order.due for each in self._running))

    @property
    def is_idle(self) -> bool:
        """Whether no round runs."""
        return not self._running

    @property
    def is_at_rest(self) -> bool:
        """Whether no round runs, or one that has had no node out of service for a while, since it ends or waits."""
        if self.is_idle:
            return True
        return self._idle_since is not None and self.clock() - self._idle_since >= REST_S

    def offer(self, order: Order, lost: Collection[str] = ()) -> None:
        """Begin what can be begun of an order, and have what it makes out of date hand over.

        ``lost`` are nodes of the rounds that run which belong to another stack by now, or to none.
        """
        for running in self._running:
            self._bring_up_to_date(running, order, lost)
        if self._main is None:
            self._begin_main(order)
        elif not self._main.instructions.hand_over.is_set():
            if self._may_end():
                self._main.hand_over("other nodes wait to be in a rollout")
            aside = order.due - self.busy - self._deferred - order.back
            if self._side is None and aside:
                self._side = self._begin(order.only(aside), only_in_place=True)

    def _begin_main(self, order: Order) -> None:
        """Begin the main round of an order, beside what may still be changed in place for a former one."""
        due = order.due - self.busy
        if due:
            self._idle_since = None
            self._deferred.clear()
            self._main = self._begin(order.only(due & order.back or due), only_in_place=False)
        else:
            self.board.clear(self.name)  # no process goes on with what was handed over

    def _bring_up_to_date(self, running: _Running, order: Order, lost: Collection[str]) -> None:
        """Tell a round what is not wanted any more of what it is about."""
        if _declared(order) != _declared(running.order):
            running.instructions.is_outdated = True
            running.hand_over("the declaration has changed")
        mine = running.order.due.intersection(lost)
        reason = f"{few(sorted(mine))} left the stack"
        if mine and not mine <= running.instructions.called_off.keys():
            self.say(f"{self.name}: {reason}")
        if self.ending and not running.order.stack.is_going:
            running.call_off(running.order.members, self.ending)
        elif order.back and not running.order.back and running is self._main:
            back = f"{few(sorted(order.back))} shall have the former driver again (`grapnel rollback`)"
            running.call_off(running.order.members.keys() - order.back, back)
        elif not running.order.stack.is_going:
            running.call_off(mine, reason)
        if mine and self._are_let_go(running, mine):
            running.hand_over(reason)
        if running is self._main and (gone := self._gone()):
            running.hand_over(f"{few(sorted(gone))} left the cluster")
        if running.instructions.hand_over.is_set() and self._runs_nowhere(running):
            running.cancel.set()

    def _are_let_go(self, running: _Running, nodes: Collection[str]) -> bool:
        """Tell whether a round has none of these nodes out of service, and will not begin with any."""
        standing, instructions = self.board.get(self.name), running.instructions
        if running is self._main and standing is not None:
            return instructions.heeded is instructions.called_off and standing.out.isdisjoint(nodes)
        return not any(running.order.members[name].is_in_flight for name in nodes)

    def _runs_nowhere(self, running: _Running) -> bool:
        """Tell whether what keeps a round from handing over are steps on nodes that have left the cluster."""
        steps, now = running.instructions.running, self.clock()
        return bool(steps) and all(now - self._missing.get(name, now) >= GONE_S for name in steps)

    def wind_down(self, reason: str) -> None:
        """Let no further node begin; what is out of service comes back first."""
        for running in self._running:
            running.call_off(running.order.members, reason)

    @property
    def _running(self) -> tuple[_Running, ...]:
        return tuple(each for each in (self._main, self._side) if each is not None)

    def miss(self, nodes: Collection[str]) -> None:
        """Know which of the nodes of the rounds that run are in the cluster no more."""
        self._missing = {name: self._missing.get(name, self.clock()) for name in nodes}

    def _gone(self) -> frozenset[str]:
        """Return nodes that were out of service and left the cluster, and have not registered again meanwhile."""
        standing, now = self.board.get(self.name), self.clock()
        gone = {name for name, since in self._missing.items() if now - since >= GONE_S}
        return frozenset() if standing is None else standing.out & gone

    def stop(self) -> None:
        """Begin to end; `join` waits for it."""
        for running in self._running:
            running.cancel.set()

    def join(self) -> None:
        """Return when nothing runs any more."""
        for running in self._running:
            if running.thread is not None:
                running.thread.join()

    def ended(self, told: Told) -> None:
        """Take note of what a round has said last: what it left to a rollout waits for the next one.

        Until then its rollout stands as it did: its end is not told before it is known how.
        """
        assert told.outcome is not None  # it is the last word
        if self._main is not None and told.order is self._main.order:
            self._leave_board(self._main)
            self._main = None
        elif self._side is not None and told.order is self._side.order:
            self._side = None
            self._deferred.update(each.node for each in told.outcome.results if each.status is Status.WAITING)

    def wanted_again(self, order: Order) -> frozenset[str]:
        """Return the nodes that the round of an order was to put back, where what asked for that is over by now.

        That a round has not begun with them, for that reason, says nothing any more.
        """
        mine = [each for each in self._running if each.order is order]
        return frozenset().union(*(each.ever_called_off - each.instructions.called_off.keys() for each in mine))

    def _may_end(self) -> bool:
        """Tell whether a rollout makes way for nodes that wait to be in one: it has had no node out of service."""
        standing = self.board.get(self.name)
        if standing is None or standing.out - self._gone():
            self._idle_since = None
            return False
        now = self.clock()
        self._idle_since = self._idle_since if self._idle_since is not None else now
        return bool(self._deferred) and now - self._idle_since >= IDLE_S

    def _begin(self, order: Order, *, only_in_place: bool) -> _Running:
        running = _Running(order)
        if order.stack.is_going and not order.stack.is_removing:
            running.call_off(order.members, "its GpuStack was deleted")
        running.thread = threading.Thread(
            target=self._run,
            args=(running,),
            kwargs={"only_in_place": only_in_place},
            name=f"round {self.name}",
            daemon=True,
        )
        running.thread.start()
        return running

    def _run(self, running: _Running, *, only_in_place: bool) -> None:
        outcome = RoundResult(())
        try:
            outcome = self._carry_out(running, only_in_place=only_in_place)
        except CanceledError:
            pass
        except GrapnelError as error:
            outcome = RoundResult((), (error,))
        except Exception as error:  # noqa: BLE001 - one stack's round never ends the controller
            outcome = RoundResult((), (GrapnelError(f"a round ended with a bug: {type(error).__name__}: {error}"),))
        finally:
            self.tell(Told(running.order, outcome=outcome))

    def _leave_board(self, running: _Running) -> None:
        """Take off the board what was said of a rollout; what goes on at once has not ended for anybody who looks."""
        standing = self.board.get(self.name)
        is_left = running.instructions.hand_over.is_set() and not running.cancel.is_set()
        if standing is None or not is_left or not standing.out or standing.out & self._missing.keys():
            self.board.clear(self.name)

    def _carry_out(self, running: _Running, *, only_in_place: bool) -> RoundResult:
        order, observe, instructions = running.order, self._observer(running), running.instructions
        if order.stack.is_removing:
            return take_off(self.dependencies, order, observe, running.cancel, instructions)
        if order.back:
            self.tell(Told(order, failed=tuple(sorted(order.back))))  # it is not tried again, however this ends
            return roll_back(self.dependencies, order, observe, running.cancel, instructions)
        return carry_out(
            self.dependencies, order, observe, running.cancel, only_in_place=only_in_place, instructions=instructions
        )

    def _observer(self, running: _Running) -> RolloutObserver:
        """Return what hears the progress of a round; called on the round's own thread alone."""
        order, marked = running.order, set[str]()

        def observe(progress: RolloutProgress) -> None:
            done = "" if order.stack.is_removing or order.back else _done_by(progress)
            if done and done not in marked:
                marked.add(done)
                self.tell(Told(order, done=(done,)))
            elif isinstance(progress, Note):
                self.say(f"{self.name}: {f'{progress.node}: ' if progress.node else ''}{progress.text}")
            elif isinstance(progress, PhaseEntered):
                self.say(f"{self.name}: {progress.node}: {progress.phase}")
                if progress.phase in _FAILED and not progress.is_former and not order.stack.is_removing:
                    self.tell(Told(order, failed=(progress.node,)))

        return observe


def _declared(order: Order) -> tuple[str, int, bool]:
    return order.stack.uid, order.stack.generation, order.stack.is_going


def _done_by(progress: RolloutProgress) -> str:
    """Return the node that is as declared by now, empty where nothing says so."""
    if isinstance(progress, NodeFinished) and _is_done(progress.result):
        return progress.result.node
    if isinstance(progress, PhaseEntered) and progress.phase is Phase.DONE:
        return progress.node
    return ""


def _is_done(result: NodeResult) -> bool:
    return result.is_good and result.status in _DONE
