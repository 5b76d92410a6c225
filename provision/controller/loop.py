"""The controller: leads, watches Nodes and GpuStacks, and has rounds carried out where they differ.

One process leads, by a lease of its own; the others wait for it. Who loses it ends, and is started again by its
Deployment: nothing that it knew is kept, and everything that matters stands in the cluster. The lease of whoever
changes nodes is another one (`Work`): it is held while rounds run, and free for a terminal while none does.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from provision.cluster.kubernetes.lease import RENEW_S, Tenure, hold
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.permissions import LEADER_NAME
from provision.cluster.kubernetes.watch.informer import NODES
from provision.cluster.kubernetes.watch.watcher import Source, Watcher
from provision.cluster.progress import encode_progress
from provision.controller.decision.blockers import blockers_of
from provision.controller.decision.choice import Order, choose, with_way_back
from provision.controller.decision.fingerprint import of_stack
from provision.controller.decision.leaving import leave
from provision.controller.domains.desk import DomainDesk
from provision.controller.marker import Marker
from provision.controller.nodes import NodeBook
from provision.controller.publication.board import Board
from provision.controller.publication.event_writer import EventWriter
from provision.controller.publication.metrics import Counts
from provision.controller.publication.publisher import STATUS_S, Publisher
from provision.controller.rounds.keeper import Keeper
from provision.controller.rounds.lane import Lane, LaneTenure, Told
from provision.controller.rounds.reports import Reports, StackMemory
from provision.controller.rounds.work import LOOK_S, Work
from provision.controller.stacks.follower import STACKS, StackBook, require_served
from provision.controller.stacks.membership import Membership, members
from provision.controller.stacks.model import Stack, StackObject
from provision.controller.stacks.secret_hosts import NOWHERE
from provision.controller.tenants import TenancyDesk
from provision.rollout.errors import ClusterError, HeldError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.cluster import Held
    from provision.controller.nodes import SeenNode
    from provision.controller.rounds.apply import Dependencies
    from provision.controller.stacks.follower import Followed
    from provision.controller.stacks.secret_hosts import SecretHosts

REST_S: Final = 0.2  # between two turns: what changes together is looked at together
LONGEST_S: Final = 30.0  # without a turn
UNINSTALLED: Final = "the controller is being uninstalled"
STUCK_S: Final = 300.0  # without a turn, a request that waits for an API server included


class Controller:
    """One process of `grapnel controller`; `run` returns when it is stopped, or leads no more.

    ``make_dependencies`` makes what the rounds of one stack act through, of the hold on the lease that its cluster is
    to have. ``node`` is the Node that its pod is on; whoever runs it elsewhere leaves it out. ``secret_hosts`` says
    with which hosts Secrets of its pod may be used. ``domains_in`` is the namespace in which it remembers whose cliques
    are; empty: it serves no ComputeDomains.
    """

    def __init__(
        self,
        api: Api,
        make_dependencies: Callable[[Held], Dependencies],
        holder: str,
        *,
        say: Callable[[str], None],
        node: str = "",
        secret_hosts: SecretHosts = NOWHERE,
        domains_in: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node, self._domains_in = node, domains_in
        self._api, self._make_dependencies, self._holder, self._say, self._clock = (
            api,
            make_dependencies,
            holder,
            say,
            clock,
        )
        self._stop, self._wake = threading.Event(), threading.Event()
        self._inbox: queue.Queue[Told] = queue.Queue()
        self._nodes, self._stacks = NodeBook(self._wake.set, clock), StackBook(self._wake.set, secret_hosts)
        self._board = Board()
        self._membership = Membership()
        self._memory: dict[str, StackMemory] = {}
        self._keeper = Keeper(api, self._stacks)
        self._marker = Marker(api, self._nodes, self._complain, clock)
        self._tenure = Tenure(api, holder, name=LEADER_NAME)
        self._work = Work(api, holder, lead=self._tenure.check, progress=self._progress, say=say, clock=clock)
        self._is_away = self._is_ending = False
        self._marking: frozenset[str] = frozenset()
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
        """Wait until no other replica leads, and lead until stopped. Raises ClusterError, LeaseLostError among them."""
        told = ""
        while not self._stop.is_set():
            try:
                with hold(self._tenure):
                    self._say(f"{self._holder} leads")
                    try:
                        self._lead()
                    finally:  # whoever has it next may change what was written until now
                        self._work.give_back()
            except (HeldError, UnreachableError) as error:
                if error.message != told:  # once, and not every ten seconds for weeks
                    self._say(f"{error.message}: waiting")
                told = error.message
                self._stop.wait(RENEW_S)
            else:
                return

    def _progress(self) -> str:
        standing = self._board.combined()
        return "" if standing is None else encode_progress(standing)

    def _lead(self) -> None:
        require_served(self._api)
        acting = self._api.guarded(self._tenure.check)
        marker = self._marker = Marker(acting, self._nodes, self._complain, self._clock)
        self._keeper = Keeper(acting, self._stacks)
        reports = Reports(self._nodes, marker, self._say, self._clock)
        desk = TenancyDesk(acting, wake=self._wake.set, say=self._say, clock=self._clock)
        events = EventWriter(acting, self._say)
        publisher = Publisher(self._api, self._stacks, self._board, events, desk, self._say, self._clock, self._node)
        domains = DomainDesk(self._api, acting, self._domains_in, say=self._say)
        watchers: list[Watcher[Any]] = [
            Watcher(self._api, Source(path=NODES, item=Node), self._nodes),
            Watcher(self._api, Source(path=STACKS, item=StackObject), self._stacks),
        ]
        try:
            if self._domains_in:
                domains.start()
            for watcher in watchers:
                watcher.start()
            while not self._stop.is_set():
                self._tenure.check()
                domains.check()
                if self._are_fresh(watchers):
                    self._turn(reports, publisher)
                self._rest()
        except UnreachableError as error:  # at its start: nothing was begun, and nothing is lost with the lease
            raise ClusterError(error.message, hint=error.hint) from error
        finally:
            self.counts = Counts()
            domains.close()
            self._end(watchers, reports)
            publisher.close()

    def _are_fresh(self, watchers: Sequence[Watcher[Any]]) -> bool:
        """Tell whether what is known is up to date. An API server that restarts is waited for as long as the lease is.

        Raises what will not pass.
        """
        try:
            for watcher in watchers:
                watcher.check()
        except UnreachableError as error:
            if not self._is_away:
                self._say(f"{error.message}: nothing further begins until it does")
            self._is_away = True
            return False
        if self._is_away:
            self._say(f"{self._api.name} answers again")
        self._is_away = False
        return True

    def _end(self, watchers: Sequence[Watcher[Any]], reports: Reports) -> None:
        self._stop_rounds()
        for memory in self._memory.values():
            memory.lane.join()
        for watcher in watchers:
            watcher.stop()
        for watcher in watchers:
            watcher.join()
        self._hear(reports)  # what the rounds have said last is known to the next leader
        self._let_go()
        reports.marker.close()

    def _stop_rounds(self) -> None:
        for memory in self._memory.values():
            memory.lane.stop()

    def _let_go(self) -> None:
        """Keep no stack from going that needs no more: there may be no next leader."""
        nodes, followed = self._nodes.all(), self._stacks.all()
        labels = {name: node.labels for name, node in nodes.items()}
        owned = members([each.stack for each in followed.values()], labels).owned
        for name, memory in self._memory.items():
            if (each := followed.get(name)) is not None:
                order = self._order(each, memory, {node: nodes[node] for node in owned.get(name, ())})
                with contextlib.suppress(ClusterError):
                    self._keeper.settle(each, order, is_idle=memory.lane.is_idle)

    def _rest(self) -> None:
        """Wait for something to happen, or for the next try."""
        now = self._clock()
        tries = [each for memory in self._memory.values() if (each := memory.attempts.next_s()) is not None]
        soonest = min((each - now for each in tries if each > now), default=LONGEST_S)
        unwritten = any(memory.is_unwritten or not memory.lane.is_idle for memory in self._memory.values())
        # What is waited for may be the end of a pause, or of a run at a terminal.
        waiting = any(memory.attempts.has_waiting or memory.held_up for memory in self._memory.values())
        longest = STATUS_S if unwritten else LOOK_S if waiting else LONGEST_S
        self._wake.wait(max(0.0, min(soonest, longest)))
        self._stop.wait(REST_S)
        self._wake.clear()

    def _turn(self, reports: Reports, publisher: Publisher) -> None:
        """Look at everything once, and begin what is to be begun. Costs no request unless something has changed."""
        self._turned_s = self._clock()
        if self._work.is_lost:  # another process may change these nodes at any moment
            self._stop_rounds()
        self._hear(reports)
        self._hear_of_end()
        reports.marker.again()
        self._marking = reports.marker.marking()  # before the Nodes: what is written by then, they have
        nodes, followed = self._nodes.all(), self._stacks.all()
        labels = {name: node.labels for name, node in nodes.items()}
        membership = self._membership = members([each.stack for each in followed.values()], labels, self._membership)
        for name, each in followed.items():
            memory = self._memory.get(name) or self._remember(name)
            own = {node: nodes[node] for node in membership.owned.get(name, ())}
            self._requeue_waiting(each, memory, own)
            order = self._order(each, memory, own)
            memory.lane.miss(memory.lane.busy - nodes.keys())
            self._offer(each, memory, order, nodes.keys() - own.keys())
            if order is not None:
                reports.adopt(order, memory)
            publisher.look(each, memory, order, membership, reports.marker.unwritten())
        publisher.desk.forget_others(followed)
        for name in [name for name, memory in self._memory.items() if name not in followed]:
            self._memory[name].lane.wind_down("its GpuStack is gone")
            if self._memory[name].lane.is_idle:
                del self._memory[name]
        if all(memory.lane.is_idle for memory in self._memory.values()):
            self._work.give_back()
        rounds = sum(not memory.lane.is_idle for memory in self._memory.values())
        counted = {name: self._memory[name].counts for name in followed}
        turns = self.counts.turns + 1
        self.counts = Counts(is_leader=True, stacks=counted, rounds=rounds, turns=turns, turn=time.time())

    def _requeue_waiting(self, followed: Followed, memory: StackMemory, own: Mapping[str, SeenNode]) -> None:
        """Make nodes due that a round has left waiting, where that is over."""
        if memory.attempts.has_waiting and memory.lane.is_at_rest:
            self._work.look()
            blockers = blockers_of(followed.stack.generation, self._work.pause, own, self._clock())
            memory.attempts.requeue_waiting(blockers)

    def _hear_of_end(self) -> None:
        """Know whether this controller is about to be uninstalled."""
        was_ending, self._is_ending = self._is_ending, self._tenure.is_uninstalling
        if self._is_ending != was_ending:
            self._say(f"{UNINSTALLED}: nothing further begins" if self._is_ending else "not uninstalled: it goes on")
            for memory in self._memory.values():
                memory.attempts.forget_waiting()

    def _offer(self, followed: Followed, memory: StackMemory, order: Order | None, strangers: AbstractSet[str]) -> None:
        """Begin, or end, what a stack asks for. ``strangers`` are the Nodes that are not its own."""
        lane = memory.lane
        try:
            is_kept, why = self._keeper.settle(followed, order, is_idle=lane.is_idle), ""
        except ClusterError as error:
            is_kept, why = False, f"it cannot be kept from going: {error.message}"
            if why != memory.why_not_kept:
                self._say(f"{lane.name}: {why}")
        memory.why_not_kept, memory.held_up = why, ""
        if order is None:
            lane.wind_down("the declaration cannot be used any more")
            return
        others = [each.lane.busy for each in self._memory.values() if each.lane is not lane]
        order = order.without(frozenset().union(*others))
        lane.ending = UNINSTALLED if self._is_ending else ""
        if self._is_ending and not followed.stack.is_going:  # what was deleted is brought to its end
            order = order.only_in_flight()
        may_begin = is_kept and (not order.due or self._work.take())
        if is_kept and not may_begin:
            memory.held_up = self._work.in_the_way
        before = lane.busy
        lane.offer(order if may_begin else order.without(order.due), before & strangers)
        memory.attempts.begun(lane.busy - before)

    def _remember(self, name: str) -> StackMemory:
        dependencies = self._make_dependencies(LaneTenure(self._work, self._board, name))
        dependencies = replace(dependencies, keep=self._keeper.keep, withdraw=self._marker.withdraw)
        lane = Lane(name, dependencies, self._board, self._tell, self._say, self._clock)
        self._memory[name] = StackMemory(lane)
        return self._memory[name]

    def _order(self, followed: Followed, memory: StackMemory, own: Mapping[str, SeenNode]) -> Order | None:
        stack = followed.stack
        if not isinstance(stack, Stack):
            return None
        if memory.fingerprint_of != (stack.uid, stack.generation):
            memory.fingerprint = of_stack(stack.spec, memory.lane.dependencies.payload)
            memory.fingerprint_of, memory.trouble = (stack.uid, stack.generation), ""
            memory.removed.clear()
            self._marker.forget(own)
        memory.attempts.forget_others(own.keys())
        now = self._clock()
        former, attempts = memory.order, memory.attempts
        order = choose(stack, memory.fingerprint, own, attempts, now, former=former, marking=self._marking)
        memory.order = order
        if stack.is_going:
            return leave(order, memory.removed, memory.attempts, now, self._age_s(followed))
        return with_way_back(order, memory.attempts, now)

    def _age_s(self, followed: Followed) -> float:
        """Return for how long a stack has been deleted, by the API server's clock."""
        try:
            return (self._api.now() - datetime.fromisoformat(followed.deleted)).total_seconds()
        except ValueError:
            return 0.0

    def _complain(self, text: str) -> None:
        """Say what could not be written on a Node, and have the status of its stack say it, too."""
        self._say(text)
        self._wake.set()

    def _tell(self, told: Told) -> None:
        self._inbox.put(told)
        self._wake.set()

    def _hear(self, reports: Reports) -> None:
        """Take what rounds have said since the last turn."""
        while True:
            try:
                told = self._inbox.get_nowait()
            except queue.Empty:
                return
            memory = self._memory.get(told.order.stack.name)
            if memory is not None:
                reports.take(told, memory)
