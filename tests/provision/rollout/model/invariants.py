"""What has to hold at every effect of an engine, whatever has happened before."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from provision.apply.model import Status
from provision.declaration.spec.values.shares import count_of
from provision.rollout.errors import LeaseLostError
from provision.rollout.model import NodeView, Phase
from tests.provision.rollout.model.transitions import is_legal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from provision.rollout.decision.policy import Policy
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.engine import Engine
    from provision.rollout.model import GpuPod, Origin, Record
    from provision.rollout.simulate.cluster import SimulatedCluster
    from provision.rollout.simulate.machine import Machine
    from provision.rollout.simulate.world import World
    from provision.rollout.step import StepOutcome


UNTOUCHED = (Phase.CORDON, Phase.JOBS, Phase.DRAIN)
EMPTIED = (Phase.DRAIN, Phase.RELEASE, Phase.SWAP, Phase.ROLLBACK)  # people may have let pods in again meanwhile


class ViolationError(AssertionError):
    """Something that must never be the case is."""


def hold(condition: object, what: str) -> None:
    """Raise unless the condition holds."""
    if not condition:
        raise ViolationError(what)


@dataclass
class History:
    """What outlives processes: the driver that each node was swapped to, as an engine that went on from there knew."""

    swapped: dict[str, str] = field(default_factory=dict)


@dataclass
class Invariants:
    """Holds the effects of one process against what it knows: what it observed in this turn, and did since.

    ``blamed`` are nodes whose failure here may be the change's, ``failed`` all that failed here, or are not tried
    again. ``proven`` are waves that are over and have soaked. ``why_gated`` is what a gate that is closed says.
    ``abandoned`` nodes are people's, as is what has failed on them. ``cut`` are nodes whose last step was ended by
    others: nobody knows what became of what it had begun.
    """

    world: World
    cluster: SimulatedCluster
    engine: Engine
    policy: Policy
    history: History
    undoes: bool
    why_gated: Callable[[], str]
    abandoned: set[str]
    before: Callable[[], None] = lambda: None
    failed: set[str] = field(default_factory=set)
    blamed: set[str] = field(default_factory=set)
    proven: set[int] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Count as failed what an earlier rollout to the same declaration left failed, as the engine is told."""
        self.failed |= {name for name, node in self.engine._nodes.items() if node.has_failed}

    def write(self, node: str, record: Record | None, cordoned: bool | None) -> None:  # noqa: FBT001 - as the protocol has it
        self.before()
        machine = self.world.machines[node]
        seen = self.known(node)
        if (
            self.has_lost_lease
            or seen is None
            or seen.uid != machine.uid
            or machine.record != seen.record
            or machine.is_cordoned != seen.is_cordoned
        ):
            return  # the cluster refuses it
        state = self.engine._nodes[node]
        if state.is_unwritten:  # it was registered again; what is remembered of it goes on
            seen = replace(seen, record=state.record)
        self.hold_others_cordon(machine, cordoned)
        if record is None or (seen.record is not None and record == seen.record.last_upgrade):
            self.forget(machine, seen.record)
            hold(record is None or machine.driver == record.target, f"{node} is told to be {record} again")
            return
        was = None if seen.record is None else seen.record.phase
        is_again = was is record.phase  # a node that somebody uncordoned is cordoned again
        hold(is_again or is_legal(was, record.phase), f"{node} goes from {was} to {record.phase}")
        hold(cordoned is not False or record.phase.is_in_service, f"{node} is uncordoned in {record.phase}")
        if not is_again and (was is None or was.is_over):
            self.begin(node, seen)
        if record.has_failed and not is_again:
            self.hold_known(node, record)
            self.fail(node, record)
        if record.phase.is_in_service:
            self.finish(machine, record)
        if record.phase is Phase.DRAIN and not is_again:
            self.hold_jobs(node, seen)
        if record.phase is Phase.VERIFY and was is Phase.SWAP and self.has_lease:
            self.history.swapped[node] = record.target

    @property
    def has_lease(self) -> bool:
        tenancy = self.cluster.tenancy
        return tenancy.owner is self.cluster.tenant and self.world.time.now_s - tenancy.renewed_s <= 45

    @property
    def has_lost_lease(self) -> bool:
        try:
            self.cluster.check_lease()
        except LeaseLostError:
            return True
        return False

    def ended(self, node: str, outcome: StepOutcome, *, is_asked: bool) -> None:
        """Take note of how a step has ended; ``is_asked``: whoever began it wanted no more of it."""
        self.cut.discard(node)
        if outcome.failure is not None and outcome.failure.status is Status.CANCELED and not is_asked:
            self.cut.add(node)

    def hold_known(self, node: str, record: Record) -> None:
        """Hold that nothing is undone, or given up, for a step that was ended by others: what it began may be good."""
        is_lost = self.engine._nodes[node].lost_since is not None
        hold(node not in self.cut or record.because_of or is_lost, f"{node} is in {record.phase} for a step cut off")

    def forget(self, machine: Machine, record: Record | None) -> None:
        """Hold that a node goes back into service as it was: not touched, or verified with what it has."""
        is_off = record is not None and record.phase is Phase.RESUME and record.is_called_off
        is_untouched = record is not None and record.phase in UNTOUCHED and not record.is_touched
        hold(is_off or is_untouched, f"{machine.name} is forgotten in {record}")
        hold(is_untouched or machine.verified == machine.driver, f"{machine.name} is forgotten and was not verified")
        hold(not machine.is_released, f"{machine.name} is forgotten and does not offer its GPUs")
        hold(machine.change is None, f"{machine.name} is forgotten while its driver is changed")
        self.hold_domain(machine)

    def fail(self, node: str, record: Record) -> None:
        hold(record.reason, f"{node} fails without a reason")
        if record.target != self.engine._nodes[node].target:  # what failed is not what is declared by now
            return
        if record.is_blamed:
            self.blamed.add(node)
        if record.phase.is_over:
            self.failed.add(node)

    def finish(self, machine: Machine, record: Record) -> None:
        """Hold that what goes back into service was verified, offers its GPUs and suits its domain."""
        name = machine.name
        is_done = record.phase is Phase.DONE
        target = self.engine._nodes[name].target
        wanted = record.target if is_done else record.origin
        hold(not is_done or record.target == target, f"{name} is done with a target that is not declared")
        hold(machine.driver == wanted, f"{name} is {record.phase} with driver {machine.driver}")
        is_put_back = not is_done and record.failed_in in UNTOUCHED and not record.is_touched  # nothing was done to it
        hold(is_put_back or machine.verified == wanted, f"{name} is {record.phase} and was not verified")
        hold(not machine.is_released, f"{name} is done and does not offer its GPUs")
        self.hold_domain(machine)

    @staticmethod
    def hold_others_cordon(machine: Machine, cordoned: bool | None) -> None:  # noqa: FBT001 - as the protocol has it
        is_ours = cordoned is not False or not machine.cordoned_by
        hold(is_ours, f"{machine.name} is uncordoned, which {machine.cordoned_by} wants not")

    def begin(self, node: str, seen: NodeView) -> None:
        """Hold that a node may be taken out of service now, or tried again."""
        state = self.engine._nodes[node]
        is_retry = seen.record is not None and seen.record.retry
        hold(is_retry or node not in self.failed, f"{node} begins again, and nobody asked for that")
        self.failed.discard(node)
        self.abandoned.discard(node)
        self.blamed -= {node, *self.abandoned}
        hold(len(self.blamed) <= self.policy.max_failures, f"{node} begins after failures of {self.blamed}")
        hold(seen.is_ready, f"{node} begins and is not ready")
        hold(not seen.is_skipped and not seen.held_by, f"{node} begins, and others want it left alone")
        hold(self.world.pause is None, f"{node} begins although that is paused")
        hold(not self.why_gated(), f"{node} begins although a gate is closed")
        self.hold_open(f"{node} begins")
        self.hold_waves(state)
        views = [(name, view) for name in self.world.machines if (view := self.known(name)) is not None]
        flying = [name for name, view in views if view.record is not None and not view.record.phase.is_over]
        hold(len(flying) < self.policy.max_parallel, f"{node} begins beside {flying}")
        if not (state.has_failed_before and seen.is_cordoned):
            self.hold_soak(node)
        if not seen.is_cordoned:
            out = [name for name, view in views if name not in self.failed and is_out(view)]
            hold(len(out) < self.policy.max_unavailable, f"{node} begins, and {out} are out")
            self.hold_zone(node, out)

    def hold_waves(self, state: NodeState) -> None:
        """Hold that the waves before that of a node are over, and that none of the canary has failed."""
        nodes = self.engine._nodes.values()
        waves = sorted({node.wave for node in nodes if node.wave is not None})
        canary = waves[0] if len(waves) > 1 else None
        failed = [node.name for node in nodes if node.name in self.blamed and node.wave == canary is not None]
        hold(not failed, f"{state.name} begins, and {failed} of the canary have failed")
        if state.wave is None or state.has_failed_before:
            return
        for node in nodes:
            if node.wave is not None and node.wave < state.wave:
                is_left_alone = not node.is_fit and bool(node.kept_out)
                is_over = not node.is_in_flight and (is_left_alone or not node.wants_to_begin)
                hold(is_over, f"{state.name} begins before {node.name}, which is in an earlier wave")
                is_soaking = node.wave not in self.proven and node.is_changed and self.soaks(node)
                hold(not is_soaking, f"{state.name} begins while the wave of {node.name} soaks")
        self.proven.update(range(state.wave))

    def note_proven(self) -> None:
        """Note which waves have had their soak by now: it does not begin again when a clock is put back."""
        nodes = self.engine._nodes.values()
        for wave in sorted({node.wave for node in nodes if node.wave is not None} - self.proven):
            members = [node for node in nodes if node.wave == wave]
            if any(is_unfinished(node) and (node.is_fit or not node.kept_out) for node in members):
                return
            if any(node.is_changed and self.soaks(node) for node in members):
                return
            self.proven.add(wave)

    def soaks(self, node: NodeState) -> bool:
        soak = self.policy.waves[node.wave or 0].soak
        return bool(soak) and self.since(node) + soak > self.engine._decided

    def hold_soak(self, node: str) -> None:
        if not self.policy.soak:
            return
        soaking = [
            each.name
            for each in self.engine._nodes.values()
            if each.is_changed and self.engine._decided < self.since(each) + self.policy.soak
        ]
        hold(not soaking, f"{node} begins while {soaking} soak")

    def hold_domain(self, machine: Machine) -> None:
        """Hold that no member of its domain is in service with another driver, unless people put it there."""
        nodes = self.engine._nodes
        domain = nodes[machine.name].domain
        if is_left_alone(nodes[machine.name]):
            return
        for name, node in nodes.items():
            other = self.world.machines[name]
            is_theirs = other.is_cordoned or name in self.abandoned or is_left_alone(node)
            if domain and node.domain == domain and not (is_theirs or node.is_in_flight or node.has_failed):
                hold(other.driver == machine.driver, f"{machine.name} is back beside {name} with {other.driver}")

    def hold_open(self, what: str) -> None:
        calendar = self.policy.calendar
        hold(calendar is None or calendar.closes(self.engine._decided), f"{what} outside its window")

    def hold_zone(self, node: str, out: list[str]) -> None:
        if self.policy.zones is None or self.policy.zones.max_unavailable is None:
            return
        zones = {name: state.zone for name, state in self.engine._nodes.items()}
        beside = [name for name in out if zones.get(name) == zones[node]]
        limit = count_of(self.policy.zones.max_unavailable, list(zones.values()).count(zones[node]))
        hold(len(beside) < limit, f"{node} begins, and of its zone {beside} are out")

    def hold_jobs(self, node: str, seen: NodeView) -> None:
        """Hold that jobs which are waited for have ended, or have had their time."""
        drain, record = self.engine._nodes[node].drain, seen.record
        if not drain.waits:
            return
        assert record is not None
        hold(record.phase is Phase.JOBS, f"{node} is drained, and its jobs were not waited for")
        has_waited = drain.jobs is not None and self.engine._decided >= self.since_of(record) + drain.jobs
        hold(not seen.jobs or (has_waited and not drain.gives_up), f"{node} is drained under its jobs")

    def evict(self, node: str, pod: GpuPod) -> None:
        self.before()
        seen = self.known(node)
        hold(seen is not None and seen.record is not None, f"{pod} of {node} is evicted without a record")
        assert seen is not None
        assert seen.record is not None
        hold(seen.record.phase in EMPTIED, f"{pod} is evicted in {seen.record.phase}")
        hold(seen.is_cordoned, f"{pod} is evicted and may come back")
        self.hold_open(f"{pod} is evicted")
        hold(not pod.is_mirror_or_daemon, f"{pod} would come back at once")

    def step(self, node: str, phase: Phase, back: Origin | None = None) -> None:
        self.before()
        machine, seen = self.world.machines[node], self.known(node)
        hold(self.has_lease, f"{phase} of {node} without the lease")
        hold(seen is not None and seen.record is not None, f"{phase} of {node} without a record")
        assert seen is not None
        assert seen.record is not None
        hold(seen.record.phase is phase, f"{phase} of {node}, whose record says {seen.record.phase}")
        hold(back == seen.record.way_back, f"{phase} of {node} goes another way than its record")
        if phase is Phase.ROLLBACK:
            self.history.swapped.pop(node, None)
        if phase is Phase.SWAP:
            staying = [pod for pod in seen.gpu_pods if not pod.is_mirror_or_daemon]
            hold(machine.is_released or not machine.is_up, f"{node} is swapped and was not released")
            hold(not staying, f"{node} is swapped under {staying}")
            self.hold_once(machine, seen.record)

    def hold_once(self, machine: Machine, record: Record) -> None:
        """Hold that nothing is swapped that has the driver already, and that no rollback goes on where one has been."""
        target, name = record.target, machine.name
        is_there = machine.driver == target and machine.change is None
        hold(not is_there or self.history.swapped.get(name) != target, f"{name} is swapped twice to {target}")
        last = machine.last
        is_back = last is not None and last.is_back and not last.failure and last.target != target
        hold(not (self.undoes and is_back), f"{name} goes back to {target} after it went back to {machine.driver}")

    def waits(self, waiting: Mapping[str, str], acted: set[str]) -> None:
        """Hold that every node that does not move has a reason."""
        self.note_proven()
        for node in self.engine._nodes.values():
            if is_unfinished(node) and not node.is_busy and node.name not in acted:
                hold(waiting.get(node.name), f"{node.name} waits and nobody says why")

    def known(self, node: str) -> NodeView | None:
        view = self.cluster._views.get(node)
        return view if isinstance(view, NodeView) else None

    def since(self, node: NodeState) -> datetime:
        assert node.record is not None
        return self.since_of(node.record)

    def since_of(self, record: Record) -> datetime:
        return record.believed_since(self.engine._decided, self.engine._began)


def is_left_alone(node: NodeState) -> bool:
    """Tell whether people want a node to keep a driver that is not the declared one."""
    return node.view.is_skipped and node.is_disruptive


def is_out(view: NodeView) -> bool:
    flies = view.record is not None and not view.record.phase.is_over
    return view.is_cordoned or not view.is_ready or flies


def is_unfinished(node: NodeState) -> bool:
    return node.is_in_flight or node.wants_to_begin
