"""A step that fails, and the way back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from provision.rollout.decision.advance import advance
from provision.rollout.decision.snapshot import Evict, RunStep
from provision.rollout.model import Origin, Phase
from tests.provision.rollout.fakes import MINUTE, NEW, NOON, OLD, pod, record, state, view
from tests.provision.rollout.moves import TRAIN, ended, move

BACK = {"is_returning": True, "failed_in": Phase.SWAP, "reason": "no luck"}


def test_time_that_passed_while_nobody_was_at_work_does_not_count() -> None:
    remembered = record(Phase.DRAIN)
    node = state("n1", view("n1", remembered, gpu_pods=(pod("web-1"),)))
    tomorrow = NOON + timedelta(days=1)
    action, _ = advance(node, remembered, tomorrow + MINUTE, tomorrow)
    assert action == Evict("n1", (pod("web-1"),))


@pytest.mark.parametrize("phase", [Phase.SWAP, Phase.VERIFY, Phase.RESUME])
def test_a_step_that_fails_leads_back_where_the_driver_may_have_been_changed(phase: Phase) -> None:
    action, held = move(phase, step=ended(phase, failure="3 of 4 GPUs answer"))
    assert (action.record.phase, action.record.failed_in) == (Phase.ROLLBACK, phase)
    assert (action.record.reason, held, action.cordoned) == ("3 of 4 GPUs answer", "", True)
    assert action.record.way_back == Origin(OLD, None)


def test_a_step_that_fails_before_the_swap_leads_nowhere() -> None:
    action, _ = move(Phase.RELEASE, step=ended(Phase.RELEASE, failure="no daemon"))
    assert (action.record.phase, action.record.is_unrelated) == (Phase.FAILED, False)


def test_what_leads_back_itself_has_no_way_back() -> None:
    action, _ = move(Phase.SWAP, step=ended(Phase.SWAP, failure="no luck"), may_return=False)
    assert action.record.phase is Phase.FAILED


@pytest.mark.parametrize(
    ("phase", "following"),
    [(Phase.ROLLBACK, Phase.VERIFY), (Phase.VERIFY, Phase.RESUME), (Phase.RESUME, Phase.RETURNED)],
)
@pytest.mark.parametrize("target", [NEW, OLD, "550.1"])
@pytest.mark.parametrize("is_as_declared", [False, True])
def test_the_way_back_is_gone_to_its_end_whatever_is_declared(
    phase: Phase, following: Phase, target: str, *, is_as_declared: bool
) -> None:
    found = {"remembered": BACK, "target": target, "is_as_declared": is_as_declared, "is_disruptive": True}
    assert move(phase, **found) == (RunStep("n1", phase, Origin(OLD, None)), ""), "after a crash it is done again"
    action, _ = move(phase, step=ended(phase, is_done=True), **found)
    assert (action.record.phase, action.record.reason) == (following, "no luck")
    assert action.cordoned is (following is not Phase.RETURNED)


def test_pods_that_came_back_are_evicted_before_the_driver_goes_back() -> None:
    found = {"remembered": BACK, "gpu_pods": (pod("web-1"),)}
    assert move(Phase.ROLLBACK, **found)[0] == Evict("n1", (pod("web-1"),))
    action, _ = move(Phase.ROLLBACK, **found, is_cordoned=False)
    assert (action.record.phase, action.cordoned) == (Phase.ROLLBACK, True)


def test_a_process_that_keeps_a_gpu_is_waited_for_on_the_way_back() -> None:
    step = ended(Phase.ROLLBACK, holders=(TRAIN,))
    assert move(Phase.ROLLBACK, remembered=BACK, step=step)[0] == RunStep("n1", Phase.ROLLBACK, Origin(OLD, None))
    action, _ = move(Phase.ROLLBACK, remembered=BACK, step=step, now=NOON + 5 * MINUTE)
    assert (action.record.phase, action.record.failed_in) == (Phase.FAILED, Phase.ROLLBACK)
