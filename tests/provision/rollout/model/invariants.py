"""What has to hold at every effect of an engine, whatever has happened before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.rollout.model import NodeView, Phase
from provision.rollout.transitions import is_legal
from provision.spec.shares import count_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.rollout.decision.policy import Policy
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.engine import Engine
    from provision.rollout.model import GpuPod, Origin, Record
    from provision.simulate.cluster import SimulatedCluster
    from provision.simulate.machine import Machine
    from provision.simulate.world import World


UNTOUCHED = (Phase.CORDON, Phase.JOBS, Phase.DRAIN)


class ViolationError(AssertionError):
    """Something that must never be the case is."""


def hold(condition: object, what: str) -> None:
    """Raise unless the condition holds."""
    if not condition:
        raise ViolationError(what)


@dataclass
class Invariants:
    """Holds the effects of one process against what it knows: what it observed in this turn, and did since."""

    world: World
    cluster: SimulatedCluster
    target: str
    policy: Policy
    before: Callable[[], None] = lambda: None
    failed: set[str] = field(default_factory=set)
    blamed: set[str] = field(default_factory=set)
    engine: Engine | None = None

    def write(self, node: str, record: Record | None, cordoned: bool | None) -> None:  # noqa: FBT001 - as the protocol has it
        self.before()
        machine = self.world.machines[node]
        seen = self.known(node)
        if seen is None or machine.record != seen.record or machine.is_cordoned != seen.is_cordoned:
            return  # it is a conflict, which the cluster tells it
        if record is None:
            hold(seen.record is not None and seen.record.phase in UNTOUCHED, f"{node} is forgotten in {seen.record}")
            hold(cordoned is None or not machine.cordoned_by, f"{node} is uncordoned, which is not its cordon")
            return
        was = None if seen.record is None else seen.record.phase
        is_again = was is record.phase  # a node that somebody uncordoned is cordoned again
        hold(is_again or is_legal(was, record.phase), f"{node} goes from {was} to {record.phase}")
        if record.has_failed:
            hold(record.reason, f"{node} fails without a reason")
            if record.is_blamed:
                self.blamed.add(node)
        if record.phase is Phase.FAILED:
            self.failed.add(node)
        elif record.phase.is_in_service:
            self.finish(machine, record, cordoned)
        elif was is None or was.is_over:
            self.begin(node, seen)
        if cordoned is False:
            hold(record.phase.is_in_service, f"{node} is uncordoned in {record.phase}")

    def finish(self, machine: Machine, record: Record, cordoned: bool | None) -> None:  # noqa: FBT001 - as the protocol has it
        name = machine.name
        is_done = record.phase is Phase.DONE
        wanted = record.target if is_done else record.origin
        hold(not is_done or record.target == self.target, f"{name} is done with a target that is not declared")
        hold(machine.driver == wanted, f"{name} is {record.phase} with driver {machine.driver}")
        is_put_back = not is_done and record.failed_in in UNTOUCHED and not record.is_touched  # nothing was done to it
        hold(is_put_back or machine.verified == wanted, f"{name} is {record.phase} and was not verified")
        self.hold_domain(machine)
        hold(not machine.is_released, f"{name} is done and does not offer its GPUs")
        hold(
            cordoned is None or not machine.cordoned_by, f"{name} is uncordoned, which {machine.cordoned_by} wants not"
        )

    def begin(self, node: str, seen: NodeView) -> None:
        views = [(name, view) for name in self.world.machines if (view := self.known(name)) is not None]
        hold(len(self.blamed) <= self.policy.max_failures, f"{node} begins after failures of {self.blamed}")
        hold(seen.is_ready, f"{node} begins and is not ready")
        hold(not seen.is_skipped and not seen.held_by, f"{node} begins, and others want it left alone")
        hold(self.world.pause is None, f"{node} begins although that is paused")
        self.hold_open(f"{node} begins")
        flying = [name for name, view in views if view.record is not None and not view.record.phase.is_over]
        hold(len(flying) < self.policy.max_parallel, f"{node} begins beside {flying}")
        if not seen.is_cordoned:
            out = [name for name, view in views if name not in self.failed and is_out(view)]
            hold(len(out) < self.policy.max_unavailable, f"{node} begins, and {out} are out")
            self.hold_zone(node, out)

    def hold_domain(self, machine: Machine) -> None:
        """Hold that no member of its domain is in service with another driver, unless people put it there."""
        assert self.engine is not None
        nodes = self.engine._nodes
        domain = nodes[machine.name].domain
        for name, node in nodes.items():
            other = self.world.machines[name]
            if domain and node.domain == domain and not (other.is_cordoned or node.is_in_flight or node.has_failed):
                hold(other.driver == machine.driver, f"{machine.name} is back beside {name} with {other.driver}")

    def hold_open(self, what: str) -> None:
        assert self.engine is not None
        calendar = self.policy.calendar
        hold(calendar is None or calendar.closes(self.engine._decided), f"{what} outside its window")

    def hold_zone(self, node: str, out: list[str]) -> None:
        assert self.engine is not None
        if self.policy.zones is None or self.policy.zones.max_unavailable is None:
            return
        zones = {name: state.zone for name, state in self.engine._nodes.items()}
        beside = [name for name in out if zones.get(name) == zones[node]]
        limit = count_of(self.policy.zones.max_unavailable, list(zones.values()).count(zones[node]))
        hold(len(beside) < limit, f"{node} begins, and of its zone {beside} are out")

    def evict(self, node: str, pod: GpuPod) -> None:
        self.before()
        seen = self.known(node)
        hold(seen is not None and seen.record is not None, f"{pod} of {node} is evicted without a record")
        assert seen is not None
        assert seen.record is not None
        hold(seen.record.phase in {Phase.DRAIN, Phase.RELEASE, Phase.SWAP}, f"{pod} is evicted in {seen.record.phase}")
        hold(seen.is_cordoned, f"{pod} is evicted and may come back")
        self.hold_open(f"{pod} is evicted")
        hold(not pod.is_mirror_or_daemon, f"{pod} would come back at once")

    def step(self, node: str, phase: Phase, back: Origin | None = None) -> None:
        self.before()
        machine, tenancy, now_s = self.world.machines[node], self.cluster.tenancy, self.world.time.now_s
        seen = self.known(node)
        hold(tenancy.owner is self.cluster and now_s - tenancy.renewed_s <= 45, f"{phase} of {node} without the lease")
        hold(seen is not None and seen.record is not None, f"{phase} of {node} without a record")
        assert seen is not None
        assert seen.record is not None
        hold(seen.record.phase is phase, f"{phase} of {node}, whose record says {seen.record.phase}")
        hold(back == seen.record.way_back, f"{phase} of {node} goes another way than its record")
        if phase is Phase.SWAP:
            staying = [pod for pod in seen.gpu_pods if not pod.is_mirror_or_daemon]
            hold(machine.is_released or not machine.is_up, f"{node} is swapped and was not released")
            hold(not staying, f"{node} is swapped under {staying}")

    def waits(self, waiting: dict[str, str], acted: set[str]) -> None:
        """Hold that every node that does not move has a reason."""
        assert self.engine is not None
        for node in self.engine._nodes.values():
            if is_unfinished(node) and not node.is_busy and node.name not in acted:
                hold(waiting.get(node.name), f"{node.name} waits and nobody says why")

    def known(self, node: str) -> NodeView | None:
        view = self.cluster._views.get(node)
        return view if isinstance(view, NodeView) else None


def is_out(view: NodeView) -> bool:
    flies = view.record is not None and not view.record.phase.is_over
    return view.is_cordoned or not view.is_ready or flies


def is_unfinished(node: NodeState) -> bool:
    return node.is_in_flight or node.wants_to_begin
