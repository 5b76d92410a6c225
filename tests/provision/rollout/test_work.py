"""Jobs of another scheduler than Kubernetes: they are waited for, and never ended."""

from __future__ import annotations

from datetime import timedelta

import pytest

from provision.declaration.spec.model import Rollout, Scheduler, SchedulerKind
from provision.declaration.spec.model import WaitFor as Wait
from provision.rollout.decision.advance import advance
from provision.rollout.decision.policy import DrainPolicy, drain_policy
from provision.rollout.decision.snapshot import NodeState, RunStep, Write
from provision.rollout.model import Job, Phase
from tests.provision.rollout.fakes import MINUTE, NOON, record, state, view

TRAIN = Job(id="job 7", user="ada", left="3:12:00")
AS_LONG = DrainPolicy(waits=True)


def at(phase: Phase, *work: Job, drain: DrainPolicy = AS_LONG, **more: object) -> NodeState:
    return state("n1", view("n1", record(phase), work=work, **more), drain=drain)


def test_a_node_with_jobs_waits_for_them_by_name() -> None:
    node = at(Phase.JOBS, TRAIN, Job(id="job 8"), Job(id="job 9"), Job(id="job 10"))

    assert node.record is not None
    move = advance(node, node.record, NOON + timedelta(days=3), NOON)

    assert move == (None, "waits for job 7 of ada (3:12:00 left), job 8, job 9 and 1 more to end")


def test_a_node_whose_jobs_outlast_the_limit_is_put_back_into_service() -> None:
    drain = DrainPolicy(waits=True, jobs=10 * MINUTE)
    waiting = at(Phase.JOBS, TRAIN, drain=drain)
    assert waiting.record is not None
    action, _reason = advance(waiting, waiting.record, NOON + 10 * MINUTE, NOON)
    assert isinstance(action, Write)
    assert (action.record.phase, action.cordoned) == (Phase.RETURNED, False)


def test_jobs_that_come_back_fail_the_drain_in_time() -> None:
    drain = DrainPolicy(waits=True, jobs=10 * MINUTE)
    draining = at(Phase.DRAIN, TRAIN, drain=drain)
    assert draining.record is not None
    assert advance(draining, draining.record, NOON + MINUTE, NOON) == (
        None,
        "job 7 of ada (3:12:00 left) still on the node",
    )
    action, _reason = advance(draining, draining.record, NOON + 5 * MINUTE, NOON)
    assert isinstance(action, Write)
    assert action.record.reason == "after 5 minutes: job 7 of ada (3:12:00 left) still on the node"


@pytest.mark.parametrize("phase", [Phase.JOBS, Phase.DRAIN, Phase.RELEASE])
def test_a_node_that_somebody_resumed_is_drained_again(phase: Phase) -> None:
    node = at(phase, TRAIN, is_cordoned=False)

    assert node.record is not None
    action, _reason = advance(node, node.record, NOON, NOON)

    assert action == Write("n1", node.record, cordoned=True)


def test_a_job_that_came_back_before_the_swap_is_waited_for() -> None:
    node = at(Phase.SWAP, TRAIN)

    assert node.record is not None
    action, _reason = advance(node, node.record, NOON, NOON)

    assert isinstance(action, Write)
    assert action.record.phase is Phase.JOBS


def test_an_empty_node_goes_on() -> None:
    node = at(Phase.RELEASE)

    assert node.record is not None
    assert advance(node, node.record, NOON, NOON)[0] == RunStep("n1", Phase.RELEASE)


@pytest.mark.parametrize(
    ("kind", "waits"),
    [("auto", False), ("kubernetes", False), ("none", False), ("slurm", True), ("commands", True)],
)
def test_nodes_of_other_schedulers_wait_for_their_jobs(kind: str, waits: bool) -> None:  # noqa: FBT001 - a table
    policy = drain_policy(Rollout(), Scheduler(kind=SchedulerKind(kind)))

    assert (policy.waits, policy.jobs) == (waits, None)
    limited = drain_policy(Rollout(wait_for=Wait(timeout_minutes=30)), Scheduler(kind=SchedulerKind(kind)))
    assert limited.jobs == 30 * MINUTE
