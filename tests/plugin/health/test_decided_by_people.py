"""What people decide: verdicts on a GPU, and which causes count at all."""

from __future__ import annotations

import pytest

from plugin.devices.health.model import FindingChange, Policy, Verdict
from plugin.devices.health.xid import plan_policy
from plugin.driver.reading import Counters
from tests.plugin.health.looks import GONE, IDLE, A, Node

UNHEALTHY = Verdict(is_healthy=False, reason="smells of smoke", since="2026-09-01T10:00:00Z")
HEALTHY = Verdict(is_healthy=True, reason="cable was loose", since="2026-09-01T10:00:00Z")


# Verdicts


def test_a_verdict_wins_over_findings_both_ways() -> None:
    node = Node()
    node.verdicts = {A: UNHEALTHY}
    (change,) = node.look()
    assert (change.change, change.reason) == (FindingChange.VERDICT, "set unhealthy by hand: smells of smoke")
    node.look(after_s=10_000)
    assert node.why() == "set unhealthy by hand: smells of smoke"
    node.verdicts = {A: HEALTHY}
    node.look(79)
    assert node.why() == ""
    node.verdicts = {}
    node.look()
    assert node.why().startswith("xid 79")


def test_who_calls_a_gpu_healthy_vouches_for_what_was_open() -> None:
    node = Node()
    node.look(79)
    node.verdicts = {A: HEALTHY}
    closed = [change for change in node.look() if change.change is FindingChange.CLOSED]
    assert [(change.cause, change.reason) for change in closed] == [("xid 79", "set healthy by hand")]
    node.verdicts = {}
    node.look()
    assert node.why() == ""


def test_who_clears_a_verdict_of_unhealthy_vouches_for_nothing() -> None:
    node = Node()
    node.look(48)
    node.verdicts = {A: UNHEALTHY}
    node.look()
    node.verdicts = {}
    node.look()
    assert node.why().startswith("xid 48")


# Policy


@pytest.mark.parametrize(
    ("policy", "xid", "condemns"),
    [
        pytest.param(Policy(skipped_xids=frozenset({48})), 48, False, id="a skipped one"),
        pytest.param(Policy(skips_all_xids=True), 79, False, id="all skipped"),
        pytest.param(Policy(enforced_xids=frozenset({31})), 31, True, id="an enforced error of applications"),
        pytest.param(
            Policy(enforced_xids=frozenset({79}), skipped_xids=frozenset({79}), skips_all_xids=True),
            79,
            True,
            id="enforced stands above skipped",
        ),
        pytest.param(plan_policy(["all"], []), 79, False, id="DISABLE=all"),
        pytest.param(plan_policy(["xids"], []), 79, False, id="DISABLE=xids"),
        pytest.param(plan_policy(["48", "79"], []), 79, False, id="DISABLE names it"),
        pytest.param(plan_policy(["48"], []), 79, True, id="DISABLE names another one"),
        pytest.param(plan_policy(["all"], ["79"]), 79, True, id="ENABLE stands above DISABLE=all"),
        pytest.param(plan_policy(["all"], ["79"]), 48, False, id="ENABLE leaves the others disabled"),
        pytest.param(plan_policy(["79"], ["all"]), 79, True, id="ENABLE=all stands above DISABLE"),
        pytest.param(plan_policy([], ["xids"]), 13, True, id="ENABLE=xids condemns for errors of applications"),
    ],
)
def test_an_operator_decides_which_numbers_count(policy: Policy, xid: int, *, condemns: bool) -> None:
    node = Node(policy)
    node.look(xid)
    assert bool(node.why()) == condemns
    assert f"xid {xid}" in {finding.cause for finding in node.state.gpus[A].findings}


@pytest.mark.parametrize(
    ("disabled", "is_condemned"),
    [
        pytest.param((), True, id="nothing is disabled"),
        pytest.param(("xids",), True, id="xids is no word for the rest"),
        pytest.param(("all",), False, id="all is"),
    ],
)
def test_all_disables_the_checks_of_memory_and_links_too(disabled: tuple[str, ...], *, is_condemned: bool) -> None:
    node = Node(plan_policy(disabled, []))
    for _ in range(3):
        node.look(a=IDLE._replace(rows_failed=True))
    assert bool(node.why()) == is_condemned
    assert [finding.cause for finding in node.state.gpus[A].findings] == ["rows failed"]


def test_a_gpu_that_does_not_answer_is_condemned_whatever_is_disabled() -> None:
    node = Node(plan_policy(["all"], []))
    node.look(a=GONE)
    assert node.why().startswith("lost")
    assert node.look(a=GONE) == ()


def test_what_is_disabled_later_closes_what_is_open_and_tells_it_once() -> None:
    node = Node()
    node.look(79, a=IDLE._replace(rows_failed=True))
    node.policy = plan_policy(["all"], [])
    told = [node.look(a=IDLE._replace(rows_failed=True)) for _ in range(3)]
    assert node.why() == ""
    assert [
        (change.change, change.cause, change.reason) for change in told[0] if change.change is FindingChange.CLOSED
    ] == [(FindingChange.CLOSED, cause, "not checked: DP_DISABLE_HEALTHCHECKS") for cause in ("xid 79", "rows failed")]
    assert told[1:] == [(), ()]


def test_what_is_enabled_again_condemns_when_it_is_seen() -> None:
    node = Node(plan_policy(["all"], []))
    node.look(48, a=IDLE._replace(rows_failed=True))
    node.policy = Policy()
    node.look(a=IDLE._replace(rows_failed=True))
    assert node.why().startswith("rows failed")


def test_counters_that_a_gpu_does_not_have_are_no_reset() -> None:
    node = Node()
    node.look(48)
    node.look(a=IDLE._replace(counters=Counters()))
    node.look()
    assert node.why() != ""
