"""The controller: holds the lease, watches Nodes and GpuStacks, and has rounds carried out where they differ.

One process leads; the others wait for the lease. Who loses it ends, and is started again by its Deployment: nothing
that it knew is kept, and everything that matters stands in the cluster.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from provision.apply.model import Status
from provision.cluster.informer import NODES
from provision.cluster.lease import RENEW_S, Tenure, hold
from provision.cluster.objects import Node
from provision.cluster.progress import encode_progress
from provision.cluster.watcher import Source, Watcher
from provision.controller.attempts import Attempts, key_of
from provision.controller.board import Board
from provision.controller.choice import Order, choose
from provision.controller.fingerprint import of_node, of_stack
from provision.controller.lane import Lane, LaneTenure, Told
from provision.controller.marker import Mark, Marker
from provision.controller.nodes import NodeBook
from provision.controller.standings import stands
from provision.rollout.errors import ClusterError, HeldError
from provision.stacks.derive import Observed, status_of
from provision.stacks.follower import STACKS, StackBook
from provision.stacks.membership import Membership, members
from provision.stacks.model import Stack
from provision.stacks.objects import StackObject
from provision.stacks.writer import write_status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.apply.model import NodeResult
    from provision.cluster.api import Api
    from provision.cluster.kubernetes_cluster import Held
    from provision.controller.nodes import SeenNode
    from provision.controller.rounds import Means
    from provision.stacks.follower import Followed

REST_S: Final = 0.2  # between two turns: what changes together is looked at together
STATUS_S: Final = 1.0  # between two looks at how all nodes of a stack stand, for its status
LONGEST_S: Final = 30.0  # without a turn
STUCK_S: Final = 300.0  # without a turn, a request that waits for an API server included
_NOBODY: Final = frozenset({Status.CANCELED})


@dataclass(slots=True)
class _StackMemory:
    """What the loop knows of one stack beside its object."""

    lane: Lane
    attempts: Attempts = field(default_factory=Attempts)
    fingerprint: bytes = b""
    fingerprint_of: tuple[str, int] = ("", -1)
    trouble: str = ""
    order: Order | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)  # of nodes, by how they stand
    looked_s: float = 0.0
    is_unwritten: bool = False


@dataclass(frozen=True, slots=True)
class Counts:
    """What probes and metrics tell: nodes by stack and how they stand; whether this process leads."""

    is_leader: bool = False
    nodes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    rounds: int = 0
    turns: int = 0


class Controller:
    """One process of `grapnel controller`; `run` returns when it is stopped, or has lost the lease.

    ``make_means`` makes what the rounds of one stack act through, of the hold on the lease that its cluster is to have.
    """

    def __init__(
        self,
        api: Api,
        make_means: Callable[[Held], Means],
        holder: str,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._make_means, self._holder, self._say, self._clock = api, make_means, holder, say, clock
        self._stop, self._wake = threading.Event(), threading.Event()
        self._inbox: queue.Queue[Told] = queue.Queue()
        self._nodes, self._stacks = NodeBook(self._wake.set), StackBook(self._wake.set)
        self._board = Board()
        self._membership = Membership()
        self._memory: dict[str, _StackMemory] = {}
        self.counts = Counts()
        self._turned_s = clock()

    def trouble(self) -> str:
        """Return why this process should be started again, empty where it need not be: its loop stands still."""
        silent_s = self._clock() - self._turned_s
        return f"no turn for {silent_s:.0f} s" if self.counts.is_leader and silent_s > STUCK_S else ""

    def stop(self) -> None:
        """Begin to end: what runs on nodes is told to end, and goes on from there with the next leader."""
        self._stop.set()
        self._wake.set()

    def run(self) -> None:
        """Wait for the lease, and lead until stopped. Raises ClusterError; LeaseLostError where the lease is lost."""
        tenure = Tenure(self._api, self._holder, progress=self._progress)
        while not self._stop.is_set():
            try:
                with hold(tenure):
                    self._say(f"{self._holder} leads")
                    self._lead(tenure)
            except HeldError as error:
                self._say(f"{error.message}: waiting for it")
                self._stop.wait(RENEW_S)
            else:
                return

    def _progress(self) -> str:
        standing = self._board.combined()
        return "" if standing is None else encode_progress(standing)

    def _lead(self, tenure: Tenure) -> None:
        marker = Marker(self._api.guarded(tenure.check), self._nodes, self._say)
        watchers: list[Watcher[Any]] = [
            Watcher(self._api, Source(path=NODES, item=Node), self._nodes),
            Watcher(self._api, Source(path=STACKS, item=StackObject), self._stacks),
        ]
        try:
            for watcher in watchers:
                watcher.start()
            while not self._stop.is_set():
                tenure.check()
                for watcher in watchers:
                    watcher.check()
                self._turn(tenure, marker)
                self._rest()
        finally:
            self.counts = Counts()
            self._end(watchers, marker)

    def _end(self, watchers: list[Watcher[Any]], marker: Marker) -> None:
        for memory in self._memory.values():
            memory.lane.stop()
        for memory in self._memory.values():
            memory.lane.join()
        for watcher in watchers:
            watcher.stop()
        for watcher in watchers:
            watcher.join()
        marker.close()

    def _rest(self) -> None:
        """Wait for something to happen, or for the next try."""
        now = self._clock()
        tries = [each for memory in self._memory.values() if (each := memory.attempts.next_s()) is not None]
        soonest = min((each - now for each in tries if each > now), default=LONGEST_S)
        unwritten = any(memory.is_unwritten or not memory.lane.is_idle for memory in self._memory.values())
        self._wake.wait(max(0.0, min(soonest, STATUS_S if unwritten else LONGEST_S)))
        self._stop.wait(REST_S)
        self._wake.clear()

    def _turn(self, tenure: Tenure, marker: Marker) -> None:
        """Look at everything once, and begin what is to be begun. Costs no request unless something has changed."""
        self._turned_s = self._clock()
        self._hear(marker)
        nodes, followed = self._nodes.all(), self._stacks.all()
        stacks = [each.stack for each in followed.values() if isinstance(each.stack, Stack)]
        labels = {name: node.labels for name, node in nodes.items()}
        membership = self._membership = members(stacks, labels, self._membership)
        for name, each in followed.items():
            memory = self._memory.get(name) or self._remember(name, tenure)
            stack = each.stack
            if isinstance(stack, Stack) and not stack.is_going:
                own = {node: nodes[node] for node in membership.owned[name]}
                memory.order = self._order(stack, memory, own)
                memory.lane.offer(memory.order)
            else:
                memory.order = None
                memory.lane.stop()
            self._look(each, memory, membership)
        for name in [name for name, memory in self._memory.items() if name not in followed]:
            self._memory[name].lane.stop()
            if self._memory[name].lane.is_idle:
                del self._memory[name]
        numbers = {(name, how): n for name in followed for how, n in self._memory[name].numbers.items()}
        rounds = sum(not memory.lane.is_idle for memory in self._memory.values())
        self.counts = Counts(is_leader=True, nodes=numbers, rounds=rounds, turns=self.counts.turns + 1)

    def _remember(self, name: str, tenure: Tenure) -> _StackMemory:
        holding: Callable[[], Any] = lambda: lane.hold  # noqa: E731 - the lane that is made below
        means = self._make_means(LaneTenure(tenure, self._board, name, holding))
        lane = Lane(name, means, self._board, self._tell, self._say, self._clock)
        self._memory[name] = _StackMemory(lane)
        return self._memory[name]

    def _order(self, stack: Stack, memory: _StackMemory, own: Mapping[str, SeenNode]) -> Order:
        if memory.fingerprint_of != (stack.uid, stack.generation):
            memory.fingerprint = of_stack(stack.spec, memory.lane.means.payload)
            memory.fingerprint_of, memory.trouble = (stack.uid, stack.generation), ""
        memory.attempts.forget_others(own.keys())
        return choose(stack, memory.fingerprint, own, memory.attempts, self._clock(), former=memory.order)

    def _tell(self, told: Told) -> None:
        self._inbox.put(told)
        self._wake.set()

    def _hear(self, marker: Marker) -> None:
        """Take what rounds have said since the last turn."""
        while True:
            try:
                told = self._inbox.get_nowait()
            except queue.Empty:
                return
            memory = self._memory.get(told.order.stack.name)
            if memory is None:
                continue
            for node in told.done:
                self._done(node, told.order, memory, marker)
            if told.outcome is not None:
                memory.trouble = "; ".join(str(error.message) for error in told.outcome.complaints)
                if memory.trouble:
                    self._say(f"{told.order.stack.name}: {memory.trouble}")
                for result in told.outcome.results:
                    self._ended(result, told.order, memory, marker, told.outcome.stop)
                if not told.outcome.results and told.outcome.complaints:
                    for node in told.order.due:
                        self._failed(node, told.order, memory, memory.trouble)
                memory.lane.ended(told)

    def _done(self, node: str, order: Order, memory: _StackMemory, marker: Marker) -> None:
        """Know that a node is as declared."""
        seen = self._nodes.get(node)
        former = order.members.get(node)
        if seen is None or former is None or seen.uid != former.uid:
            return
        if memory.fingerprint_of != (order.stack.uid, order.stack.generation):
            return  # another declaration by now
        fingerprint = of_node(memory.fingerprint, seen)  # it may have been rebooted meanwhile
        memory.attempts.succeeded(node, key_of(seen, fingerprint), self._clock())
        marker.mark(Mark(node, seen.uid, fingerprint))

    def _ended(self, result: NodeResult, order: Order, memory: _StackMemory, marker: Marker, stop: str) -> None:
        if result.status in _NOBODY or result.node not in order.due:
            return
        if result.is_good and result.status is not Status.SKIPPED:
            return  # it was told when it was done
        reason = result.failure.message if result.failure is not None else result.note or stop
        if result.status is Status.WAITING and not reason:
            return  # it is left to a rollout
        seen = self._nodes.get(result.node)
        is_left = seen is not None and seen.is_left_failed
        if seen is not None and (is_left or result.status is Status.RETURNED):
            # Before anything else is begun: what a rollout has left failed is not tried again by itself.
            self._write_mark(marker, Mark(result.node, seen.uid, order.targets[result.node].wanted, has_failed=True))
        needs_somebody = is_left or result.status in {Status.SKIPPED, Status.WAITING, Status.RETURNED}
        self._failed(result.node, order, memory, reason, needs_somebody=needs_somebody)

    def _write_mark(self, marker: Marker, mark: Mark) -> None:
        try:
            marker.write(mark)
        except ClusterError as error:
            self._say(f"node {mark.node} is not marked: {error.message}")

    def _failed(
        self, node: str, order: Order, memory: _StackMemory, reason: str, *, needs_somebody: bool = False
    ) -> None:
        seen = self._nodes.get(node)
        if seen is not None:
            key = key_of(seen, order.targets[node].wanted)
            memory.attempts.failed(node, key, reason, self._clock(), needs_somebody=needs_somebody)

    def _look(self, followed: Followed, memory: _StackMemory, membership: Membership) -> None:
        """Find out how the nodes of a stack stand, and write it: now and then, for it takes a look at each of them."""
        now = self._clock()
        if now - memory.looked_s < STATUS_S:
            memory.is_unwritten = True
            return
        memory.looked_s = now
        observed = self._observed(followed.stack.name, memory, membership)
        memory.numbers = Counter(stand.how.value for stand in observed.nodes.values())
        self._write(followed, memory, observed)

    def _observed(self, name: str, memory: _StackMemory, membership: Membership) -> Observed:
        disputed = {
            node: [other for other in membership.disputed[node] if other != name]
            for node in membership.claimed_twice(name)
        }
        if memory.order is None:
            return Observed(disputed=disputed)
        nodes = stands(memory.order, memory.lane.busy, self._board.get(name), memory.attempts)
        is_stuck = bool(memory.trouble) and not any(each.how.value == "as declared" for each in nodes.values())
        return Observed(nodes=nodes, disputed=disputed, trouble=memory.trouble if is_stuck else "")

    def _write(self, followed: Followed, memory: _StackMemory, observed: Observed) -> None:
        status = status_of(followed.stack, observed, followed.status, datetime.now(UTC))
        memory.is_unwritten = status != followed.status
        if not memory.is_unwritten:
            return
        try:
            written = write_status(self._api, followed.stack.name, followed.stack.uid, status)
        except ClusterError as error:
            self._say(f"{followed.stack.name}: its status is not written: {error.message}")
            return
        if written is not None:
            self._stacks.put(written)
            memory.is_unwritten = False
