"""Takes what rounds say: marks Nodes that are done or failed, and remembers what was tried on the others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from provision.apply.model import Status
from provision.controller.decision.attempts import Attempts, key_of
from provision.controller.decision.blockers import blockers_of
from provision.controller.decision.claim import has_ended
from provision.controller.decision.fingerprint import of_node
from provision.controller.marker import Mark, Word
from provision.controller.publication.metrics import StackCounts
from provision.rollout.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from provision.apply.model import NodeResult
    from provision.controller.decision.choice import Order
    from provision.controller.marker import Marker
    from provision.controller.nodes import NodeBook
    from provision.controller.publication.news import StackKnown
    from provision.controller.rounds.apply import RoundResult
    from provision.controller.rounds.lane import Lane, Told

_NOBODY: Final = frozenset({Status.CANCELED})
_NOT_BEGUN: Final = frozenset({Status.SKIPPED, Status.WAITING})


@dataclass(slots=True)
class StackMemory:
    """What the loop knows of one stack beside its object. ``removed`` are UIDs of Nodes that grapnel was taken off.

    ``trouble`` is what went wrong in its last round, ``why_not_kept`` why its finalizer cannot be written, ``held_up``
    who is at work elsewhere while nodes are due, so that no round begins. ``done`` and
    ``failures`` count nodes, ``order`` is what was to be brought about last, ``known`` and ``counts`` what was told.
    """

    lane: Lane
    order: Order | None = None
    attempts: Attempts = field(default_factory=Attempts)
    fingerprint: str = ""
    fingerprint_of: tuple[str, int] = ("", -1)
    trouble: str = ""
    why_not_kept: str = ""
    held_up: str = ""
    removed: set[str] = field(default_factory=set)
    adopted: set[str] = field(default_factory=set)
    next_look_s: float = 0.0
    next_write_s: float = 0.0
    is_unwritten: bool = False
    known: StackKnown | None = None
    counts: StackCounts = field(default_factory=StackCounts)
    done: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Reports:
    """Where what rounds say goes to. ``clock`` counts seconds."""

    nodes: NodeBook
    marker: Marker
    say: Callable[[str], None]
    clock: Callable[[], float]

    def take(self, told: Told, memory: StackMemory) -> None:
        """Take one report of a round of a stack."""
        for node in told.done:
            self._done(node, told, memory)
        for node in told.failed:
            self._left_failed(node, told.order)
        if told.outcome is None:
            return
        memory.trouble = "; ".join(str(error.message) for error in told.outcome.complaints)
        if memory.trouble:
            self.say(f"{told.order.stack.name}: {memory.trouble}")
        for result in told.outcome.results:
            self._ended(result, told.order, memory, told.outcome.stop)
        if told.order.back:
            memory.attempts.forget_waiting()  # for these nodes, others had to make way
        self._wait(told.outcome, told.order, memory, memory.lane.wanted_again(told.order))
        if not told.outcome.results and told.outcome.complaints:
            for node in told.order.due:
                self._failed(node, told.order, memory, memory.trouble)
        memory.lane.ended(told)

    def adopt(self, order: Order, memory: StackMemory) -> None:
        """Write on Nodes with what they were left failed, where whoever left them so has not come to it."""
        for name in order.barred:
            node = order.members[name]
            if not node.failed and node.uid not in memory.adopted:
                memory.adopted.add(node.uid)
                self.marker.mark(Mark(name, node.uid, order.targets[name].bar, Word.FAILED))

    def _done(self, node: str, told: Told, memory: StackMemory) -> None:
        """Know that a node is as declared."""
        order = told.order
        seen = self.nodes.get(node)
        former = order.members.get(node)
        if seen is None or former is None or seen.uid != former.uid:
            return
        if memory.fingerprint_of != (order.stack.uid, order.stack.generation):
            return  # another declaration by now
        fingerprint = of_node(memory.fingerprint, seen)  # it may have been rebooted meanwhile
        at_rest = (
            replace(seen, record=None) if seen.is_in_flight else seen
        )  # its end has not been seen yet, or another upgrade was started
        memory.attempts.succeeded(node, key_of(at_rest, fingerprint), self.clock(), seen.driver)
        memory.done += 1
        ended = seen.record if has_ended(seen.record, order.stack.spec.driver) else None
        self.marker.mark(Mark(node, seen.uid, fingerprint, ended=ended, looked=former.said))

    def _left_failed(self, node: str, order: Order) -> None:
        """Write on a Node that a rollout has left it failed: at once, since the rollout may go on for days."""
        seen, former = self.nodes.get(node), order.members.get(node)
        if seen is not None and former is not None and seen.uid == former.uid and node in order.targets:
            self._write(Mark(node, seen.uid, order.targets[node].bar, Word.FAILED))

    def _ended(self, result: NodeResult, order: Order, memory: StackMemory, stop: str) -> None:
        if result.status in _NOBODY or result.node not in order.due:
            return
        if result.is_good and result.status is not Status.SKIPPED:
            if order.stack.is_removing:
                self._removed(result.node, order, memory)
            return  # else it was told when it was done
        reason = _reason(result, stop)
        if result.status is Status.WAITING and not reason:
            return  # it is left to a rollout
        seen = self.nodes.get(result.node)
        is_left = seen is not None and seen.is_left_failed
        if is_left or result.status is Status.RETURNED:
            # Before anything else is begun: what a rollout has left failed is not tried again by itself.
            self._left_failed(result.node, order)
        if result.status in _NOT_BEGUN and not is_left:
            return
        needs_somebody = is_left or result.status is Status.RETURNED
        self._failed(result.node, order, memory, reason, needs_somebody=needs_somebody)

    def _wait(self, outcome: RoundResult, order: Order, memory: StackMemory, wanted: Collection[str]) -> None:
        """Note which nodes a round has not begun with, and what it has met: when it has noted who has failed in it.

        Those that are ``wanted`` again are due at once.
        """
        about = order.due.difference(wanted)
        waiting = {
            result.node: reason
            for result in outcome.results
            if result.status in _NOT_BEGUN and result.node in about and (reason := _reason(result, outcome.stop))
        }
        if not waiting:
            return
        seen = {name: node for name in order.members if (node := self.nodes.get(name)) is not None}
        now = self.clock()
        blockers = blockers_of(order.stack.generation, outcome.pause, seen, now)
        for name in [name for name in waiting if name in seen and not seen[name].is_left_failed]:
            key = key_of(seen[name], order.targets[name].wanted)
            memory.attempts.waited(name, key, waiting[name], now, blockers)

    def _removed(self, node: str, order: Order, memory: StackMemory) -> None:
        """Take off a Node what says that it was as declared; it is done with when that is written."""
        seen, former = self.nodes.get(node), order.members[node]
        if seen is None or seen.uid != former.uid or self._write(Mark(node, former.uid, "", Word.REMOVED)):
            memory.removed.add(former.uid)
            self.say(f"{order.stack.name}: {node}: grapnel was taken off it")
        else:
            self._failed(node, order, memory, "what grapnel has written on its Node cannot be taken away")

    def _write(self, mark: Mark) -> bool:
        try:
            self.marker.write(mark)
        except ClusterError as error:
            self.say(f"node {mark.node} is not marked: {error.message}")
            return False
        return True

    def _failed(
        self, node: str, order: Order, memory: StackMemory, reason: str, *, needs_somebody: bool = False
    ) -> None:
        seen = self.nodes.get(node)
        if seen is not None:
            key = key_of(seen, order.targets[node].wanted)
            memory.attempts.failed(node, key, reason, self.clock(), needs_somebody=needs_somebody)
            memory.failures += 1


def _reason(result: NodeResult, stop: str) -> str:
    """Return why a node is not as declared, empty for one that is left to a rollout."""
    return result.failure.message if result.failure is not None else result.note or stop
