"""Every change of phase that is ever decided is in the table, and every one in the table is decided."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from provision.apply.model import NodeResult, Status
from provision.rollout.decision.advance import advance, begin
from provision.rollout.decision.drain_policy import DrainPolicy
from provision.rollout.decision.hours import outside_hours
from provision.rollout.decision.order.domains import Domain
from provision.rollout.decision.prepare import Prepared
from provision.rollout.decision.snapshot import Holder, StepResult, Withdraw, Write
from provision.rollout.model import BEFORE_SWAP, UNTOUCHED, Maintenance, Phase
from provision.rollout.returns import forget_removed, forget_returns
from tests.provision.rollout.fakes import MINUTE, NEW, NOON, OLD, FakeCluster, FakeNode, pod, record, state, view
from tests.provision.rollout.model.transitions import OUT_OF_SERVICE, TRANSITIONS, is_legal, render_diagram

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.rollout.decision.snapshot import NodeState

PAGE = Path(__file__).parents[3] / "docs/upgrade/phases.md"
IN_TABLE = {(source, each.target) for each in TRANSITIONS for source in each.sources}
EITHER = (False, True)
FAILED = state("n2", view("n2", record(Phase.ROLLBACK)))
DOMAINS = (None, Domain("rack-7"), Domain("rack-7", failed=FAILED), Domain("rack-7", failed=FAILED, has_done=True))
EVICT_ALL = DrainPolicy()
WAITS = DrainPolicy(waits=True, jobs=30 * MINUTE)
GIVES_UP = DrainPolicy(waits=True, jobs=30 * MINUTE, gives_up=True)
NOT_GRANTED = Maintenance(words="is Pending", is_requested=True)


def results(phase: Phase) -> tuple[StepResult | None, ...]:
    """Return what the step of a phase may have come to."""
    holders = (Holder(pid=7, command="train"),)
    return (
        None,
        StepResult(phase=phase, ended=NOON),
        StepResult(phase=phase, ended=NOON, is_done=True),
        StepResult(phase=phase, ended=NOON, failure="it broke"),
        StepResult(phase=phase, ended=NOON, failure="no route to host", is_unreachable=True),
        StepResult(phase=phase, ended=NOON, holders=holders),
    )


def nodes_in(phase: Phase) -> Iterator[NodeState]:
    """Yield a node out of service in all situations that a decision tells apart."""
    flags = itertools.product(results(phase), (NEW, OLD), (EVICT_ALL, WAITS, GIVES_UP), *[EITHER] * 6)
    for step, target, drain, is_declared, is_disruptive, has_pods, is_cordoned, is_ready, is_returning in flags:
        if is_returning is not (phase is Phase.ROLLBACK) and phase not in (Phase.VERIFY, Phase.RESUME):
            continue
        pods = (pod("web-1"),) if has_pods else ()
        remembered = record(phase, is_returning=is_returning, failed_in=Phase.SWAP if is_returning else None)
        seen = view("n1", remembered, gpu_pods=pods, jobs=pods, is_cordoned=is_cordoned, is_ready=is_ready)
        flags_of_plan = {"is_as_declared": is_declared, "is_disruptive": is_disruptive}
        node = state("n1", seen, target=target, step=step, drain=drain, lost_since=NOON, **flags_of_plan)
        yield node
        if phase in BEFORE_SWAP:
            yield replace(node, called_off="its GpuStack was deleted")
        if is_returning and phase is not Phase.ROLLBACK:
            off = replace(remembered, failed_in=None, reason="it is skipped")
            yield replace(node, view=replace(seen, record=off))
        if phase is Phase.CORDON:
            asked = replace(remembered, is_requested=True)
            yield replace(node, view=replace(seen, record=asked, maintenance=NOT_GRANTED))


def test_the_table_is_what_is_decided() -> None:
    decided: set[tuple[Phase | None, Phase | None]] = set()
    for phase in OUT_OF_SERVICE:
        for node, now in itertools.product(nodes_in(phase), (NOON + MINUTE, NOON + 60 * MINUTE)):
            assert node.record is not None
            again = EITHER if phase in UNTOUCHED else (False,)
            for domain, is_touched in itertools.product(DOMAINS, again):
                remembered = replace(node.record, is_touched=is_touched)
                action, _ = advance(node, remembered, now, NOON, domain)
                decided |= {(phase, action.record.phase)} if isinstance(action, Write) else set()
                decided |= {(phase, None)} if isinstance(action, Withdraw) else set()
                outside, _ = outside_hours(node, remembered, action, "", "the window is closed")
                decided |= {(phase, None)} if isinstance(outside, Withdraw) else set()
    phases = (None, Phase.DONE, Phase.RETURNED, Phase.FAILED)
    begins = itertools.product(phases, EITHER, (EVICT_ALL, WAITS), (None, NOT_GRANTED))
    for phase, is_declared, drain, maintenance in begins:
        seen = view("n1", phase and record(phase), maintenance=maintenance)
        node = state("n1", seen, is_as_declared=is_declared, drain=drain)
        action = begin(node, NOON)
        assert isinstance(action, Write)
        decided.add((phase, action.record.phase))
    decided |= forgotten()

    # A cordon that is forgotten is no change of phase.
    assert {(before, after) for before, after in decided if before is not after} == {
        (before, after) for before, after in IN_TABLE if before is not after
    }


def forgotten() -> set[tuple[Phase | None, Phase | None]]:
    """Return what becomes of the record of a node that an apply finds as declared, or that grapnel was taken off."""
    found: set[tuple[Phase | None, Phase | None]] = set()
    for phase, is_removed in itertools.product(Phase, EITHER):
        node = state("n1", view("n1", record(phase)), is_as_declared=True)
        cluster = FakeCluster({"n1": FakeNode(record=node.record)})
        if is_removed:
            forget_removed(cluster, ["n1"], lambda _told: None, "ada")
        else:
            result = NodeResult("n1", Status.UNCHANGED)
            forget_returns(cluster, Prepared(states=(node,)), [result], lambda _told: None, "ada")
        found |= set() if cluster.nodes["n1"].record is not None else {(phase, None)}
    return found


def test_nothing_else_is_legal() -> None:
    assert {(a, b) for a in (None, *Phase) for b in (None, *Phase) if is_legal(a, b)} == IN_TABLE
    assert not is_legal(Phase.SWAP, Phase.RESUME)
    assert not is_legal(Phase.FAILED, Phase.DONE)


def test_no_node_is_back_in_service_without_verification() -> None:
    untouched = {Phase.CORDON, Phase.JOBS, Phase.DRAIN}  # nothing but its pods was
    assert {before for before, after in IN_TABLE if after is Phase.DONE} == {Phase.RESUME}
    assert {before for before, after in IN_TABLE if after is Phase.RETURNED} == {Phase.RESUME} | untouched
    assert {before for before, after in IN_TABLE if after is Phase.RESUME} == {Phase.VERIFY}
    forgotten = {before for before, after in IN_TABLE if after is None}
    assert forgotten == {Phase.RESUME, Phase.DONE, Phase.RETURNED} | untouched


def test_the_page_shows_the_diagram_of_the_table() -> None:
    assert f"```mermaid\n{render_diagram()}```\n" in PAGE.read_text()
