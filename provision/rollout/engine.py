"""Observes, decides and acts, again and again, until nothing is left to do or there is a reason to stop.

Everything that has to outlive this process is written where node state lives before the effect that it names:
the next apply continues what was killed here. Steps on nodes run beside it, through an executor; state,
decisions and progress belong to the calling thread. Time passes only by the clock and the executor that it is given.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import compress
from operator import is_not
from typing import TYPE_CHECKING, Final

from provision.apply.model import Failure, Note
from provision.rollout.decision.decide import decide
from provision.rollout.decision.order.domains import members_of
from provision.rollout.decision.order.membership import domains_of, waves_of
from provision.rollout.decision.outcome import RolloutResult
from provision.rollout.decision.snapshot import (
    Decision,
    Evict,
    RequestMaintenance,
    RunStep,
    Snapshot,
    Withdraw,
    Write,
)
from provision.rollout.errors import ClusterError, ConflictError, LeaseLostError, UnreachableError
from provision.rollout.evictions import Evictions
from provision.rollout.interface.cluster import NodeWrite
from provision.rollout.interface.progress import NodeWaits, PhaseEntered
from provision.rollout.interface.standing import Standing
from provision.rollout.model import Phase
from provision.rollout.states import entered, seen, stepped
from provision.rollout.steps.executor import Pace, StepEnded, pauses

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from provision.apply.model import NodeResult
    from provision.rollout.adapters import Adapters
    from provision.rollout.decision.policy import Policy
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.interface.cluster import NodeProblem
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.progress import RolloutObserver
    from provision.rollout.model import NodeView

GIVE_UP: Final = timedelta(seconds=60)  # without an answer of the cluster
RETRIES: Final = 10  # of one node in one process
LOOK_AGAIN: Final = timedelta(seconds=2)  # between two searches for the pods of processes on one node


class Engine:
    """One rollout. ``nodes`` are all that the apply manages, as they were first seen, in the inventory's order."""

    def __init__(
        self,
        adapters: Adapters,
        nodes: Sequence[NodeState],
        policy: Policy,
        *,
        observe: RolloutObserver,
        cancel: threading.Event,
    ) -> None:
        self._adapters, self._cluster, self._clock = adapters, adapters.cluster, adapters.clock
        self._policy, self._observe, self._cancel = policy, observe, cancel
        self._instructions = adapters.instructions
        self._called_off: Mapping[str, str] = {}
        self._waves, self._domains, self._places = waves_of(nodes, policy), domains_of(nodes), members_of(nodes)
        self._nodes = {node.name: node for node in nodes}
        self._obstacles = {node.name: node.obstacle for node in nodes}
        self._began = self._decided = self._clock()
        self._pauses, self._pace = pauses(adapters.poll_s), Pace(self._began, adapters.poll_s)
        self._views: dict[str, NodeView | NodeProblem] = {}
        self._told: Mapping[str, str] = {}
        self._evictions = Evictions(adapters.cluster)
        self._still_since: datetime | None = None
        self._paused: Pause | None = None
        self._retries: Counter[str] = Counter()
        self._unreachable_since: datetime | None = None
        flying = sum(node.is_in_flight for node in nodes)
        largest = max((len(each.nodes) for each in self._domains), default=0)  # it may begin alone, as a whole
        workers = min(len(nodes), max(policy.max_parallel, largest) + flying)
        self._executor = adapters.executor(adapters.steps, cancel, workers)
        self._decision = Decision()
        self._stop = ""
        self._moved: set[str] = set()
        self._put_back: set[str] = set()
        self._held: dict[str, datetime | None] = {}  # nodes on which a process held a GPU, and when pods were looked up
        self._failures: dict[str, Failure] = {}
        self._swapped: dict[str, NodeResult] = {}

    def run(self) -> RolloutResult:
        """Roll out until it is over. What goes wrong is in the result; only bugs are raised."""
        try:
            self._roll_out()
        except BaseException:
            self._cancel.set()  # so that there is an end to wait for
            raise
        finally:
            self._executor.close()
        self._publish()
        return RolloutResult(
            nodes=tuple(self._nodes.values()),
            moved=frozenset(self._moved),
            put_back=frozenset(self._put_back),
            waiting=self._decision.waiting,
            stop=self._stop or self._decision.stop or "",
            failures=self._failures,
            swapped=self._swapped,
            ended=self._clock(),
            is_handed_over=self._is_handing_over,
        )

    def _roll_out(self) -> None:
        is_over = False
        while not is_over:
            if self._has_to_end:
                is_over = self._wind_down()
                continue
            try:
                with self._cluster.watching(tuple(self._nodes), self._executor.wake):
                    while not is_over:
                        is_over = self._turn()
            except UnreachableError as error:  # it could not begin; a turn handles its own errors
                self._wait_for_cluster(error)
            except ClusterError as error:
                self._end(error)

    def _turn(self) -> bool:
        """Observe, decide and act once; return whether it is over."""
        if self._has_to_end:  # a step that was ended must not be taken for one that failed
            return self._wind_down()
        try:
            called_off = self._instructions.called_off
            changed = self._observe_nodes()
            self._call_off(called_off)
            self._find_holding()
            self._observe_pause()
            self._observe_retries(changed)
            decision = self._decide()
            self._act(decision)
            self._tell(decision)
            self._publish()
            self._instructions.heeded = called_off
        except ConflictError as error:  # others have changed the node: what they did is seen in the next turn
            self._observe(Note("", f"{error.message}: observing it again"))
            self._pause(self._adapters.poll_s)
            return False
        except UnreachableError as error:
            self._wait_for_cluster(error)
            return False
        except ClusterError as error:
            self._end(error)
            return False
        self._unreachable_since = None
        if any(isinstance(action, Write | Withdraw) for action in decision.actions):
            self._pauses = pauses(self._adapters.poll_s)
            self._pause(0)
        elif not decision.is_over:
            self._pause(next(self._pauses))
        return decision.is_over

    def _end(self, error: ClusterError) -> None:
        self._stop = error.message
        if isinstance(error, LeaseLostError):  # another engine may be at these nodes any moment
            self._cancel.set()

    @property
    def _is_handing_over(self) -> bool:
        return self._instructions.hand_over.is_set()

    @property
    def _has_to_end(self) -> bool:
        return self._cancel.is_set() or bool(self._stop) or self._is_handing_over

    def _wind_down(self) -> bool:
        """Start nothing more and wait for the steps that run; return whether there are none."""
        running = frozenset(node.name for node in self._nodes.values() if node.is_busy)
        self._instructions.running = running
        if self._is_handing_over and not self._cancel.is_set():
            reason = self._instructions.reason
            left = {name: reason for name, node in self._nodes.items() if node.is_in_flight and name not in running}
            self._decision = replace(self._decision, waiting=left, stop=None)
            self._publish()
        if not running:
            return True
        self._pause(self._adapters.poll_s)
        return False

    def _call_off(self, called_off: Mapping[str, str]) -> None:
        """Take over which nodes are not to be changed any more."""
        if called_off == self._called_off:
            return
        for name in self._nodes.keys() & (called_off.keys() | self._called_off.keys()):
            self._nodes[name] = replace(self._nodes[name], called_off=called_off.get(name, ""))
        self._called_off = called_off

    def _wait_for_cluster(self, error: UnreachableError) -> None:
        now = self._clock()
        if self._unreachable_since is None:
            self._unreachable_since = now
            self._observe(Note("", f"{error.message}: trying again"))
        if now - self._unreachable_since >= GIVE_UP:
            self._stop = f"{error.message}, for {int(GIVE_UP.total_seconds())} seconds"
        else:
            self._pause(self._adapters.poll_s)

    def _observe_nodes(self) -> list[str]:
        """Take over what has changed, and return which nodes have: what has not is the same object."""
        views, known, now = self._cluster.observe(tuple(self._nodes)), self._views, self._clock()
        changed = list(compress(views, map(is_not, views.values(), map(known.get, views))))  # of thousands, few
        for name in changed:
            known[name] = views[name]
            self._nodes[name] = seen(self._nodes[name], views[name], self._obstacles[name], now)
        return changed

    def _find_holding(self) -> None:
        """Look up the pods of which a process holds a GPU that they did not ask for; few nodes have any."""
        now = self._decided
        for name, looked in tuple(self._held.items()):
            node = self._nodes[name]
            uids = node.holding_uids
            if not uids:
                del self._held[name]
                self._nodes[name] = replace(node, holding=())
            elif looked is None or abs(now - looked) >= LOOK_AGAIN:
                self._held[name] = now
                self._nodes[name] = replace(node, holding=self._cluster.find_pods(name, uids))

    def _observe_retries(self, changed: Sequence[str]) -> None:
        """Let nodes begin again that failed here and that are to be tried again, as was asked for.

        It is written on the node, which may write it itself: it gets no more tries than a person would ask for.
        """
        for name in changed:
            node = self._nodes[name]
            record = node.record
            if record is None or not node.has_failed or not record.retry or self._retries[name] >= RETRIES:
                continue
            self._retries[name] += 1
            self._nodes[name] = replace(node, has_failed=False, step=None)
            self._observe(Note(name, "somebody has asked for another try"))

    def _observe_pause(self) -> None:
        found = self._cluster.paused()
        pause = None if found == self._policy.despite else found
        if pause is not None and pause != self._paused:
            self._observe(Note("", f"{pause.as_reason}: nodes in flight are finished, and no other begins"))
        elif pause is None and self._paused is not None:
            self._observe(Note("", "resumed: further nodes may begin"))
        self._paused = pause

    def _decide(self) -> Decision:
        now = self._decided = self._clock()
        snapshot = Snapshot(
            nodes=tuple(self._nodes.values()),
            began=self._began,
            still_since=self._still_since,
            pause=self._paused,
            passed=self._decision.passed,
            domains=self._places,
            gates=self._adapters.gates.states(),
        )
        self._decision = decide(snapshot, self._policy, now)
        self._still_since = (self._still_since or now) if self._decision.is_still else None
        return self._decision

    def _tell(self, decision: Decision) -> None:
        """Tell which nodes wait for another reason than they did, in the inventory's order."""
        waiting, told = decision.waiting, self._told
        self._told = waiting
        changed = {name for name, reason in waiting.items() if told.get(name, "") != reason}
        changed.update(name for name in told.keys() - waiting.keys() if told[name])
        for name in [name for name in self._nodes if name in changed] if changed else ():
            self._observe(NodeWaits(name, waiting.get(name, ""), is_out=self._nodes[name].is_in_flight))

    def _publish(self) -> None:
        ahead = self._policy.waves[self._decision.passed :][:-1]  # the soak of the last one is not waited for
        standing = Standing(
            began=self._began,
            time=self._decided,
            at_once=min(self._policy.max_parallel, self._policy.max_unavailable),
            soak=self._policy.soak,
            wave_soak=sum((wave.soak for wave in ahead), start=timedelta(0)),
            is_held=self._decision.is_closed or any(wave.is_held for wave in ahead),
            out=frozenset([node.name for node in self._nodes.values() if node.is_in_flight or node.is_busy]),
            waiting=self._decision.waiting,
            stop=self._stop or self._decision.stop or "",
            waves=self._waves,
            domains=self._domains,
        )
        self._cluster.publish(standing)
        self._adapters.publish(standing, tuple(self._nodes.values()))

    def _act(self, decision: Decision) -> None:
        """Do what was decided: of one node, one thing."""
        for name in decision.given_up:
            self._nodes[name] = replace(self._nodes[name], has_failed=True)
            self._moved.add(name)
        self._write([action for action in decision.actions if isinstance(action, Write)])
        self._evict([action for action in decision.actions if isinstance(action, Evict)])
        for action in decision.actions:
            if isinstance(action, RunStep):
                self._begin_step(action)
            elif isinstance(action, Withdraw):
                self._withdraw(action)
            elif isinstance(action, RequestMaintenance):
                self._cluster.request_maintenance(action.node)

    def _write(self, actions: Sequence[Write]) -> None:
        """Write several records at a time; tell those that are written, and raise what is not about one node alone."""
        if not actions:
            return
        changes = [
            NodeWrite(each.node, each.record.measured(self._nodes[each.node].record, self._began), each.cordoned)
            for each in actions
        ]
        failed = self._cluster.write_all(changes)
        for change, action in zip(changes, actions, strict=True):
            if change.node not in failed:
                self._enter(change, action.remark)
        if failed:
            raise next((error for error in failed.values() if not isinstance(error, ConflictError)), None) or next(
                iter(failed.values())
            )

    def _enter(self, change: NodeWrite, remark: str) -> None:
        record, node = change.record, self._nodes[change.node]
        self._nodes[change.node] = entered(node, record)
        self._moved.add(change.node)
        takes_pods = record.phase is Phase.FAILED and self._nodes[change.node].takes_pods
        is_former = record.target != node.target and not node.back_for
        self._observe(
            PhaseEntered(
                change.node,
                record.phase,
                record.complaint,
                remark,
                takes_pods,
                is_former=is_former,
                is_in_place=record.kind.is_in_place,
            )
        )
        if remark:
            self._observe(Note(change.node, remark))

    def _withdraw(self, action: Withdraw) -> None:
        self._cluster.write(action.node, action.record, cordoned=action.cordoned)
        node = self._nodes[action.node]
        after = replace(node, view=replace(node.view, record=action.record), step=None, blocked={})
        is_pending = after.wants_to_begin or bool(after.obstacle)
        self._nodes[action.node] = after if is_pending else replace(after, wave=None)  # it has nothing to prove
        self._moved.discard(action.node)
        self._put_back.add(action.node)
        why = f" as it was: {action.why}" if action.why else ": it begins again when it may be out of service"
        self._observe(Note(action.node, f"back in service{why}"))

    def _evict(self, actions: Sequence[Evict]) -> None:
        if self._evictions.ask(actions, self._nodes, self._decided):
            self._pauses = pauses(self._adapters.poll_s)

    def _begin_step(self, action: RunStep) -> None:
        self._cluster.check_lease()  # a machine that slept must not touch nodes that another one is at by now
        self._nodes[action.node] = replace(self._nodes[action.node], is_busy=True)
        self._moved.add(action.node)
        if action.back is None:
            self._executor.start(action.node, action.phase)
        else:
            self._executor.start(action.node, action.phase, action.back)

    def _pause(self, timeout_s: float) -> None:
        """Tell what has happened, and wait for something to happen if nothing has."""
        least_s = self._pace.rest_s(self._clock())
        for event in self._executor.wait(max(timeout_s, least_s), least_s):
            if isinstance(event, StepEnded):
                self._end_step(event)
            else:
                self._observe(event)

    def _end_step(self, event: StepEnded) -> None:
        outcome, failure = event.outcome, event.outcome.failure
        self._nodes[event.node] = stepped(self._nodes[event.node], event.phase, outcome, self._clock())
        if outcome.holders:
            self._held[event.node] = None
        if outcome.swapped is not None:
            self._swapped[event.node] = outcome.swapped
        if failure is not None:
            self._failures[event.node] = failure
