"""Measures the CPU time of one decision about a whole fleet, in each situation in which a rollout may be.

The floor is one look at every node, which no decision can do without. Both alternate in each round; the least is
printed, as other processes only ever add to a figure, beside that of a fixed piece of work: compare machines by it.
Run: python3 bench/rollout.py [--nodes 5000] [--rounds 15]
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from provision.declaration.spec.model import Day, Rollout, Window
from provision.rollout.decision.calendar import calendar_of
from provision.rollout.decision.decide import decide
from provision.rollout.decision.order.domains import members_of
from provision.rollout.decision.policy import DrainPolicy, Policy, WavePolicy, ZonePolicy
from provision.rollout.decision.snapshot import NodeState, Snapshot, StepResult
from provision.rollout.model import GpuPod, NodeView, Phase, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT_MS: Final = 20.0
OLD, NEW = "535.261.03", "550.163.01"
NOW: Final = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
SOAK: Final = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Situation:
    """A moment of a rollout."""

    title: str
    snapshot: Snapshot
    policy: Policy


def waiting(name: str, *, is_cordoned: bool = False, is_ready: bool = True) -> NodeState:
    """Return a node whose turn has not come."""
    view = NodeView(name=name, record=None, is_cordoned=is_cordoned, is_ready=is_ready)
    return NodeState(view=view, target=NEW, origin=OLD, drain=DrainPolicy(limit=HOUR), is_disruptive=True)


def begun(name: str, phase: Phase, *, pods: int = 0) -> NodeState:
    """Return a node that has come as far as a phase, ten minutes ago."""
    began = NOW - timedelta(minutes=20)
    record = Record(phase=phase, target=NEW, origin=OLD, began=began, since=NOW - timedelta(minutes=10))
    holding = tuple(
        GpuPod(namespace="jobs", name=f"{name}-{n}", uid=f"{name}-{n}", is_terminating=False, is_mirror_or_daemon=False)
        for n in range(pods)
    )
    is_done = phase is Phase.DONE
    view = NodeView(name=name, record=record, is_cordoned=not is_done, is_ready=True, gpu_pods=holding)
    return replace(waiting(name), view=view, is_disruptive=not is_done, is_as_declared=is_done)


def ended(name: str) -> NodeState:
    """Return a node whose step has just come to its end."""
    step = StepResult(phase=Phase.RELEASE, ended=NOW, is_done=True)
    return replace(begun(name, Phase.RELEASE), step=step)


def fleet(nodes: int, first: int, make: Callable[[str], NodeState], rest: Callable[[str], NodeState]) -> Snapshot:
    """Return a fleet, of which the ``first`` nodes are not like the ``rest``."""
    states = [(make if number < first else rest)(f"n{number:05}") for number in range(nodes)]
    return Snapshot(nodes=tuple(states), began=NOW - HOUR)


def in_waves(snapshot: Snapshot, waves: int) -> Snapshot:
    """Return the fleet in waves of the same size, one after the other."""
    size = -(-len(snapshot.nodes) // waves)
    nodes = tuple(replace(node, wave=number // size) for number, node in enumerate(snapshot.nodes))
    return replace(snapshot, nodes=nodes)


def busy(name: str) -> NodeState:
    return replace(begun(name, Phase.SWAP), is_busy=True)


def draining(name: str) -> NodeState:
    return begun(name, Phase.DRAIN, pods=8)


def soaking(name: str) -> NodeState:
    return begun(name, Phase.DONE)


def cordoned(name: str) -> NodeState:
    return waiting(name, is_cordoned=True)


def not_ready(name: str) -> NodeState:
    return waiting(name, is_ready=False)


def failed(name: str) -> NodeState:
    return replace(begun(name, Phase.FAILED), has_failed=True)


def fine(name: str) -> NodeState:
    return replace(waiting(name), is_disruptive=False, is_as_declared=True)


def situations(nodes: int) -> Iterator[Situation]:
    """Yield what a rollout of this many nodes meets, and the worst of it."""
    few, quarter = max(1, nodes // 100), max(1, nodes // 4)
    wide = Policy(max_parallel=quarter, max_unavailable=quarter, soak=SOAK)

    narrow = replace(wide, max_parallel=few)
    yield Situation(f"{few} in flight", fleet(nodes, few, busy, waiting), narrow)
    yield Situation(f"{quarter} in flight", fleet(nodes, quarter, busy, waiting), wide)
    yield Situation(f"{quarter} begin at once", fleet(nodes, 0, busy, waiting), wide)
    yield Situation(f"{quarter} steps end at once", fleet(nodes, quarter, ended, waiting), wide)
    yield Situation(f"{quarter} drained of 8 pods each", fleet(nodes, quarter, draining, waiting), wide)
    yield Situation(f"{quarter} soaking", fleet(nodes, quarter, soaking, waiting), wide)
    yield Situation(
        "maxUnavailable reached: cordoned",
        fleet(nodes, quarter, lambda n: replace(cordoned(n), is_disruptive=False), waiting),
        wide,
    )
    yield Situation(
        "maxUnavailable reached: not ready",
        fleet(nodes, quarter, lambda n: replace(not_ready(n), is_disruptive=False), waiting),
        wide,
    )
    yield Situation(
        "maxUnavailable reached: in flight", fleet(nodes, quarter, busy, waiting), replace(wide, max_parallel=nodes)
    )
    yield Situation("half of those to change not ready", fleet(nodes, nodes // 2, not_ready, waiting), narrow)
    yield Situation(
        "all cordoned by others begin", fleet(nodes, nodes, cordoned, waiting), replace(wide, max_parallel=quarter)
    )
    waves = tuple(WavePolicy(title=f"wave {number}", soak=SOAK) for number in range(5))
    yield Situation(
        "5 waves, the second in flight",
        in_waves(fleet(nodes, quarter, busy, waiting), len(waves)),
        replace(wide, waves=waves),
    )
    yield Situation(
        "5 waves, the second soaking",
        in_waves(fleet(nodes, 2 * (nodes // len(waves)), soaking, waiting), len(waves)),
        replace(wide, waves=waves, soak=timedelta(0)),
    )
    yield from calendars_and_zones(nodes, wide)
    yield from in_domains(nodes, quarter, wide)
    yield Situation("stopped by a failure", fleet(nodes, 1, failed, waiting), wide)
    yield Situation("nothing to do", fleet(nodes, nodes, fine, waiting), wide)


def in_domains(nodes: int, quarter: int, wide: Policy) -> Iterator[Situation]:
    """Yield what domains of 18 nodes come to: those in flight wait for each other, the others for their turn."""
    for title, make in (("swapping", busy), ("released", ended)):
        snapshot = fleet(nodes, quarter, make, waiting)
        placed = tuple(replace(node, domain=f"rack {place // 18}") for place, node in enumerate(snapshot.nodes))
        snapshot = replace(snapshot, nodes=placed, domains=members_of(placed))
        yield Situation(f"domains of 18, {quarter} {title}", snapshot, wide)


def calendars_and_zones(nodes: int, wide: Policy) -> Iterator[Situation]:
    """Yield what windows, zones and labels come to."""
    windows = tuple(Window(days=(day,), start="22:00", end="04:00", time_zone="Europe/Berlin") for day in Day)
    measured = fleet(nodes, nodes // 2, soaking, waiting)
    yield Situation(
        "all wait for one of 7 windows", measured, replace(wide, calendar=calendar_of(Rollout(windows=windows)))
    )
    short = tuple(Window(days=(Day.SAT,), start=f"0{hour}:00", end=f"0{hour}:20") for hour in (1, 3, 5))
    yield Situation("no window is long enough", measured, replace(wide, calendar=calendar_of(Rollout(windows=short))))
    quarter = max(1, nodes // 4)
    states = fleet(nodes, quarter, busy, waiting).nodes
    in_zones = tuple(
        replace(state, zone=f"zone {place % 20}", zone_turn=place % 20, rank=place % 7)
        for place, state in enumerate(states)
    )
    snapshot = Snapshot(nodes=in_zones, began=NOW - HOUR)
    yield Situation("20 zones that take turns", snapshot, replace(wide, zones=ZonePolicy(one_at_a_time=True)))
    yield Situation(
        "20 zones, each at its limit",
        replace(snapshot, nodes=tuple(replace(state, zone_turn=0) for state in in_zones)),
        replace(wide, zones=ZonePolicy(max_unavailable="25%")),
    )
    held = fleet(nodes, nodes // 2, lambda n: replace(waiting(n), view=view_of(n, held_by="kured")), waiting)
    labelled = tuple(
        replace(state, view=replace(state.view, priority=place % 5)) for place, state in enumerate(held.nodes)
    )
    yield Situation("half held by other tools, 5 priorities", replace(held, nodes=labelled), wide)


def view_of(name: str, *, held_by: str) -> NodeView:
    return NodeView(name=name, record=None, is_cordoned=False, is_ready=True, held_by=held_by)


def look(snapshot: Snapshot) -> int:
    """Look at every node once."""
    return sum(node.view.is_ready and node.view.record is None for node in snapshot.nodes)


def fixed_work() -> None:
    """Count as much on any machine, so that its speed at this moment is known."""
    counts: dict[int, int] = {}
    for number in range(100_000):
        counts[number % 1000] = counts.get(number % 1000, 0) + 1


def cpu_ms(work: Callable[[], object]) -> float:
    """Return the CPU time of a call in milliseconds."""
    start = time.process_time_ns()
    work()
    return (time.process_time_ns() - start) / 1e6


def measure(one: Situation, rounds: int) -> tuple[float, float]:
    """Return the least of a decision and of the floor, in milliseconds."""
    gc.collect()
    pairs = [
        (cpu_ms(lambda: decide(one.snapshot, one.policy, NOW)), cpu_ms(lambda: look(one.snapshot)))
        for _ in range(rounds)
    ]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="CPU time of one decision about a whole fleet")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    print(f"{args.nodes} nodes, {args.rounds} rounds, least ms of CPU    decision    floor")
    slowest = ("", 0.0)
    for one in situations(args.nodes):
        decision, floor = measure(one, args.rounds)
        slowest = max(slowest, (one.title, decision), key=lambda each: each[1])
        print(f"{one.title:44} {decision:12.1f} {floor:8.1f}", flush=True)
    verdict = "within" if slowest[1] <= LIMIT_MS else "MORE THAN"
    print(f"{'fixed work, 100,000 counts':44} {min(cpu_ms(fixed_work) for _ in range(args.rounds)):12.1f}")
    print(f"slowest: {slowest[0]}, {slowest[1]:.1f} ms: {verdict} {LIMIT_MS:.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
