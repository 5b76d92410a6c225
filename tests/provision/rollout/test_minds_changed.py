"""A declaration that changes while a node is in each of its phases: the table of docs/upgrade/control.md.

One engine is handed over in that phase, as the controller does it, or ended, as Ctrl-C does it; another one goes on
from the record with what is declared by then.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import product
from typing import TYPE_CHECKING

import pytest

from provision.apply.model import Status
from provision.rollout.adapters import Adapters
from provision.rollout.decision.outcome import results_of
from provision.rollout.decision.policy import DrainPolicy, Policy
from provision.rollout.decision.undoing import Part, part_of
from provision.rollout.engine import Engine
from provision.rollout.interface.instructions import Instructions
from provision.rollout.interface.progress import PhaseEntered
from provision.rollout.model import BEFORE_SWAP, UNTOUCHED, Phase
from tests.provision.rollout.fakes import (
    MINUTE,
    NEW,
    NOON,
    OLD,
    Clock,
    FakeCluster,
    FakeNode,
    FakeSteps,
    pod,
    record,
    state,
    view,
)
from tests.provision.rollout.moves import move
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from provision.apply.model import NodeResult
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.interface.progress import RolloutProgress

OLDER, NEWER = "525.147.05", "570.10"
EVICT_ALL = DrainPolicy()
FIRST = DrainPolicy(waits=True)  # nodes wait for jobs, of which there are none
STEPS = (Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME, Phase.ROLLBACK)
PHASES = (Phase.CORDON, Phase.JOBS, Phase.DRAIN, *STEPS)
FROM_SWAP = [phase for phase in PHASES if phase not in BEFORE_SWAP]
MEMBERS = ("a1", "a2")


@dataclass
class Fleet:
    """Nodes, and the steps that were ever done on them. ``kills``: an engine is ended, and not handed over."""

    cluster: FakeCluster
    kills: bool = False
    said: list[RolloutProgress] = field(default_factory=list)

    def states(self, target: str, drain: DrainPolicy = EVICT_ALL, **more: object) -> list[NodeState]:
        """Look at the nodes as whoever begins with this declaration does."""
        return [
            state(
                name,
                view(
                    name, node.record, is_cordoned=node.is_cordoned, is_ready=node.is_ready, is_skipped=node.is_skipped
                ),
                target=target,
                origin=node.driver,
                origin_change=node.driver,
                is_disruptive=node.driver != target,
                is_as_declared=node.driver == target,
                is_released=node.is_released,
                drain=drain,
                domain="rack-a" if name in MEMBERS else "",
                **more,
            )
            for name, node in self.cluster.nodes.items()
        ]

    def engine(self, states: list[NodeState], instructions: Instructions, cancel: threading.Event) -> Engine:
        """Return an engine whose steps come to their end, and whose clock stands still meanwhile."""
        clock = Clock(step=timedelta(seconds=1))
        steps = FakeSteps(self.cluster, meet=self.meet)
        adapters = Adapters(cluster=self.cluster, steps=steps, clock=clock, poll_s=0.0005, instructions=instructions)
        policy = Policy(max_parallel=9, max_unavailable=9)
        engine = Engine(adapters, states, policy, observe=self.hear, cancel=cancel)
        clock.is_stopped = lambda: any(node.is_busy for node in engine._nodes.values())
        return engine

    def hear(self, progress: RolloutProgress) -> None:
        self.said.append(progress)
        if isinstance(progress, PhaseEntered) and (progress.node, progress.phase) == self.stop and self.is_waiting:
            self.change_mind()

    def meet(self, node: str, phase: Phase, _cancel: threading.Event) -> None:
        if (node, phase) == self.stop and not self.kills:
            self.change_mind()

    @property
    def is_waiting(self) -> bool:
        return self.kills or self.stop[1] in UNTOUCHED

    def change_mind(self) -> None:
        self.event.set()

    def run_until(self, phase: Phase, node: str) -> dict[str, NodeResult]:
        """Roll NEW out with one engine until a node is in a phase; return what became of the nodes."""
        self.stop, instructions, cancel = (node, phase), Instructions(reason="another is declared"), threading.Event()
        self.event = cancel if self.kills else instructions.hand_over
        if phase is Phase.ROLLBACK:
            self.cluster.nodes[node].broken = Phase.VERIFY
        ending = self.engine(self.states(NEW, FIRST), instructions, cancel).run()
        self.stop, self.cluster.nodes[node].broken = ("", Phase.DONE), None
        return results_of(ending, list(self.cluster.nodes), canceled=cancel.is_set())

    def go_on(self, target: str, instructions: Instructions | None = None, **more: object) -> dict[str, NodeResult]:
        """Have another engine go on with another declaration."""
        cancel, states = threading.Event(), self.states(target, **more)  # type: ignore[arg-type]  # fields, by name
        ending = self.engine(states, instructions or Instructions(), cancel).run()
        return results_of(ending, [each.name for each in states], canceled=False)


def fleet(*names: str, kills: bool = False) -> Fleet:
    return Fleet(FakeCluster({name: FakeNode() for name in names}), kills=kills)


def n1_in(phase: Phase, *, kills: bool) -> tuple[Fleet, FakeNode]:
    """Return a node whose engine has left it in a phase."""
    found = fleet("n1", kills=kills)
    node = found.cluster.nodes["n1"]
    before = found.run_until(phase, "n1")["n1"]
    has_stopped = kills and phase is Phase.ROLLBACK  # an apply says that it had stopped, since the node had failed
    assert before.status is (Status.UNFINISHED if has_stopped else Status.CANCELED), "it has not failed"
    assert node.record is not None
    assert node.record.phase is phase, "nothing further has begun"
    assert node.touched.count(phase) == (phase in STEPS and not kills)
    return found, node


@pytest.mark.parametrize("why", ["declared again", "called off"])
@pytest.mark.parametrize(("phase", "kills"), [*product(BEFORE_SWAP, (False, True))], ids={True: "ended"}.get)
def test_an_upgrade_that_is_taken_back_hides_none_before_it(phase: Phase, why: str, *, kills: bool) -> None:
    """The node was in service as before, and `rollback` knew of no upgrade any more."""
    found = fleet("n1", kills=kills)
    node = found.cluster.nodes["n1"]
    node.record = record(Phase.DONE, target=OLD, origin=OLDER)
    for _ in range(2):
        found.run_until(phase, "n1")
        assert node.record is not None
        assert node.record.phase is phase
        if why == "called off":
            found.go_on(NEW, Instructions(called_off={"n1": "its GpuStack was deleted"}))
        else:
            assert found.go_on(OLD)["n1"].status in {Status.UNCHANGED, Status.CONVERGED}
        assert (node.driver, node.is_cordoned) == (OLD, False)
        assert part_of(make_stack(driver={"version": OLD}).driver, node.record) is Part.TO_RETURN


def swaps(node: FakeNode) -> int:
    return node.touched.count(Phase.SWAP)


each_phase = pytest.mark.parametrize(
    ("phase", "kills"), [*product(PHASES, (False, True))], ids={True: "ended", False: "handed"}.get
)


@each_phase
def test_what_the_node_still_has_is_declared_again(phase: Phase, *, kills: bool) -> None:
    found, node = n1_in(phase, kills=kills)
    done, has = len(node.touched), node.driver
    found.go_on(OLD)
    assert (node.driver, node.is_cordoned, node.is_released) == (OLD, False, False)
    if phase in UNTOUCHED:
        assert (node.record, node.touched) == (None, [])
    elif has == OLD and phase is not Phase.ROLLBACK:
        assert node.touched[done:] == [Phase.VERIFY, Phase.RESUME], "it is not swapped"
    if phase in BEFORE_SWAP:
        assert not swaps(node), "it never had what was withdrawn"


@each_phase
def test_another_driver_is_declared(phase: Phase, *, kills: bool) -> None:
    found, node = n1_in(phase, kills=kills)
    has_been_changed = node.driver == NEW
    before = swaps(node)
    assert found.go_on(NEWER)["n1"].status is Status.CONVERGED
    assert (node.driver, node.is_cordoned, node.is_released) == (NEWER, False, False)
    assert swaps(node) - before == 1, "once, to the new one"
    assert not (phase in BEFORE_SWAP and has_been_changed), "it never had what was withdrawn"


@each_phase
def test_the_same_driver_is_declared_with_another_policy(phase: Phase, *, kills: bool) -> None:
    found, node = n1_in(phase, kills=kills)
    result = found.go_on(NEW, drain=DrainPolicy(taints=True))["n1"]
    assert (node.is_cordoned, node.is_released) == (False, False)
    if phase is Phase.ROLLBACK:  # it comes to its end first
        assert (result.status, node.driver) == (Status.RETURNED, OLD)
        return
    assert (result.status, node.driver, swaps(node)) == (Status.CONVERGED, NEW, 1)


@pytest.mark.parametrize("why", ["called off", "skipped"])
@each_phase
def test_the_node_is_not_to_be_changed_any_more(phase: Phase, why: str, *, kills: bool) -> None:
    found, node = n1_in(phase, kills=kills)
    done = len(node.touched)
    node.is_skipped = why == "skipped"
    instructions = Instructions(called_off={"n1": "its GpuStack was deleted"} if why == "called off" else {})
    found.go_on(NEW, instructions=instructions)
    assert (node.is_cordoned, node.is_released) == (False, False)
    if phase in BEFORE_SWAP:
        assert (node.record, node.driver, swaps(node)) == (None, OLD, 0)
        assert node.touched[done:] == ([] if phase in UNTOUCHED else [Phase.VERIFY, Phase.RESUME])
    else:
        assert node.record is not None
        ends = (Phase.RETURNED, OLD) if phase is Phase.ROLLBACK else (Phase.DONE, NEW)
        assert (node.record.phase, node.driver) == ends, "it comes to its end first"


@each_phase
def test_what_is_declared_cannot_be_planned_for_the_node(phase: Phase, *, kills: bool) -> None:
    """Where its driver may have been changed, a person has to look; before, the node stayed cordoned for nothing."""
    found, node = n1_in(phase, kills=kills)
    found.go_on(NEWER, obstacle="570.10 is not in the catalogue")
    if phase in BEFORE_SWAP:
        assert (node.record, node.driver, node.is_cordoned, node.is_released) == (None, OLD, False, False)
    elif phase is Phase.ROLLBACK:
        assert (node.driver, node.is_cordoned) == (OLD, False)
    else:
        assert node.record is not None
        assert (node.record.phase, node.is_cordoned) == (Phase.FAILED, True)


@pytest.mark.parametrize("phase", PHASES)
def test_a_node_is_called_off_while_its_engine_runs(phase: Phase) -> None:
    found = fleet("n1", "n2")
    node, other = found.cluster.nodes["n1"], found.cluster.nodes["n2"]
    instructions = Instructions()
    found.stop = ("n1", phase)
    found.change_mind = lambda: setattr(instructions, "called_off", {"n1": "it left the stack"})  # type: ignore[method-assign]
    node.broken = Phase.VERIFY if phase is Phase.ROLLBACK else None
    found.engine(found.states(NEW, FIRST), instructions, threading.Event()).run()
    assert instructions.heeded is instructions.called_off
    assert (other.driver, other.is_cordoned) == (NEW, False), "the others go on"
    assert (node.is_cordoned, node.is_released) == (False, False)
    assert node.driver == (OLD if phase in BEFORE_SWAP or phase is Phase.ROLLBACK else NEW)


def test_who_is_put_back_and_fails_its_verification_stays_out_with_both_reasons() -> None:
    found, node = n1_in(Phase.RELEASE, kills=False)
    node.is_skipped, node.broken_back = True, Phase.VERIFY
    found.go_on(NEW)
    assert node.record is not None
    assert (node.record.phase, node.record.failed_in, node.is_cordoned) == (Phase.FAILED, Phase.VERIFY, True)
    assert node.record.is_unrelated, "the change was not begun"
    assert "it is skipped" in node.record.reason
    assert "verify is broken" in node.record.reason


@pytest.mark.parametrize("phase", [Phase.DRAIN, Phase.RELEASE])
@pytest.mark.parametrize("taints", [True, False])
def test_a_taint_counts_from_the_declaration_on(phase: Phase, *, taints: bool) -> None:
    action, _ = move(phase, drain=DrainPolicy(taints=taints), remembered={"is_tainted": not taints})
    assert (action.record.phase, action.record.is_tainted, action.cordoned) == (phase, taints, True)


def test_a_taint_stays_as_it_is_from_the_swap_on() -> None:
    action, _ = move(Phase.SWAP, drain=DrainPolicy(taints=True))
    assert (action.node, action.phase) == ("n1", Phase.SWAP)


@pytest.mark.parametrize(("after_minutes", "phase"), [(9, Phase.JOBS), (10, None)])
def test_jobs_that_are_to_be_waited_for_since_the_drain_began_are(after_minutes: int, phase: Phase | None) -> None:
    """They were evicted; those whose time is up since the node left service are, as without a change."""
    drain, jobs = DrainPolicy(waits=True, jobs=10 * MINUTE), (pod("train"),)
    now = NOON + after_minutes * MINUTE
    remembered = {"since": now}
    action, _ = move(Phase.DRAIN, now=now, drain=drain, gpu_pods=jobs, jobs=jobs, remembered=remembered)
    assert (action.record.phase if phase else None) is phase


def rack_in(phase: Phase, node: str = "a1") -> Fleet:
    """Return a domain of which one node is in a phase."""
    found = fleet(*MEMBERS)
    found.run_until(phase, node)
    return found


def in_service(found: Fleet) -> set[str]:
    return {node.driver for node in found.cluster.nodes.values() if not node.is_cordoned}


@pytest.mark.parametrize("phase", [Phase.CORDON, Phase.DRAIN, Phase.RELEASE])
def test_a_domain_of_which_one_node_is_not_to_be_changed_is_put_back_as_a_whole(phase: Phase) -> None:
    found = rack_in(phase)
    found.cluster.nodes["a2"].is_skipped = True
    found.go_on(NEW)
    assert {name: (each.record, each.driver) for name, each in found.cluster.nodes.items()} == dict.fromkeys(
        MEMBERS, (None, OLD)
    )
    assert in_service(found) == {OLD}
    assert not any(each.is_cordoned or each.is_released for each in found.cluster.nodes.values())


@pytest.mark.parametrize("phase", FROM_SWAP[:-1])
def test_a_domain_of_which_one_node_may_have_been_changed_goes_on_as_a_whole(phase: Phase) -> None:
    found = rack_in(phase)
    found.cluster.nodes["a2"].is_skipped = True
    found.go_on(NEW)
    assert in_service(found) == {NEW}
    assert not any(each.is_cordoned for each in found.cluster.nodes.values())


@pytest.mark.parametrize("phase", PHASES[:-1])
def test_a_domain_never_serves_with_two_drivers_when_minds_change(phase: Phase) -> None:
    found = rack_in(phase)
    seen: list[set[str]] = []
    found.cluster.on_observe = lambda: seen.append(in_service(found))
    found.go_on(OLD)
    assert in_service(found) == {OLD}
    assert max(map(len, seen)) <= 1


def test_a_release_that_runs_is_not_cut_off_by_a_skip() -> None:
    busy = replace(state("n1", view("n1", record(Phase.RELEASE), is_skipped=True)), is_busy=True)
    assert busy.is_in_flight
    found = fleet("n1")
    found.stop = ("n1", Phase.RELEASE)
    found.change_mind = lambda: setattr(found.cluster.nodes["n1"], "is_skipped", True)  # type: ignore[method-assign]
    found.engine(found.states(NEW), Instructions(), threading.Event()).run()
    node = found.cluster.nodes["n1"]
    assert node.touched == [Phase.RELEASE, Phase.VERIFY, Phase.RESUME]
    assert (node.record, node.is_cordoned, node.driver) == (None, False, OLD)
