"""Carries out the rounds of one stack, beside the controller's loop: one that may take days, and short ones beside it.

A rollout waits for windows, gates and people. Nodes that join meanwhile, or are changed where they stand, do not wait
for it: they have a round of their own at its side. A declaration that changes, is deleted, or loses a node to another
stack lets no further node begin; when nobody is out of service, the rollout ends, and the next one begins from where it
was left.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from provision.apply.errors import CanceledError
from provision.apply.model import NodeFinished, NodeResult, Note, Status
from provision.controller.removal import take_off
from provision.controller.rounds import Outcome, carry_out
from provision.errors import GrapnelError
from provision.rollout.model import Phase
from provision.rollout.pause import Pause
from provision.rollout.progress import PhaseEntered
from provision.spec.excerpt import few

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from provision.cluster.kubernetes_cluster import Held
    from provision.controller.board import Board
    from provision.controller.choice import Order
    from provision.controller.rounds import Means
    from provision.rollout.progress import RolloutObserver, RolloutProgress
    from provision.rollout.standing import Standing

IDLE_S: Final = 60.0  # for so long nobody is out of service before a rollout makes way for nodes that wait to be in it
HELD_S: Final = 3.0  # a turn of the engine later
GONE_S: Final = 60.0  # a machine that registers again has done so by then; an engine alone would wait for longer
_DONE: Final = frozenset({Status.UNCHANGED, Status.CONVERGED})
_FAILED: Final = frozenset({Phase.FAILED, Phase.RETURNED})


@dataclass(frozen=True, slots=True)
class Told:
    """What a round says, for the loop: nodes that are as declared, or left failed; at its end what became of all."""

    order: Order
    done: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class LaneTenure:
    """The controller's hold on the lease, as the cluster of one stack sees it."""

    held: Held
    board: Board
    stack: str
    holding: Callable[[], Pause | None]

    @property
    def pause(self) -> Pause | None:
        """Who wants no further node to begin: a person, or a declaration that has changed."""
        return self.holding() or self.held.pause

    def check(self) -> None:
        """Raise LeaseLostError when the lease is lost."""
        self.held.check()

    def publish(self, standing: Standing) -> None:
        """Put it on the board."""
        self.board.put(self.stack, standing)


@dataclass(slots=True)
class _Running:
    order: Order
    cancel: threading.Event
    thread: threading.Thread | None = None


