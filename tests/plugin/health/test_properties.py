"""Whatever happens in whatever order: nothing recovers without its evidence, and a verdict always wins.

The test keeps its own account of what happened to each GPU since each error, and judges every transition by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugin.devices.health.judgement import next_health, why_unhealthy
from plugin.devices.health.model import (
    Class,
    FindingChange,
    GpuHealth,
    GpuInput,
    HealthInput,
    NodeHealth,
    Transition,
    Verdict,
)
from plugin.devices.health.record import parse_health, render_health
from plugin.driver.reading import Counters, Reading, XidEvent
from tests.plugin.health.looks import FIRST_BOOT, POLICY, A, B

if TYPE_CHECKING:
    from collections.abc import Mapping

XIDS = (31, 63, 74, 48, 78, 79, 95, 999)


@dataclass(frozen=True)
class Seen:
    """What one GPU does in one look."""

    xids: tuple[int, ...] = ()
    answers: bool = True
    processes: int | None = 0
    rows_failed: bool = False
    rows_pending: bool = False
    reset_before: bool = False


@dataclass(frozen=True)
class Step:
    """What happens before a look, and the look."""

    before: str
    after_s: float
    a: Seen
    b: Seen
    verdict_of: str = A


SEEN = st.builds(
    Seen,
    xids=st.lists(st.sampled_from(XIDS), max_size=2).map(tuple),
    answers=st.sampled_from([True, True, False]),
    processes=st.sampled_from([0, 0, 1, None]),
    rows_failed=st.sampled_from([False, False, False, False, True]),
    rows_pending=st.sampled_from([False, False, False, True]),
    reset_before=st.booleans(),
)
CALM = st.just(Seen())
STEPS = st.lists(
    st.builds(
        Step,
        before=st.sampled_from(["", "", "", "boot", "reload", "restart", "healthy", "unhealthy", "clear", "kill"]),
        after_s=st.sampled_from([1.0, 100.0, 299.0, 301.0]),
        a=SEEN | CALM,
        b=SEEN | CALM,
        verdict_of=st.sampled_from([A, B]),
    ),
    max_size=25,
)


@dataclass
class Account:
    """What happened to one GPU since one cause was seen last."""

    uptime_s: float
    happened: set[str] = field(default_factory=set)


class World:
    """Two GPUs, and the account of each of their errors."""

    def __init__(self) -> None:
        self.state = NodeHealth()
        self.moment = FIRST_BOOT
        self.verdicts: dict[str, Verdict] = {}
        self.energy = {A: 10**6, B: 10**6}
        self.accounts: dict[str, dict[str, Account]] = {A: {}, B: {}}
        self.watched = 0.0
        self._number = 1

    def note(self, uuid: str, what: str) -> None:
        for account in self.accounts[uuid].values():
            account.happened.add(what)

    def happen(self, step: Step) -> None:
        self._number += 1
        if step.before == "boot":
            self.moment = self.moment._replace(boot_id=f"boot {self._number}", uptime_s=10.0)
            self.watched = 10.0
        elif step.before == "reload":
            self.moment = self.moment._replace(module_id=f"load {self._number}")
        elif step.before == "restart":
            self.watched = self.moment.uptime_s
        elif step.before == "kill":  # what a restart reads is what was written
            self.state = parse_health(render_health(self.state).encode())
        elif step.before == "clear":
            self.verdicts.pop(step.verdict_of, None)
        elif step.before:
            verdict = Verdict(step.before == "healthy", f"number {self._number}", "2026-09-01T10:00:00Z")
            self.verdicts[step.verdict_of] = verdict
            if step.before == "healthy":
                self.note(step.verdict_of, "by hand")
        if step.before in {"boot", "reload"}:
            for uuid in (A, B):
                self.note(uuid, step.before)

    def reset(self, uuid: str) -> None:
        """Reset a GPU, for which every session with the driver must be closed."""
        self.energy[uuid] = 0
        self.note(uuid, "reset")
        self.watched = self.moment.uptime_s

    def gpu_look(self, uuid: str, seen: Seen) -> GpuInput:
        self.energy[uuid] += 10
        if not seen.answers:
            return GpuInput(uuid, absent="gpu is lost")
        counters = Counters(energy_mj=self.energy[uuid])
        return GpuInput(
            uuid,
            Reading(
                counters,
                rows_failed=seen.rows_failed,
                rows_pending=seen.rows_pending,
                processes=seen.processes,
            ),
        )

    def look(self, step: Step) -> tuple[Transition, ...]:
        self.happen(step)
        self.moment = self.moment._replace(uptime_s=self.moment.uptime_s + step.after_s, watched_since_s=self.watched)
        both = ((A, step.a), (B, step.b))
        gpus = tuple(self.gpu_look(uuid, seen) for uuid, seen in both)
        events = tuple(XidEvent(uuid, xid) for uuid, seen in both for xid in seen.xids)
        self.state, changes = next_health(self.state, HealthInput(self.moment, gpus, events, self.verdicts), POLICY)
        return changes

    def settle(self, step: Step) -> None:
        """Reset the record of what was observed in this look."""
        for uuid, seen in ((A, step.a), (B, step.b)):
            for cause in causes(seen):
                self.accounts[uuid][cause] = Account(self.moment.uptime_s)


def causes(seen: Seen) -> set[str]:
    found = {f"xid {xid}" for xid in seen.xids}
    if not seen.answers:
        return found | {"lost"}
    return found | {
        name for name, is_so in (("rows failed", seen.rows_failed), ("rows pending", seen.rows_pending)) if is_so
    }


ENOUGH: Mapping[Class, set[str]] = {
    Class.NOTED: {"quiet", "reset", "reload", "boot"},
    Class.APPLICATION: {"quiet", "reset", "reload", "boot"},
    Class.PASSING: {"quiet and idle", "reset", "reload", "boot"},
    Class.RESET: {"reset", "reload", "boot"},
    Class.RELOAD: {"reload", "boot"},
    Class.REBOOT: {"boot"},
    Class.REPLACE: set(),
}


def check_closed(world: World, change: Transition, seen: Seen) -> None:
    account = world.accounts[change.uuid].pop(change.cause)
    if change.reason == "set healthy by hand":
        assert "by hand" in account.happened
        return
    happened = set(account.happened)
    if world.moment.uptime_s - max(account.uptime_s, world.watched) >= POLICY.quiet_s:
        happened.add("quiet")
        if seen.processes == 0:
            happened.add("quiet and idle")
    assert happened & ENOUGH[change.kind], f"{change} by {happened}"
    assert change.cause not in causes(seen)
    if change.kind.condemns:
        assert seen.answers, change


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=400, deadline=None)
def test_nothing_recovers_without_its_evidence_and_a_verdict_always_wins(steps: list[Step]) -> None:
    world = World()
    for step in steps:
        for change in world.look(step):
            if change.change is FindingChange.CLOSED:
                check_closed(world, change, step.a if change.uuid == A else step.b)
        world.settle(step)
        for uuid, seen in ((A, step.a), (B, step.b)):
            gpu = world.state.gpus[uuid]
            assert {finding.cause for finding in gpu.findings} == set(world.accounts[uuid])
            verdict = world.verdicts.get(uuid)
            condemned = any(finding.kind.condemns for finding in gpu.findings)
            expected = condemned if verdict is None else not verdict.is_healthy
            assert bool(why_unhealthy(gpu)) == expected
            assert causes(seen) <= {finding.cause for finding in gpu.findings}


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=100, deadline=None)
def test_everything_but_failed_hardware_recovers_with_a_boot(steps: list[Step]) -> None:
    world = World()
    for step in steps:
        world.look(step)
    world.verdicts.clear()
    world.look(Step("boot", 1.0, Seen(), Seen()))
    for gpu in world.state.gpus.values():
        assert {finding.cause for finding in gpu.findings} <= {"rows failed"}


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=100, deadline=None)
def test_a_gpu_is_judged_the_same_whatever_its_neighbour_does(steps: list[Step]) -> None:
    with_neighbour, alone = World(), World()
    for step in steps:
        with_neighbour.look(step)
        alone.look(replace(step, b=Seen(reset_before=step.b.reset_before)))
        assert with_neighbour.state.gpus[A] == alone.state.gpus[A]
    assert why_unhealthy(alone.state.gpus.get(B, GpuHealth())) == (
        ""
        if B not in alone.verdicts or alone.verdicts[B].is_healthy
        else f"set unhealthy by hand: {alone.verdicts[B].reason}"
    )
