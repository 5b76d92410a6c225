"""What happens next on one node that is out of service."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from provision.rollout.decision.advance import advance, begin
from provision.rollout.decision.policy import DrainPolicy
from provision.rollout.decision.snapshot import Evict, Holder, RunStep, Write
from provision.rollout.model import ChangeKind, Phase
from tests.provision.rollout.fakes import MINUTE, NEW, NOON, OLD, pod, record, state, view
from tests.provision.rollout.moves import LATER, TRAIN, ended, move

if TYPE_CHECKING:
    from provision.rollout.model import GpuPod


def test_a_date_to_come_does_not_put_the_time_limit_off() -> None:
    action, _ = move(
        Phase.DRAIN, now=NOON + 5 * MINUTE, gpu_pods=(pod("web-1"),), remembered={"since": NOON + timedelta(days=9999)}
    )
    assert isinstance(action, Write)
    assert action.record.phase is Phase.FAILED


@pytest.mark.parametrize(
    ("phase", "following"),
    [
        (Phase.CORDON, Phase.DRAIN),
        (Phase.DRAIN, Phase.RELEASE),
        (Phase.RELEASE, Phase.SWAP),
        (Phase.SWAP, Phase.VERIFY),
        (Phase.VERIFY, Phase.RESUME),
        (Phase.RESUME, Phase.DONE),
    ],
)
def test_phases_follow_one_another(phase: Phase, following: Phase) -> None:
    action, held = move(phase, step=ended(phase, is_done=True))
    assert isinstance(action, Write)
    assert (action.record.phase, action.record.since, held) == (following, LATER, "")
    assert action.record.began == NOON
    assert action.cordoned is (following is not Phase.DONE)


@pytest.mark.parametrize("phase", [Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME])
def test_after_a_crash_the_step_of_the_record_is_done_again(phase: Phase) -> None:
    assert move(phase) == (RunStep("n1", phase), "")


@pytest.mark.parametrize(
    ("reported", "held"),
    [
        pytest.param("boot-1", "the kubelet has not reported since the reboot", id="from before"),
        pytest.param("boot-2", "", id="since then"),
        pytest.param("", "", id="where no kubelet tells"),
    ],
)
def test_a_rebooted_node_is_back_when_its_kubelet_has_reported_the_new_boot(reported: str, held: str) -> None:
    """A Node stays ready for a while after its kubelet has gone, and one that does not come back would take pods."""
    kind = ChangeKind.REBOOT
    remembered = {"kind": kind, "boot": "boot-1"}
    action, why = move(
        Phase.RESUME, step=ended(Phase.RESUME, is_done=True), remembered=remembered, kind=kind, reported=reported
    )

    assert why == held
    assert isinstance(action, Write) == (not held)


def test_a_reboot_that_is_half_way_is_another_change_to_an_apply() -> None:
    action, _ = move(Phase.SWAP, remembered={"kind": ChangeKind.REBOOT, "boot": "boot-1"})

    assert isinstance(action, Write)
    assert (action.record.phase, action.record.kind, action.record.boot) == (Phase.DRAIN, ChangeKind.DRIVER, "")


def test_a_step_of_another_phase_says_nothing_about_this_one() -> None:
    assert move(Phase.SWAP, step=ended(Phase.RELEASE, is_done=True)) == (RunStep("n1", Phase.SWAP), "")


def test_pods_are_evicted_before_the_daemon_lets_go() -> None:
    stays, goes = pod("daemon", is_mirror_or_daemon=True), pod("web-1")
    assert move(Phase.DRAIN, gpu_pods=(stays, goes)) == (Evict("n1", (goes,)), "pod shop/web-1 still on the node")
    action, _ = move(Phase.DRAIN, gpu_pods=(stays,))
    assert action.record.phase is Phase.RELEASE


ALL_NIGHT = DrainPolicy(waits=True, jobs=timedelta(hours=8))
TRAIN_POD = pod("train-0", only_waited="namespace shop may only be waited for")


def test_jobs_are_waited_for_before_anything_is_evicted() -> None:
    action, _ = move(Phase.CORDON, drain=ALL_NIGHT)
    assert isinstance(action, Write)
    assert (action.record.phase, action.cordoned) == (Phase.JOBS, True)

    jobs = (pod("train-0"), pod("train-1", is_terminating=True))
    waiting = move(Phase.JOBS, drain=ALL_NIGHT, jobs=jobs, gpu_pods=(pod("web-1"), *jobs))
    named = "pod shop/train-0, pod shop/train-1 (terminating)"
    assert waiting == (None, f"waits for {named} to end, until 2026-05-04 20:00:00 UTC at the latest")

    action, _ = move(Phase.JOBS, drain=ALL_NIGHT, gpu_pods=(pod("web-1"),))
    assert action.record.phase is Phase.DRAIN


def test_jobs_that_do_not_end_in_time_are_evicted_with_the_others() -> None:
    late = NOON + timedelta(hours=8)
    action, _ = move(Phase.JOBS, now=late, drain=ALL_NIGHT, jobs=(pod("train-0"),))
    assert action.record.phase is Phase.DRAIN
    action, _ = move(Phase.JOBS, now=late, drain=replace(ALL_NIGHT, jobs=None), jobs=(pod("train-0"),))
    assert action is None


@pytest.mark.parametrize(
    ("drain", "job"),
    [
        pytest.param(replace(ALL_NIGHT, gives_up=True), pod("train-0"), id="declared"),
        pytest.param(ALL_NIGHT, TRAIN_POD, id="what is never evicted"),
    ],
)
def test_a_node_is_given_up_as_it_was_when_its_jobs_do_not_end_in_time(drain: DrainPolicy, job: GpuPod) -> None:
    action, _ = move(Phase.JOBS, now=NOON + timedelta(hours=8), drain=drain, jobs=(job,))
    assert isinstance(action, Write)
    assert (action.record.phase, action.record.failed_in, action.cordoned) == (Phase.RETURNED, Phase.JOBS, False)
    assert action.record.is_unrelated, "the change is not to blame: the others go on"
    assert action.record.reason.startswith("after 480 minutes: waits for pod shop/train-0")


def test_a_node_that_somebody_had_cordoned_is_given_up_cordoned() -> None:
    action, _ = move(
        Phase.JOBS,
        now=NOON + timedelta(hours=8),
        drain=replace(ALL_NIGHT, gives_up=True),
        jobs=(pod("train-0"),),
        remembered={"was_cordoned": True},
        is_cordoned=True,
    )
    assert action.cordoned is None


def test_processes_have_a_time_limit_of_their_own() -> None:
    step = ended(Phase.RELEASE, holders=(TRAIN,))
    patient = DrainPolicy(release=timedelta(minutes=30))
    assert move(Phase.RELEASE, now=NOON + 29 * MINUTE, drain=patient, step=step)[0] == RunStep("n1", Phase.RELEASE)
    action, _ = move(Phase.RELEASE, now=NOON + 30 * MINUTE, drain=patient, step=step)
    assert action.record.reason == "after 30 minutes: a GPU is held by train (7, train.service)"
    action, _ = move(Phase.DRAIN, now=NOON + 5 * MINUTE, drain=patient, gpu_pods=(pod("web-1"),))
    assert action.record.phase is Phase.FAILED


def test_the_wait_for_jobs_does_not_start_over_with_a_new_process() -> None:
    node = state("n1", view("n1", record(Phase.JOBS), jobs=(pod("train-0"),)), drain=ALL_NIGHT)
    action, _ = advance(node, record(Phase.JOBS), NOON + timedelta(hours=8), began=NOON + timedelta(hours=7))
    assert isinstance(action, Write)
    assert action.record.phase is Phase.DRAIN


def test_a_node_that_somebody_uncordoned_is_cordoned_again_while_its_jobs_run() -> None:
    action, _ = move(Phase.JOBS, drain=ALL_NIGHT, jobs=(pod("train-0"),), is_cordoned=False)
    assert (action.record.phase, action.cordoned) == (Phase.JOBS, True)


@pytest.mark.parametrize("phase", [Phase.CORDON, Phase.JOBS, Phase.DRAIN, Phase.RELEASE, Phase.SWAP])
def test_another_target_waits_for_jobs_again(phase: Phase) -> None:
    action, _ = move(phase, drain=ALL_NIGHT, target=OLD, jobs=(pod("train-0"),))
    assert action.record.phase is Phase.JOBS


def test_what_may_only_be_waited_for_is_never_evicted() -> None:
    web = pod("web-1")
    action, held = move(Phase.DRAIN, drain=ALL_NIGHT, gpu_pods=(TRAIN_POD, web))
    assert action == Evict("n1", (web,))
    assert held == "pod shop/train-0 (namespace shop may only be waited for), pod shop/web-1 still on the node"
    assert move(Phase.DRAIN, drain=ALL_NIGHT, gpu_pods=(TRAIN_POD,))[0] is None


def test_a_pod_that_is_left_alone_and_holds_a_gpu_is_named_with_the_reason() -> None:
    left = pod("monitor", stays="it has the label skip=true")
    step = ended(Phase.RELEASE, holders=(Holder(pid=9, command="smi", pod_uid=left.uid),))
    assert move(Phase.DRAIN, gpu_pods=(left,))[0].record.phase is Phase.RELEASE
    _, held = move(Phase.RELEASE, gpu_pods=(left,), step=step)
    assert held == "a GPU is held by smi (9, pod shop/monitor, left alone: it has the label skip=true)"


@pytest.mark.parametrize(
    ("controller", "why"),
    [
        pytest.param(
            "DaemonSet/dcgm",
            " of DaemonSet dcgm, left alone: keep it off the node, or declare `daemonSets: evict`",
            id="a pod of a DaemonSet",
        ),
        pytest.param("Node/n1", ", left alone: it is a static pod, which its file on the node ends", id="a static pod"),
    ],
)
def test_what_holds_a_gpu_and_is_left_alone_is_told_with_what_ends_it(controller: str, why: str) -> None:
    """The reason did not say that nobody would evict it."""
    left = pod("dcgm", is_mirror_or_daemon=True, controller=controller)
    step = ended(Phase.RELEASE, holders=(Holder(pid=9, command="dcgm", pod_uid="uid-dcgm"),))
    _, held = move(Phase.RELEASE, gpu_pods=(left,), step=step)
    assert held == f"a GPU is held by dcgm (9, pod shop/dcgm{why})"


def test_terminating_pods_are_waited_for() -> None:
    action, held = move(Phase.DRAIN, gpu_pods=(pod("web-1", is_terminating=True),))
    assert (action, held) == (None, "pod shop/web-1 (terminating) still on the node")


def test_a_blocked_pod_is_tried_again_and_its_budget_is_named() -> None:
    action, held = move(Phase.DRAIN, gpu_pods=(pod("web-1"),), blocked={"uid-web-1": "budget web"})
    assert action == Evict("n1", (pod("web-1"),))
    assert held == "pod shop/web-1 (budget web) still on the node"


def test_a_node_that_somebody_uncordoned_is_cordoned_before_pods_are_evicted() -> None:
    action, _ = move(Phase.DRAIN, gpu_pods=(pod("web-1"),), is_cordoned=False)
    assert isinstance(action, Write)
    assert (action.record, action.cordoned) == (record(Phase.DRAIN), True)


def test_pods_that_come_back_while_the_daemon_lets_go_are_evicted() -> None:
    action, _ = move(Phase.RELEASE, gpu_pods=(pod("web-1"),), step=ended(Phase.RELEASE, is_done=True))
    assert action == Evict("n1", (pod("web-1"),))


def test_a_held_gpu_is_asked_for_again_after_a_while() -> None:
    step = ended(Phase.RELEASE, holders=(TRAIN,))
    soon = NOON + timedelta(seconds=1)
    assert move(Phase.RELEASE, step=step, now=soon) == (None, "a GPU is held by train (7, train.service)")
    assert move(Phase.RELEASE, step=step)[0] == RunStep("n1", Phase.RELEASE)


@pytest.mark.parametrize(
    ("phase", "more", "reason"),
    [
        pytest.param(
            Phase.DRAIN,
            {"gpu_pods": (pod("web-1"), pod("web-2")), "blocked": {"uid-web-2": "budget web"}},
            "after 5 minutes: pod shop/web-1, pod shop/web-2 (budget web) still on the node",
            id="pods that stay",
        ),
        pytest.param(
            Phase.RELEASE,
            {"step": ended(Phase.RELEASE, holders=(TRAIN,))},
            "after 5 minutes: a GPU is held by train (7, train.service)",
            id="a process that stays",
        ),
        pytest.param(
            Phase.RELEASE,
            {
                "gpu_pods": (pod("agent", is_mirror_or_daemon=True, controller="DaemonSet/agent"),),
                "step": ended(Phase.RELEASE, holders=(Holder(pid=8, command="dcgm", pod_uid="uid-agent"),)),
            },
            "after 5 minutes: a GPU is held by dcgm (8, pod shop/agent of DaemonSet agent, left alone: "
            "keep it off the node, or declare `daemonSets: evict`)",
            id="a pod of a DaemonSet",
        ),
        pytest.param(
            Phase.RELEASE,
            {"step": ended(Phase.RELEASE, holders=(Holder(pid=8, command="dcgm", pod_uid="u9"),))},
            "after 5 minutes: a GPU is held by dcgm (8, pod with UID u9)",
            id="a pod that asked for no GPU",
        ),
        pytest.param(
            Phase.RESUME,
            {"is_ready": False, "step": ended(Phase.RESUME, is_done=True)},
            "after 5 minutes: the kubelet is not ready",
            id="a node that is not ready at the end",
        ),
    ],
)
def test_waiting_ends_with_a_reason(phase: Phase, more: dict[str, Any], reason: str) -> None:
    _, held = move(phase, now=NOON + 4 * MINUTE, **more)
    assert f"after 5 minutes: {held}" == reason
    action, _ = move(phase, now=NOON + 5 * MINUTE, **more)
    assert isinstance(action, Write)
    failed, is_back = action.record, phase is Phase.RESUME
    assert (failed.phase, failed.reason) == (Phase.ROLLBACK if is_back else Phase.FAILED, reason)
    assert (failed.failed_in, failed.is_returning) == (phase, is_back)
    assert action.cordoned is (True if is_back else None), "a node that failed stays as it is"


def test_no_pod_of_a_node_that_is_lost_is_evicted_before_jobs_were_waited_for() -> None:
    jobs = {"gpu_pods": (pod("train"),), "jobs": (pod("train"),), "drain": DrainPolicy(waits=True)}
    assert move(Phase.CORDON, is_ready=False, **jobs) == (None, "the kubelet is not ready")
    action, _ = move(Phase.CORDON, **jobs)
    assert action.record.phase is Phase.JOBS


@pytest.mark.parametrize("phase", [Phase.CORDON, Phase.DRAIN, Phase.RELEASE])
def test_the_driver_of_a_node_that_is_not_ready_is_not_touched(phase: Phase) -> None:
    step = ended(phase, is_done=True)
    assert move(phase, is_ready=False, step=step) == (None, "the kubelet is not ready")
    action, _ = move(phase, is_ready=False, step=step, now=NOON + 5 * MINUTE)
    assert (action.record.phase, action.record.is_unrelated) == (Phase.FAILED, True)


@pytest.mark.parametrize(
    ("phase", "is_touched"),
    [(Phase.RELEASE, False), (Phase.SWAP, False), (Phase.CORDON, True), (Phase.DRAIN, True)],
)
def test_what_was_killed_after_the_release_and_is_as_declared_goes_on_with_verify(
    phase: Phase, *, is_touched: bool
) -> None:
    remembered = {"is_touched": is_touched}
    action, _ = move(phase, is_as_declared=True, is_disruptive=False, gpu_pods=(pod("web-1"),), remembered=remembered)
    assert action.record.phase is Phase.VERIFY


@pytest.mark.parametrize("phase", [Phase.VERIFY, Phase.RESUME])
def test_a_driver_that_somebody_changed_back_is_swapped_again(phase: Phase) -> None:
    assert move(phase, is_disruptive=True)[0].record.phase is Phase.DRAIN


def test_pods_that_came_back_while_nobody_was_at_work_are_evicted_before_the_swap() -> None:
    action, _ = move(Phase.SWAP, gpu_pods=(pod("web-1"),))
    assert action.record.phase is Phase.DRAIN
    assert move(Phase.SWAP, gpu_pods=(pod("agent", is_mirror_or_daemon=True),))[0] == RunStep("n1", Phase.SWAP)


@pytest.mark.parametrize(
    ("is_as_declared", "phase"),
    [pytest.param(False, Phase.DRAIN, id="differs"), pytest.param(True, Phase.VERIFY, id="as declared")],
)
def test_another_target_begins_again(phase: Phase, *, is_as_declared: bool) -> None:
    action, _ = move(Phase.SWAP, target="550.163.01", is_as_declared=is_as_declared)
    assert (action.record.phase, action.record.target) == (phase, "550.163.01")
    assert (action.record.began, action.record.since) == (NOON, LATER)


def test_beginning_remembers_what_was_before() -> None:
    action = begin(state("n1", view("n1", is_cordoned=True)), LATER)
    assert action == Write(
        "n1", record(Phase.CORDON, began=LATER, since=LATER, was_cordoned=True, target=NEW, origin=OLD), cordoned=True
    )


def test_a_node_that_somebody_else_cordoned_stays_cordoned() -> None:
    action, _ = move(Phase.RESUME, step=ended(Phase.RESUME, is_done=True), remembered={"was_cordoned": True})
    assert (action.record.phase, action.cordoned) == (Phase.DONE, None)


def test_a_node_that_failed_is_tried_again_and_keeps_its_beginning() -> None:
    remembered = record(Phase.FAILED, reason="no luck", failed_in=Phase.VERIFY, was_cordoned=True)
    action = begin(state("n1", view("n1", remembered)), LATER)
    again = record(Phase.DRAIN, since=LATER, was_cordoned=True, is_touched=True)
    assert action == Write("n1", again, cordoned=True)


def test_a_cordon_that_was_there_before_and_was_lifted_meanwhile_does_not_stay() -> None:
    action, _ = move(Phase.DRAIN, is_cordoned=False, remembered={"was_cordoned": True})
    assert isinstance(action, Write)
    assert (action.cordoned, action.record.was_cordoned) == (True, False)
