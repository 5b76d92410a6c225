from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plugin.publication.node_object.conditions import (
    MAX_MESSAGE,
    OWN_KINDS,
    conditions_of,
    transition_time,
    with_changes,
)
from plugin.publication.node_object.model import Condition
from plugin.publication.node_object.notes import REASONS
from tests.plugin.node_object.states import UTC, UUIDS, XID_48, observed, without_answer

if TYPE_CHECKING:
    from plugin.devices.observer import Observation

CONTRACT = Path(__file__).parents[3] / "docs/contracts/node-state/README.md"
RELEASED = "released since 2026-11-21T09:00:00Z"


@pytest.mark.parametrize(
    ("observation", "released", "gpus", "driver"),
    [
        pytest.param(
            observed("", ""),
            "",
            ("True", "AllGPUsHealthy", "2 GPUs can be used"),
            ("True", "DriverAnswers", "driver 550.163.01 answers"),
            id="all is well",
        ),
        pytest.param(
            observed("", XID_48, "verdict: smoke"),
            "",
            (
                "False",
                "GPUsUnhealthy",
                f"2 of 3 GPUs cannot be used: {UUIDS[1]}: {XID_48}; {UUIDS[2]}: verdict: smoke",
            ),
            ("True", "DriverAnswers", "driver 550.163.01 answers"),
            id="two GPUs are not",
        ),
        pytest.param(
            without_answer(""),
            "",
            ("Unknown", "DriverNotReady", "nvml does not answer: driver not loaded"),
            ("False", "DriverNotReady", "nvml does not answer: driver not loaded (load it)"),
            id="the driver does not answer",
        ),
        pytest.param(
            observed(RELEASED),
            RELEASED,
            ("Unknown", "Released", f"{RELEASED}: no GPU is offered"),
            ("Unknown", "Released", f"{RELEASED}: the driver is not asked"),
            id="the node is released",
        ),
    ],
)
def test_what_is_observed_becomes_two_conditions(
    observation: Observation, released: str, gpus: tuple[str, str, str], driver: tuple[str, str, str]
) -> None:
    found = conditions_of(observation, released)
    assert [each.kind for each in found] == list(OWN_KINDS[:2])
    assert [each[1:4] for each in found] == [gpus, driver]


def test_many_broken_gpus_make_no_huge_message() -> None:
    gpus, _ = conditions_of(observed(*(["x" * 500] * 8)), "")
    assert len(gpus.message) == MAX_MESSAGE
    assert gpus.message.startswith("8 of 8 GPUs")


def test_a_change_of_status_has_a_time_and_a_change_of_words_has_not() -> None:
    well = with_changes((), conditions_of(observed(""), ""), "1")
    assert [each.since for each in well] == ["", ""], "how long it had been so nobody here knows"
    ill = with_changes(well, conditions_of(observed("a"), ""), "2")
    assert [each.since for each in ill] == ["2", ""]
    worse = with_changes(ill, conditions_of(observed("b"), ""), "3")
    assert [each.since for each in worse] == ["2", ""]


@pytest.mark.parametrize(
    ("since", "there", "expected"),
    [
        pytest.param("", None, "now", id="nothing is there"),
        pytest.param("", Condition("K", "True", "R", "m", UTC), UTC, id="it was so before this daemon started"),
        pytest.param("", Condition("K", "False", "R", "m", UTC), "now", id="it changed while no daemon ran"),
        pytest.param(
            "seen", Condition("K", "True", "R", "m", UTC), "seen", id="it went and came while the API was away"
        ),
        pytest.param("", Condition("K", "True", "R", "m", ""), "now", id="somebody left no time"),
    ],
)
def test_the_time_of_a_transition(since: str, there: Condition | None, expected: str) -> None:
    assert transition_time(Condition("K", "True", "R", "m", since), there, "now") == expected


def test_the_contract_has_every_condition_and_reason() -> None:
    text = CONTRACT.read_text()
    states = (observed(""), observed("a"), without_answer(""))
    found = [each for state in states for each in (*conditions_of(state, ""), *conditions_of(state, RELEASED))]
    words = {*OWN_KINDS, *REASONS, *(each.reason for each in found)}
    assert {word for word in words if f"`{word}`" not in text} == set()
