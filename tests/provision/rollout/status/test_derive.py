"""What is said of nodes, from what was seen: with an engine at work, without one, and after one that was killed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from provision.declaration.spec.model import GpuInterface
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.interface.pause import Pause
from provision.rollout.interface.standing import Members, Standing
from provision.rollout.model import ChangeKind, Phase
from provision.rollout.status import situations
from provision.rollout.status.derive import fleet_status
from provision.rollout.status.model import Seen, Tenant, WaveStatus
from tests.provision.rollout.fakes import MINUTE, NOON, OLD, record, view
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from provision.rollout.model import NodeView
    from provision.rollout.status.model import FleetStatus
    from provision.rollout.status.situations import Situation

NOW = NOON + 10 * MINUTE
ADA = Tenant(holder="ada@laptop/1", since=NOON, heard=NOW)
KILLED = replace(ADA, heard=NOON + 2 * MINUTE, is_at_work=False)
STANDING = Standing(began=NOON, time=NOW - MINUTE, at_once=1, soak=timedelta(0), out=frozenset(), waiting={})
TOOK = {
    Phase.CORDON: 1.0,
    Phase.DRAIN: 30.0,
    Phase.RELEASE: 4.0,
    Phase.SWAP: 60.0,
    Phase.VERIFY: 10.0,
    Phase.RESUME: 5.0,
}
WHOLE_S = sum(TOOK.values())


def standing(*, out: tuple[str, ...] = (), stop: str = "", **waiting: str) -> Standing:
    return replace(STANDING, out=frozenset(out), waiting=waiting, stop=stop)


def status(*views: NodeView | NodeProblem, **more: object) -> FleetStatus:
    fields = {"place": "cluster test", "time": NOW, "nodes": {each.name: each for each in views}, **more}
    return fleet_status(Seen(**fields))  # type: ignore[arg-type]  # fields by name


def only(found: FleetStatus) -> Situation:
    (node,) = found.nodes
    return node.situation


IN_FLIGHT = [phase for phase in Phase if not phase.is_over]


@pytest.mark.parametrize("phase", IN_FLIGHT)
def test_a_node_that_an_engine_is_at_gets_on_by_itself(phase: Phase) -> None:
    found = status(view("n1", record(phase)), tenant=ADA, standing=standing(out=("n1",), n1="pod shop/web-1"))

    assert only(found) is situations.WORKING[phase]
    assert found.nodes[0].reason.endswith("pod shop/web-1")
    assert not found.needs_somebody


def test_what_was_published_is_void_where_a_controller_leads_and_has_nothing_to_do() -> None:
    """It named nodes that would never begin, and asked for an apply."""
    left = {"tenant": KILLED, "standing": standing(n1="n2 is out of service")}
    leads = Tenant(holder="ctl-1", since=NOON, heard=NOW)

    assert only(status(view("n1"), **left)) is situations.NOT_BEGUN
    assert only(status(view("n1"), **left, controller=leads)) is situations.IDLE
    at_work = {**left, "tenant": leads}
    assert only(status(view("n1"), **at_work, controller=leads)) is situations.WAITING


def test_a_change_of_mig_layouts_is_told_from_a_swap() -> None:
    divides = view("n1", record(Phase.SWAP, kind=ChangeKind.MIG))
    failed = record(Phase.FAILED, failed_in=Phase.SWAP, kind=ChangeKind.MIG)
    drained = record(Phase.FAILED, failed_in=Phase.DRAIN, kind=ChangeKind.MIG)

    assert only(status(divides, tenant=ADA, standing=standing(out=("n1",)))) is situations.DIVIDING
    assert only(status(divides)) is situations.LEFT[Phase.SWAP]
    assert only(status(view("n1", failed))) is situations.FAILED_MIG
    assert only(status(view("n1", drained))) is situations.FAILED_IN[Phase.DRAIN]


def test_a_change_of_the_interface_is_told_from_a_swap() -> None:
    dra = {"kind": ChangeKind.INTERFACE, "interface": GpuInterface.DRA}
    changes = view("n1", record(Phase.VERIFY, **dra), is_cordoned=False)
    failed = record(Phase.FAILED, failed_in=Phase.ROLLBACK, **dra)
    returned = record(Phase.RETURNED, is_returning=True, failed_in=Phase.VERIFY, reason="no kubelet took it", **dra)

    assert only(status(changes, tenant=ADA, standing=standing(out=("n1",)))) is situations.CHANGING_OVER
    assert only(status(changes)) is situations.LEFT_CHANGING_OVER
    assert only(status(view("n1", failed, is_cordoned=False))) is situations.FAILED_INTERFACE
    found = status(view("n1", returned))
    assert only(found) is situations.RETURNED_INTERFACE
    assert found.nodes[0].reason == (
        "returned to giving GPUs by the device plugin, since verify failed: no kubelet took it"
    )
    former = {"n1": make_stack().plugin}
    assert only(status(view("n1", returned), daemons=former)) is situations.DONE, "it is declared again"


def test_a_reboot_is_told_from_a_swap() -> None:
    reboots = view("n1", record(Phase.SWAP, kind=ChangeKind.REBOOT))
    failed = record(Phase.FAILED, failed_in=Phase.VERIFY, kind=ChangeKind.REBOOT)
    drained = record(Phase.FAILED, failed_in=Phase.DRAIN, kind=ChangeKind.REBOOT)

    assert only(status(reboots, tenant=ADA, standing=standing(out=("n1",)))) is situations.REBOOTING
    assert only(status(reboots)) is situations.LEFT_REBOOTING
    assert only(status(view("n1", failed))) is situations.FAILED_REBOOT
    assert only(status(view("n1", drained))) is situations.FAILED_IN[Phase.DRAIN]


@pytest.mark.parametrize("phase", IN_FLIGHT)
@pytest.mark.parametrize("tenant", [None, KILLED], ids=["nobody has the lease", "its engine was killed"])
def test_a_node_that_nobody_is_at_was_left(phase: Phase, tenant: Tenant | None) -> None:
    found = status(view("n1", record(phase)), tenant=tenant, standing=standing(out=("n1",), n1="pod shop/web-1"))

    assert only(found) is situations.LEFT[phase]
    assert found.nodes[0].reason.endswith("pod shop/web-1"), "the last that was known"
    assert found.needs_somebody


def test_an_engine_at_work_on_other_nodes_of_the_cluster_is_not_at_this_one() -> None:
    found = status(view("n1", record(Phase.SWAP)), tenant=ADA, standing=standing(out=("other",)))

    assert only(found) is situations.LEFT[Phase.SWAP]


def test_a_phase_that_is_younger_than_what_was_published_is_the_engines() -> None:
    young = record(Phase.CORDON, since=NOW - timedelta(seconds=2))

    assert only(status(view("n1", young), tenant=ADA, standing=standing())) is situations.WORKING[Phase.CORDON]


def test_an_engine_that_prepares_comes_to_what_it_finds_in_flight() -> None:
    assert only(status(view("n1", record(Phase.SWAP)), tenant=ADA)) is situations.WORKING[Phase.SWAP]


def test_where_the_lease_cannot_be_read_nobody_is_said_to_have_gone() -> None:
    found = status(view("n1", record(Phase.SWAP)), is_lease_known=False)

    assert only(found) is situations.WORKING[Phase.SWAP]


@pytest.mark.parametrize("phase", IN_FLIGHT)
def test_a_failed_node_says_where_and_why(phase: Phase) -> None:
    found = status(view("n1", record(Phase.FAILED, failed_in=phase, reason="3 of 4 GPUs")), tenant=ADA)

    assert only(found) is situations.FAILED_IN[phase]
    assert found.nodes[0].reason == "3 of 4 GPUs"
    assert found.needs_somebody


def test_a_record_that_says_it_failed_in_the_end_is_not_believed() -> None:
    assert only(status(view("n1", record(Phase.FAILED, failed_in=Phase.DONE)))) is situations.FAILED


@pytest.mark.parametrize(
    ("seen", "tenant", "expected"),
    [
        (view("n1"), ADA, situations.WAITING),
        (view("n1", record(Phase.DONE)), ADA, situations.WAITING),
        (view("n1", is_ready=False), ADA, situations.WAITING),
        (view("n1"), None, situations.NOT_BEGUN),
        (view("n1"), KILLED, situations.NOT_BEGUN),
    ],
    ids=[
        "an engine is at work",
        "it was upgraded before",
        "the reason is better than that it is not ready",
        "the run has ended",
        "the engine was killed",
    ],
)
def test_a_node_with_a_reason_waits(seen: NodeView, tenant: Tenant | None, expected: Situation) -> None:
    found = status(seen, tenant=tenant, standing=standing(n1="waits for n0: drain"))

    assert (only(found), found.nodes[0].reason) == (expected, "waits for n0: drain")


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (view("n1"), situations.IDLE),
        (view("n1", is_cordoned=True), situations.CORDONED),
        (view("n1", is_ready=False), situations.NOT_READY),
        (view("n1", record(Phase.DONE)), situations.DONE),
        (view("n1", record(Phase.DONE), is_ready=False), situations.NOT_READY),
        (NodeProblem(name="n1", message="its record cannot be read", hint="look"), situations.UNCLEAR),
    ],
    ids=["nothing", "cordoned", "not ready", "done", "done, then not ready", "unclear"],
)
def test_a_node_that_nothing_is_done_about(seen: NodeView | NodeProblem, expected: Situation) -> None:
    assert only(status(seen, tenant=ADA, standing=standing())) is expected


def test_what_is_left_is_the_rest_of_a_node_and_the_whole_of_those_that_wait() -> None:
    flying = record(Phase.SWAP, since=NOW - timedelta(seconds=20))
    done = record(Phase.DONE, since=NOON + MINUTE, took=TOOK)
    told = standing(out=("n2",), n3="waits for n2: swap", n4="waits for n2: swap")
    soaking = replace(told, soak=MINUTE)

    found = status(view("n1", done), view("n2", flying), view("n3"), view("n4"), tenant=ADA, standing=soaking)

    assert found.nodes[1].left_s == 40 + 10 + 5
    assert found.left_s == 55 + 2 * (WHOLE_S + 60)
    assert found.measured == 1


def test_waves_take_their_soak_too() -> None:
    done = record(Phase.DONE, since=NOON + MINUTE, took=TOOK)
    told = replace(standing(n2="wave 2 of 2"), wave_soak=30 * MINUTE)

    assert status(view("n1", done), view("n2"), tenant=ADA, standing=told).left_s == WHOLE_S + 1800
    held = replace(told, is_held=True)
    assert status(view("n1", done), view("n2"), tenant=ADA, standing=held).left_s is None


def test_two_at_once_take_half_as_long() -> None:
    done = record(Phase.DONE, since=NOON + MINUTE, took=TOOK)
    told = replace(standing(n2="soaks", n3="soaks", n4="soaks"), at_once=2)

    found = status(view("n1", done), view("n2"), view("n3"), view("n4"), tenant=ADA, standing=told)

    assert found.left_s == 2 * WHOLE_S


def test_nodes_that_are_not_named_take_their_time_too() -> None:
    done = record(Phase.DONE, since=NOON + MINUTE, took=TOOK)
    told = replace(standing(), unnamed=(("waits for n1: swap", 10),))

    assert status(view("n1", done), tenant=ADA, standing=told).left_s == 10 * WHOLE_S


def test_a_node_that_is_not_named_may_wait_all_the_same() -> None:
    found = status(view("n1"), tenant=ADA, standing=replace(standing(), unnamed=(("soaks", 1), ("waits for n9", 7))))

    assert only(found) is situations.IDLE
    assert found.nodes[0].reason == (
        "unless it is one of 7 nodes that wait and that the engine did not name: waits for n9"
    )


def test_one_node_that_lies_does_not_decide() -> None:
    honest = [view(f"n{number}", record(Phase.DONE, since=NOW, took=TOOK)) for number in range(4)]
    liar = view("bad", record(Phase.DONE, since=NOW, took=dict.fromkeys(TOOK, 1e7)))

    assert status(*honest, liar, view("n9"), tenant=ADA, standing=standing(n9="soaks")).left_s == WHOLE_S


@pytest.mark.parametrize(
    ("before", "tenant", "told"),
    [
        (record(Phase.DONE, since=NOW), ADA, standing(n2="soaks")),
        (record(Phase.DONE, since=NOW, took={Phase.DRAIN: 3.0}), ADA, standing(n2="soaks")),
        (record(Phase.DONE, since=NOON - MINUTE, took=TOOK), ADA, standing(n2="soaks")),
        (record(Phase.DONE, since=NOW, took=TOOK), None, standing(n2="soaks")),
        (record(Phase.DONE, since=NOW, took=TOOK), ADA, standing(n2="stopped: n1", stop="n1 failed in drain")),
    ],
    ids=[
        "nothing was measured",
        "one phase was measured",
        "another run was measured",
        "nobody is at work",
        "the run has stopped",
    ],
)
def test_nothing_is_estimated_where(before: object, tenant: Tenant | None, told: Standing) -> None:
    found = status(view("n1", before), view("n2"), tenant=tenant, standing=told)  # type: ignore[arg-type]  # a record

    assert found.left_s is None


def test_nodes_have_the_titles_of_their_wave_and_domain_and_waves_their_progress() -> None:
    published = replace(
        standing(out=("n2",), n4="waits for wave 1"),
        waves=(Members("wave 1 of 2 (canary)", ("n1", "n2", "n3")), Members("wave 2 of 2", ("n4",))),
        domains=(Members("rack-1", ("n1", "n2")),),
    )

    found = status(
        view("n1", record(Phase.DONE)),
        view("n2", record(Phase.SWAP)),
        view("n3", record(Phase.FAILED, failed_in=Phase.SWAP)),
        view("n4"),
        view("n5"),
        tenant=ADA,
        standing=published,
    )

    assert [(node.wave, node.domain) for node in found.nodes] == [
        ("wave 1 of 2 (canary)", "rack-1"),
        ("wave 1 of 2 (canary)", "rack-1"),
        ("wave 1 of 2 (canary)", ""),
        ("wave 2 of 2", ""),
        ("", ""),
    ]
    assert found.waves == (
        WaveStatus(title="wave 1 of 2 (canary)", total=3, done=1, flying=1, failed=1),
        WaveStatus(title="wave 2 of 2", total=1),
    )


def test_a_node_that_was_changed_before_and_waits_again_is_not_done() -> None:
    published = replace(standing(n1="waits for n2: drain"), waves=(Members("wave 1 of 1", ("n1",)),))

    found = status(view("n1", record(Phase.DONE)), tenant=ADA, standing=published)

    assert found.waves == (WaveStatus(title="wave 1 of 1", total=1),)


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (view("n1", is_skipped=True), ""),
        (view("n1", is_skipped=True, is_cordoned=True), "it is cordoned"),
        (view("n2", is_skipped=True), "is skipped"),
    ],
)
def test_a_node_that_people_want_left_alone_waits_for_nothing(seen: NodeView, reason: str) -> None:
    (node,) = status(seen, tenant=ADA, standing=standing(n2="is skipped")).nodes

    assert (node.situation, node.reason) == (situations.SKIPPED, reason)


def test_a_node_that_returned_and_is_skipped_needs_nobody_and_keeps_its_reason() -> None:
    returned = record(Phase.RETURNED, is_returning=True, failed_in=Phase.SWAP, reason="the module does not load")
    found = status(view("n1", returned, is_skipped=True))

    assert not found.needs_somebody, "it said that the next run tries it again, which it does not"
    assert found.nodes[0].situation is situations.SKIPPED
    assert found.nodes[0].reason == f"returned to {OLD}, since swap failed: the module does not load"


def test_a_failed_node_that_is_skipped_says_that_no_run_begins_with_it() -> None:
    failed = record(Phase.FAILED, failed_in=Phase.DRAIN, reason="pods did not leave")
    (node,) = status(view("n1", failed, is_skipped=True)).nodes

    assert node.situation is situations.FAILED_IN[Phase.DRAIN], "it is out of service all the same"
    assert node.reason == "pods did not leave; it is skipped, so that no run begins with it"


def test_what_waits_for_the_end_of_a_pause_needs_somebody_and_has_no_time() -> None:
    pause = Pause(by="ada@laptop", since=NOON, reason="disk alarms")
    done = record(Phase.DONE, since=NOON + MINUTE, took=TOOK)
    told = standing(n2=pause.as_reason)

    running = status(view("n1", done), view("n2"), tenant=ADA, standing=told)
    paused = status(view("n1", done), view("n2"), tenant=ADA, standing=told, pause=pause)

    assert (running.needs_somebody, running.left_s is None) == (False, False)
    assert (paused.needs_somebody, paused.left_s) == (True, None)
    assert not status(view("n1", done), tenant=ADA, standing=standing(), pause=pause).needs_somebody


TOLD = ("GrapnelDriverUpgrade",)


def remarks(*, phase: Phase | None, tenant: Tenant | None, out: tuple[str, ...] = ()) -> tuple[str, ...]:
    seen = view("n1", None if phase is None else record(phase), told=TOLD)
    return status(seen, tenant=tenant, standing=standing(out=out)).nodes[0].remarks


@pytest.mark.parametrize("phase", [None, Phase.SWAP, Phase.DONE, Phase.FAILED])
@pytest.mark.parametrize("tenant", [None, KILLED], ids=["nobody has the lease", "its engine was killed"])
def test_a_condition_that_a_killed_engine_left_is_told_of(phase: Phase | None, tenant: Tenant | None) -> None:
    (remark,) = remarks(phase=phase, tenant=tenant)
    assert remark.startswith("left by an engine that is gone: condition GrapnelDriverUpgrade; the next `grapnel apply`")


def test_a_condition_of_an_engine_at_work_is_not() -> None:
    assert remarks(phase=Phase.SWAP, tenant=ADA, out=("n1",)) == ()
    assert remarks(phase=Phase.DONE, tenant=ADA) == (), "it is about to say so"


def test_what_else_is_known_of_a_node_is_with_it_in_every_state() -> None:
    for phase in (None, *Phase):
        seen = view("n1", None if phase is None else record(phase), remarks=("its pool is paused",))
        found = status(seen, tenant=ADA, standing=replace(STANDING, waves=(Members("canary", ("n1",)),)))
        assert (found.nodes[0].remarks, found.nodes[0].wave) == (("its pool is paused",), "canary")
