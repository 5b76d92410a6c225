"""Finds out how the nodes of stacks stand, and publishes it: statuses, Events, and the counts of metrics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from provision.controller.decision.standings import stands
from provision.controller.publication.metrics import StackCounts, nodes_by_stand
from provision.controller.publication.news import known_before, known_now, news
from provision.controller.stacks.derive import NodeIs, Observed, status_of
from provision.controller.stacks.writer import write_status
from provision.rollout.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.cluster.kubernetes.api.client import Api
    from provision.controller.decision.choice import Order
    from provision.controller.publication.board import Board
    from provision.controller.publication.event_writer import EventWriter
    from provision.controller.rounds.reports import StackMemory
    from provision.controller.stacks.derive import Stands, TenancyStands
    from provision.controller.stacks.follower import Followed, StackBook
    from provision.controller.stacks.membership import Membership
    from provision.controller.stacks.status import StackStatus
    from provision.controller.tenants import TenancyDesk

STATUS_S: Final = 1.0  # between two looks at how all nodes of a stack stand, for its status
REFUSED_S: Final = 30.0  # where one could not be written


@dataclass(frozen=True, slots=True)
class Publisher:
    """What is told of stacks. ``clock`` counts seconds; ``node`` is the one that this process runs on, if known."""

    api: Api
    stacks: StackBook
    board: Board
    events: EventWriter
    desk: TenancyDesk
    say: Callable[[str], None]
    clock: Callable[[], float]
    node: str = ""

    def look(
        self,
        followed: Followed,
        memory: StackMemory,
        order: Order | None,
        membership: Membership,
        unmarked: Mapping[str, str],
    ) -> None:
        """Find out how the nodes of a stack stand, now and then, and tell what is new.

        ``unmarked`` are as `stands` takes them.
        """
        now = self.clock()
        if now < memory.next_look_s and not self._has_begun_or_ended(memory):  # it takes a look at each of its nodes
            memory.is_unwritten = True
            return
        memory.next_look_s = now + STATUS_S
        observed = self._observed(followed.stack.name, memory, order, membership, unmarked)
        is_host = bool(self.node) and membership.selects(followed.stack.name, self.node)
        host = (self.node if is_host else "") if self.node else None
        observed = replace(observed, tenancy=self._tenancy(order), host=host)
        status = status_of(followed.stack, observed, followed.status, datetime.now(UTC))
        self._announce(followed, memory, status, observed)
        self._write(followed, memory, status)
        memory.counts = self._count(memory, order, observed, status)

    def _has_begun_or_ended(self, memory: StackMemory) -> bool:
        """Tell whether a rollout has, since the last look: a short one is not to pass without a word."""
        if memory.known is None:
            return False
        latest = self.board.latest(memory.lane.name)
        began = None if latest is None else latest.began
        return (memory.known.began, memory.known.is_over) != (began, self._is_over(memory.lane.name))

    def _is_over(self, name: str) -> bool:
        return self.board.get(name) is None and self.board.latest(name) is not None

    def close(self) -> None:
        """Return when nothing more is done; Events that wait are written, for a while."""
        self.desk.close()
        self.events.close()

    def _observed(
        self,
        name: str,
        memory: StackMemory,
        order: Order | None,
        membership: Membership,
        unmarked: Mapping[str, str],
    ) -> Observed:
        disputed = {
            node: [other for other in membership.disputed[node] if other != name]
            for node in membership.claimed_twice(name)
        }
        if order is None:
            return Observed(disputed=disputed)
        nodes = stands(order, memory.lane.busy, self.board.get(name), memory.attempts, unmarked)
        if memory.held_up:
            nodes = held_up(nodes, order, f"{memory.held_up}: goes on when that has ended")
        trouble = memory.why_not_kept or memory.trouble
        is_stuck = bool(trouble) and not any(each.how.value == "as declared" for each in nodes.values())
        return Observed(
            nodes=nodes, disputed=disputed, trouble=trouble if is_stuck else "", fingerprint=memory.fingerprint
        )

    def _tenancy(self, order: Order | None) -> TenancyStands | None:
        """Have a look taken at what a stack declares for tenants, and return how it stands; what is deleted is left."""
        if order is None or order.stack.is_going:
            return None
        self.desk.offer(order.stack)
        return self.desk.stands(order.stack)

    def _announce(self, followed: Followed, memory: StackMemory, status: StackStatus, observed: Observed) -> None:
        """Tell what has happened to a stack since the last look; what a former leader has told already is no news."""
        name = followed.stack.name
        now = known_now(status, observed, self.board.latest(name), is_over=self._is_over(name))
        for each in news(memory.known or known_before(followed.status), now):
            self.events.tell(name, followed.stack.uid, each)
        memory.known = now

    def _write(self, followed: Followed, memory: StackMemory, status: StackStatus) -> None:
        now = self.clock()
        memory.is_unwritten = status != followed.status
        if not memory.is_unwritten or now < memory.next_write_s:
            return
        try:
            written = write_status(self.api, followed.stack.name, followed.stack.uid, status)
        except ClusterError as error:
            self.say(f"{followed.stack.name}: its status is not written: {error.message}")
            memory.next_write_s = now + REFUSED_S  # such as for a permission that is missing
            return
        if written is not None:
            self.stacks.put(written)
            memory.is_unwritten = False

    def _count(self, memory: StackMemory, order: Order | None, observed: Observed, status: StackStatus) -> StackCounts:
        """Return what metrics tell of a stack."""
        members = () if order is None else order.members.values()
        return StackCounts(
            state=status.state,
            nodes=nodes_by_stand(observed),
            claimed=len(observed.disputed),
            drifted=sum(node.is_drifted for node in members),
            joining=sum(node.is_joining for node in members),
            hosting=int(bool(observed.host)),
            done=memory.done,
            failures=memory.failures,
            rollout=self.board.get(memory.lane.name),
        )


def held_up(nodes: Mapping[str, Stands], order: Order, why: str) -> Mapping[str, Stands]:
    """Return how nodes stand where no round begins since another process is at work: those that are due wait for it."""
    return {
        name: replace(each, reason=why, is_left=False) if name in order.due and each.how is NodeIs.WAITING else each
        for name, each in nodes.items()
    }
