"""The table of states, and the page that is made from it."""

from __future__ import annotations

import re
from pathlib import Path

from provision.rollout.model import Phase
from provision.rollout.status.metrics import CLASSES, reason_class
from provision.rollout.status.situations import FAILED_IN, GIVE_UP, LEFT, SITUATIONS, WORKING, render_page

PAGE = Path(__file__).parents[4] / "docs" / "upgrade-incidents.md"


def test_every_phase_out_of_service_has_its_states() -> None:
    flying = {phase for phase in Phase if not phase.is_over}

    assert set(WORKING) == set(LEFT) == set(FAILED_IN) == flying


def test_every_state_is_in_the_table_once() -> None:
    assert len({each.key for each in SITUATIONS}) == len(SITUATIONS)
    assert {*WORKING.values(), *LEFT.values(), *FAILED_IN.values()} <= set(SITUATIONS)


def test_who_is_needed_is_told_what_to_do() -> None:
    assert [each.key for each in SITUATIONS if each.needs_somebody and not each.todo] == []


def test_the_page_explains_every_kind_of_reason() -> None:
    _, _, section = PAGE.read_text().partition("## Why a node waits")
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    reasons = [reason for row in rows for reason in re.findall(r"`([^`]+)`", row)]

    assert {reason_class(reason) for reason in reasons} == set(dict(CLASSES))


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text()

    assert render_page() in page, "run: python -m provision.rollout.status.situations"
    assert GIVE_UP in " ".join(page.split())
