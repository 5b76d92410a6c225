"""Which GPU is given away, cause by cause, and what it takes until it is again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.devices.health.model import Class, FindingChange, Verdict
from tests.plugin.health.looks import BUSY, GONE, IDLE, MIG, A, B, Node, was_reset

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.driver.reading import Reading

UNHEALTHY = Verdict(is_healthy=False, reason="smells of smoke", since="2026-09-01T10:00:00Z")
HEALTHY = Verdict(is_healthy=True, reason="cable was loose", since="2026-09-01T10:00:00Z")


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])
def test_an_error_of_an_application_condemns_nobody(xid: int) -> None:
    node = Node()
    (change,) = node.look(xid)
    assert (change.uuid, change.change, change.kind) == (A, FindingChange.OPENED, Class.APPLICATION)
    assert change.new_xid == xid
    assert (node.why(A), node.why(B)) == ("", "")


@pytest.mark.parametrize(
    ("xid", "why"),
    [
        pytest.param(48, "xid 48: double-bit memory error; needs a reset of the GPU", id="a reset"),
        pytest.param(79, "xid 79: the gpu has fallen off the bus; needs a reboot of the node", id="a reboot"),
        pytest.param(78, "xid 78: vgpu start error; needs a reload of the driver", id="a reload"),
        pytest.param(999, "xid 999: in no list; needs a quiet time, and nobody using it", id="an unknown number"),
    ],
)
def test_an_error_condemns_its_gpu_alone_and_says_what_it_needs(xid: int, why: str) -> None:
    node = Node()
    node.look(xid)
    assert (node.why(A), node.why(B)) == (why, "")


@pytest.mark.slow
def test_the_worst_finding_is_the_reason() -> None:
    node = Node()
    node.look(74, 79, 48)
    assert node.why().startswith("xid 79:")
    assert len(node.gpus[A].findings) == 3


def test_a_change_is_told_once() -> None:
    node = Node()
    assert len(node.look(48)) == 1
    assert node.look(48, 48) == ()
    assert node.look() == ()


def test_an_event_of_a_mig_device_is_its_gpus() -> None:
    node = Node()
    node.look(95, of=MIG)
    assert (node.why(A)[:6], node.why(B)) == ("xid 95", "")


@pytest.mark.parametrize("device", ["", "GPU-of-another-node", "MIG-unknown"])
def test_an_event_of_an_unknown_device_is_told_and_condemns_nobody(device: str) -> None:
    node = Node()
    (change,) = node.look(79, of=device)
    assert (change.uuid, change.change) == ("", FindingChange.STRAY)
    assert (node.why(A), node.why(B)) == ("", "")


# Evidence

QUIET, RESET, RELOAD, BOOT = "quiet and idle", "a reset", "a reload", "a boot"


def give(node: Node, evidence: str) -> None:
    """Let evidence happen, and look."""
    if evidence == QUIET:
        node.look(after_s=301)
    elif evidence == RESET:
        node.look(a=was_reset())
    elif evidence == RELOAD:
        node.reload()
        node.look()
    else:
        node.boot()
        node.look()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("xid", "enough"),
    [
        pytest.param(74, {QUIET, RESET, RELOAD, BOOT}, id="one that may pass"),
        pytest.param(48, {RESET, RELOAD, BOOT}, id="one that needs a reset"),
        pytest.param(78, {RELOAD, BOOT}, id="one that needs a reload"),
        pytest.param(79, {BOOT}, id="one that needs a reboot"),
    ],
)
@pytest.mark.parametrize("evidence", [QUIET, RESET, RELOAD, BOOT])
def test_each_class_has_its_evidence(xid: int, enough: set[str], evidence: str) -> None:
    node = Node()
    node.look(xid)
    give(node, evidence)
    assert (node.why() == "") == (evidence in enough)


@pytest.mark.parametrize("happen", [Node.reload, Node.boot], ids=["a reload", "a boot"])
def test_no_evidence_counts_for_a_gpu_that_does_not_answer(happen: Callable[[Node], None]) -> None:
    node = Node()
    node.look(48)
    happen(node)
    node.look(a=GONE)
    assert node.why() != ""
    node.look()
    assert "xid 48" not in node.why()


def test_quiet_is_not_enough_for_a_gpu_in_use() -> None:
    node = Node()
    node.look(74)
    node.look(a=BUSY, after_s=1000)
    assert node.why().startswith("xid 74")
    node.look(a=IDLE._replace(processes=None))
    assert node.why().startswith("xid 74")
    (closed,) = node.look()
    assert closed.reason == "not seen again for 300 s, and the gpu is idle and answers"


def test_time_in_which_nobody_watched_is_not_quiet() -> None:
    node = Node()
    node.look(74)
    node.moment = node.moment._replace(uptime_s=node.moment.uptime_s + 1000)
    node.restart_daemon()
    node.look(after_s=299)
    assert node.why() != ""
    node.look(after_s=1)
    assert node.why() == ""


def test_an_error_that_recurs_restarts_the_quiet_time() -> None:
    node = Node()
    node.look(74)
    node.look(74, after_s=290)
    node.look(after_s=290)
    assert node.why() != ""


def test_a_reset_before_the_error_is_no_evidence() -> None:
    node = Node()
    node.look(a=was_reset())
    node.look(48, a=was_reset())
    node.look(a=was_reset())
    assert node.why() != ""


def test_a_reset_in_the_look_of_an_error_is_no_evidence_for_it() -> None:
    node = Node()
    node.look(48, a=was_reset())
    node.look(a=was_reset())
    assert node.why() != ""


def test_a_reset_of_a_gpu_that_did_not_answer_is_evidence_when_it_can_only_have_been_afterwards() -> None:
    node = Node()
    node.look(48, a=GONE)
    node.look(a=was_reset())
    assert "xid 48" not in node.why()
    node = Node()
    node.restart_daemon()  # while it was down, somebody may have reset the GPU
    node.look(48, a=GONE)
    node.look(a=was_reset())
    assert node.why().startswith("xid 48")
    node.look()
    node.look(a=was_reset())
    assert "xid 48" not in node.why()


def test_a_boot_that_cannot_be_told_is_no_evidence() -> None:
    node = Node()
    node.look(79)
    node.moment = node.moment._replace(boot_id="", module_id="")
    node.look(after_s=1000)
    assert node.why() != ""


def test_an_error_of_an_application_is_forgotten_after_a_quiet_time_also_in_use() -> None:
    node = Node()
    node.look(31)
    (closed,) = node.look(a=BUSY, after_s=301)
    assert closed.new_xid is None
    assert (closed.change, closed.reason) == (FindingChange.CLOSED, "not seen again for 300 s")
    assert node.gpus[A].findings == ()


# Conditions


def errors(count: int, *, rows: bool | None = False) -> Reading:
    return IDLE._replace(counters=IDLE.counters._replace(volatile_uncorrected=count), rows_pending=rows)


@pytest.mark.parametrize(
    ("reading", "why"),
    [
        pytest.param(IDLE._replace(rows_pending=True), "rows pending: a memory row waits", id="a row to be remapped"),
        pytest.param(IDLE._replace(rows_failed=True), "rows failed: a memory row could not", id="a row that failed"),
        pytest.param(IDLE._replace(pages_pending=True), "pages pending: a memory page", id="a page to be retired"),
        pytest.param(errors(2), "ecc: 2 new uncorrected memory errors; needs a quiet", id="errors that are contained"),
        pytest.param(errors(1, rows=None), "ecc: 1 new uncorrected memory errors; needs a reset", id="older GPUs"),
        pytest.param(GONE, "lost: it does not answer: gpu is lost; needs a quiet", id="off the bus"),
        pytest.param(IDLE._replace(ecc_mode_pending=True), "", id="another ECC mode"),
        pytest.param(IDLE._replace(aggregate_uncorrected=7), "", id="errors long ago"),
        pytest.param(IDLE._replace(slowdowns=("thermal slowdown by hardware",)), "", id="too hot"),
        pytest.param(IDLE._replace(slowdowns=("power cap",)), "", id="the power limit"),
    ],
)
def test_a_condition_condemns_its_gpu_alone_or_is_noted(reading: Reading | None, why: str) -> None:
    node = Node()
    (change,) = node.look(a=reading)
    assert (change.kind.condemns, change.new_xid) == (bool(why), None)
    assert node.why(A).startswith(why)
    assert bool(node.why(A)) == bool(why)
    assert node.why(B) == ""


@pytest.mark.parametrize("end", [QUIET, RESET, RELOAD, BOOT])
def test_a_failed_row_is_only_settled_by_hand(end: str) -> None:
    node = Node()
    node.look(a=IDLE._replace(rows_failed=True))
    give(node, end)
    assert node.why().startswith("rows failed")
    node.verdicts = {A: HEALTHY}
    node.look()
    node.verdicts = {}
    node.look()
    assert node.why() == ""


def test_a_condition_that_holds_is_not_closed_by_a_boot() -> None:
    node = Node()
    node.look(a=IDLE._replace(rows_pending=True))
    node.boot()
    node.look(a=IDLE._replace(rows_pending=True))
    assert node.why().startswith("rows pending")
    node.look(a=was_reset())
    assert node.why() == ""


def test_errors_of_before_the_first_reading_are_nobodys_news() -> None:
    node = Node()
    node.boot()
    node.look(a=errors(5))
    assert node.why() == ""
    node.look(a=errors(6))
    assert node.why().startswith("ecc: 1 new")


def links(count: int) -> Reading:
    return IDLE._replace(links_active=count)


def test_a_link_that_is_down_condemns_and_one_that_never_was_up_does_not() -> None:
    node = Node()
    node.look(a=links(12), b=links(6))
    assert (node.why(A), node.why(B)) == ("", "")
    node.look(a=links(11), b=links(6))
    assert node.why(A).startswith("nvlink down: 1 of 12 nvlinks are down")
    assert node.why(B) == ""
    node.look(a=links(12), b=links(6), after_s=301)
    assert node.why(A) == ""


def test_the_links_of_a_neighbour_that_is_gone_are_no_fault() -> None:
    node = Node()
    node.look(a=links(12), b=links(12))
    node.look(a=GONE, b=links(8))
    assert (node.why(A)[:4], node.why(B)) == ("lost", "")
    assert [finding.kind for finding in node.gpus[B].findings] == [Class.NOTED]


@pytest.mark.parametrize("happens", ["a boot", "a reset"])
def test_links_are_counted_again_after(happens: str) -> None:
    node = Node()
    node.look(a=links(12))
    if happens == "a boot":
        node.boot()
        node.look(a=links(8))
    else:
        node.look(a=was_reset(links(8)))
    assert node.why() == ""


def test_a_gpu_that_is_not_looked_at_keeps_what_is_open() -> None:
    node = Node()
    node.look(79)
    node.state = type(node.state)({**node.state.gpus, "GPU-gone": node.state.gpus[A]})
    node.look(after_s=1000)
    assert node.why("GPU-gone") == node.why(A) != ""


# What the driver itself asks for


@pytest.mark.parametrize(
    ("action", "why"),
    [
        pytest.param(None, "", id="a driver that knows no such question"),
        pytest.param(0, "", id="nothing"),
        pytest.param(
            1, "asks for a reset: end what uses the gpu, then nvidia-smi --gpu-reset; needs a reset", id="reset"
        ),
        pytest.param(2, "asks for a reboot of the node; needs a reboot", id="reboot"),
        pytest.param(3, "asks for an end of its peer-to-peer traffic", id="drain of its peers"),
        pytest.param(4, "asks for a drain and a reset: what runs may go on", id="drain and reset"),
        pytest.param(5, "", id="its fabric's domain, which is noted"),
        pytest.param(99, "asks for action 99, which this version does not know", id="one of a later driver"),
    ],
)
def test_a_recovery_that_the_driver_asks_for_is_said_in_words(action: int | None, why: str) -> None:
    node = Node()
    node.look(154, a=IDLE._replace(recovery_action=action))
    assert why in node.why(A)
    assert bool(node.why(A)) == bool(why)
    assert node.why(B) == ""


def test_a_gpu_of_which_the_driver_asks_nothing_any_more_is_healthy() -> None:
    node = Node()
    node.look(a=IDLE._replace(recovery_action=2))
    assert node.look(a=IDLE)[:1] == (), "a driver that was not asked"
    assert node.why(A)
    (change,) = node.look(a=IDLE._replace(recovery_action=0))
    assert (change.change, change.reason) == (FindingChange.CLOSED, "the driver asks for nothing any more")
    assert node.why(A) == ""


# Limits of heat and power


def test_a_gpu_that_is_held_down_by_heat_or_power_is_noted_and_nobody_is_condemned() -> None:
    node = Node()
    for _ in range(3):
        node.look(a=IDLE._replace(slowdowns=("thermal slowdown by hardware", "power cap")))
    assert [(finding.cause, finding.kind) for finding in node.gpus[A].findings] == [
        ("thermal slowdown by hardware", Class.NOTED),
        ("power cap", Class.NOTED),
    ]
    assert (node.why(A), node.why(B), node.gpus[B].findings) == ("", "", ())
    node.look(after_s=301)
    assert node.gpus[A].findings == ()
