"""The table of states, and the page that is made from it."""

from __future__ import annotations

import re
from pathlib import Path

from provision.rollout.model import Phase
from provision.rollout.status.advice import led, render_page, unled
from provision.rollout.status.metrics import CLASSES, reason_class
from provision.rollout.status.situations import (
    FAILED_IN,
    GIVE_UP,
    LEFT,
    LEFT_REBOOTING,
    NOT_BEGUN,
    SITUATIONS,
    WORKING,
)

PAGE = Path(__file__).parents[4] / "docs" / "upgrade-incidents.md"


def test_every_phase_out_of_service_has_its_states() -> None:
    flying = {phase for phase in Phase if not phase.is_over}

    assert set(WORKING) == set(LEFT) == set(FAILED_IN) == flying


def test_every_state_is_in_the_table_once() -> None:
    assert len({each.key for each in SITUATIONS}) == len(SITUATIONS)
    assert {*WORKING.values(), *LEFT.values(), *FAILED_IN.values()} <= set(SITUATIONS)


def test_who_is_needed_is_told_what_to_do() -> None:
    assert [each.key for each in SITUATIONS if each.needs_somebody and not each.todo] == []


def test_where_a_controller_leads_nobody_is_sent_to_a_terminal_for_a_node_of_its_stack() -> None:
    """An idle controller refused the `grapnel apply` that was advised, and no run tried a failed node again."""
    for each in map(led, SITUATIONS):
        assert "next run" not in each.follows, each.key
        assert "if an apply runs" not in each.todo, each.key
        if each.key.startswith(("failed", "returned", "put-back")):
            assert "`grapnel apply`" not in each.todo, each.key
            assert "`grapnel retry NODE`" in each.todo, each.key
    assert [each.key for each in map(led, SITUATIONS) if each.needs_somebody and not each.todo] == []
    assert led(NOT_BEGUN).follows.startswith("the controller")


def test_a_node_that_a_controller_has_left_comes_back_with_the_next_one_or_by_one_command() -> None:
    """It was told to run an apply again, which nobody had run."""
    for each in (*LEFT.values(), LEFT_REBOOTING):
        told = unled(each)
        assert told.means == each.means
        assert "controller leads again" in told.follows
        assert "`helm install`" in told.todo
        assert "`grapnel abandon NODE --uncordon`" in told.todo
    assert unled(NOT_BEGUN) is NOT_BEGUN


def test_the_page_explains_every_kind_of_reason() -> None:
    _, _, section = PAGE.read_text().partition("## Why a node waits")
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    reasons = [reason for row in rows for reason in re.findall(r"`([^`]+)`", row)]

    assert {reason_class(reason) for reason in reasons} >= set(dict(CLASSES))


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text()

    assert render_page() in page, "run: python -m provision.rollout.status.advice"
    assert GIVE_UP in " ".join(page.split())