@dataclass(slots=True)
class Lane:
    """The rounds of one stack. Everything but what a round's thread does belongs to the loop's thread."""

    name: str
    means: Means
    board: Board
    tell: Callable[[Told], None]
    say: Callable[[str], None]
    clock: Callable[[], float]
    hold: Pause | None = None
    _main: _Running | None = None
    _side: _Running | None = None
    _deferred: set[str] = field(default_factory=set)
    _idle_since: float | None = None
    _held_s: float = 0.0
    _missing: dict[str, float] = field(default_factory=dict)

    @property
    def busy(self) -> frozenset[str]:
        """The nodes of the rounds that run."""
        running = [each.order.due for each in (self._main, self._side) if each is not None]
        return frozenset().union(*running)

    @property
    def is_idle(self) -> bool:
        """Whether no round runs."""
        return self._main is None and self._side is None

    @property
    def is_at_rest(self) -> bool:
        """Whether no round runs, or one that has had nobody out of service for a while, since it ends or waits."""
        if self.is_idle:
            return True
        return self._idle_since is not None and self.clock() - self._idle_since >= HELD_S

    def offer(self, order: Order, lost: Collection[str] = ()) -> None:
        """Begin what can be begun of an order, and end what it makes out of date.

        ``lost`` are nodes of the rounds that run which belong to another stack by now, or to none.
        """
        if self.is_idle:
            if order.due:
                self.hold, self._idle_since = None, None
                self._deferred.clear()
                self._main = self._begin(order, only_in_place=False)
            return
        reason = self._out_of_date(order, lost)
        if reason or self.hold is not None:  # what was held once comes to its end, or nothing would let it go on
            self.wind_down(reason)
        elif self._main is not None:
            if self._may_end(is_stale=False):
                self._main.cancel.set()
            aside = order.due - self.busy - self._deferred
            if self._side is None and aside:
                joining = order.joining & aside
                self._side = self._begin(replace(order, due=aside, joining=joining), only_in_place=True)

    def _out_of_date(self, order: Order, lost: Collection[str]) -> str:
        """Return why what runs is not what is wanted any more, empty where it is."""
        running = [each for each in (self._main, self._side) if each is not None]
        if any(_declared(order) != _declared(each.order) for each in running):
            return "the declaration has changed"
        if lost:
            return f"{few(sorted(lost))} left the stack"
        gone = self._gone()
        return f"{few(sorted(gone))} left the cluster" if gone else ""

    def wind_down(self, reason: str) -> None:
        """Let no further node begin, and end when nobody is out of service; what is out comes back first."""
        if self.is_idle:
            return
        if self.hold is None:
            self.hold, self._held_s = Pause(by="the controller", reason=reason), self.clock()
        if self._main is not None and self._may_end(is_stale=True):
            self._main.cancel.set()

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
        for running in (self._main, self._side):
            if running is not None:
                running.cancel.set()

    def join(self) -> None:
        """Return when nothing runs any more."""
        for running in (self._main, self._side):
            if running is not None and running.thread is not None:
                running.thread.join()

    def ended(self, told: Told) -> None:
        """Take note of what a round has said last: what it left to a rollout waits for the next one."""
        assert told.outcome is not None  # noqa: S101 - it is the last word
        if self._main is not None and told.order is self._main.order:
            self._main = None
        elif self._side is not None and told.order is self._side.order:
            self._side = None
            self._deferred.update(each.node for each in told.outcome.results if each.status is Status.WAITING)

    def _may_end(self, *, is_stale: bool) -> bool:
        """Tell whether a rollout may be ended without leaving anybody out of service."""
        standing = self.board.get(self.name)
        if standing is None or standing.out - self._gone():
            self._idle_since = None
            return False
        now = self.clock()
        self._idle_since = self._idle_since if self._idle_since is not None else now
        if is_stale:  # a turn of the engine that had begun before it was held may have taken a node out of service
            return now - self._held_s >= HELD_S
        return bool(self._deferred) and now - self._idle_since >= IDLE_S

    def _begin(self, order: Order, *, only_in_place: bool) -> _Running:
        running = _Running(order, threading.Event())
        running.thread = threading.Thread(
            target=self._run, args=(running, only_in_place), name=f"round {self.name}", daemon=True
        )
        running.thread.start()
        return running

    def _run(self, running: _Running, only_in_place: bool) -> None:  # noqa: FBT001 - a thread's argument
        outcome = Outcome(())
        try:
            outcome = self._carry_out(running, only_in_place=only_in_place)
        except CanceledError:
            pass
        except GrapnelError as error:
            outcome = Outcome((), (error,))
        except Exception as error:  # noqa: BLE001 - one stack's round never ends the controller
            outcome = Outcome((), (GrapnelError(f"a round ended with a bug: {type(error).__name__}: {error}"),))
        finally:
            if not only_in_place:
                self.board.clear(self.name)
            self.tell(Told(running.order, outcome=outcome))

    def _carry_out(self, running: _Running, *, only_in_place: bool) -> Outcome:
        order, observe = running.order, self._observer(running.order)
        if order.stack.is_removing:
            return take_off(self.means, order, observe, running.cancel)
        is_held = lambda: self.hold is not None  # noqa: E731 - asked again and again
        return carry_out(self.means, order, observe, running.cancel, only_in_place=only_in_place, is_held=is_held)

    def _observer(self, order: Order) -> RolloutObserver:
        """Return what hears the progress of a round; called on the round's own thread alone."""
        marked: set[str] = set()

        def observe(progress: RolloutProgress) -> None:
            done = "" if order.stack.is_removing else _done_by(progress)
            if done and done not in marked:
                marked.add(done)
                self.tell(Told(order, done=(done,)))
            elif isinstance(progress, Note):
                self.say(f"{self.name}: {f'{progress.node}: ' if progress.node else ''}{progress.text}")
            elif isinstance(progress, PhaseEntered):
                self.say(f"{self.name}: {progress.node}: {progress.phase}")
                if progress.phase in _FAILED and not order.stack.is_removing:
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
