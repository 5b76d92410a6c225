"""Windows and blackouts, by the clocks of real time zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from provision.declaration.spec.model import Blackout, Day, Rollout, Window
from provision.rollout.decision.calendar import NEVER, Calendar, calendar_of, usual_time

HOUR = timedelta(hours=1)
HALF = timedelta(minutes=30)
BERLIN = "Europe/Berlin"
NIGHT = Window(days=(Day.SAT,), start="22:00", end="04:00", time_zone=BERLIN)


def calendar(*windows: Window, blackouts: tuple[Blackout, ...] = ()) -> Calendar:
    found = calendar_of(Rollout(windows=windows, blackouts=blackouts))
    assert found is not None
    return found


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_without_windows_and_blackouts_there_is_no_calendar() -> None:
    assert calendar_of(Rollout()) is None


@pytest.mark.parametrize(
    ("moment", "closes"),
    [
        pytest.param("2026-11-28T20:59:59", None, id="a second before it opens"),
        pytest.param("2026-11-28T21:00", "2026-11-29T03:00", id="when it opens"),
        pytest.param("2026-11-29T02:59", "2026-11-29T03:00", id="after midnight, on the next day"),
        pytest.param("2026-11-29T03:00", None, id="when it closes"),
        pytest.param("2026-11-29T21:30", None, id="on another day"),
    ],
)
def test_a_window_opens_and_closes_by_its_own_clock(moment: str, closes: str | None) -> None:
    assert calendar(NIGHT).closes(utc(moment)) == (None if closes is None else utc(closes))


@pytest.mark.parametrize(
    ("window", "moment", "closes"),
    [
        # On 2027-03-28 clocks in Berlin go from 02:00 to 03:00.
        pytest.param(("22:00", "04:00"), "2027-03-27T21:30", "2027-03-28T02:00", id="a night that is an hour shorter"),
        pytest.param(("02:30", "05:00"), "2027-03-28T01:29", None, id="a start that no clock shows: not yet"),
        pytest.param(("02:30", "05:00"), "2027-03-28T01:30", "2027-03-28T03:00", id="a start that no clock shows"),
        pytest.param(("01:00", "02:30"), "2027-03-28T01:29", "2027-03-28T01:30", id="an end that no clock shows"),
        pytest.param(("02:50", "03:10"), "2027-03-28T01:30", None, id="a window of which that leaves nothing"),
        # On 2026-10-25 clocks in Berlin go from 03:00 back to 02:00.
        pytest.param(("22:00", "04:00"), "2026-10-24T20:30", "2026-10-25T03:00", id="a night that is an hour longer"),
        pytest.param(
            ("01:00", "02:30"), "2026-10-25T00:29", "2026-10-25T00:30", id="an end that comes twice: the first"
        ),
        pytest.param(("01:00", "02:30"), "2026-10-25T01:00", None, id="an end that comes twice: not the second"),
        pytest.param(
            ("02:30", "04:00"), "2026-10-25T00:30", "2026-10-25T03:00", id="a start that comes twice: the first"
        ),
    ],
)
def test_clocks_are_changed(window: tuple[str, str], moment: str, closes: str | None) -> None:
    hours = calendar(Window(start=window[0], end=window[1], time_zone=BERLIN))
    assert hours.closes(utc(moment)) == (None if closes is None else utc(closes))


def test_a_zone_whose_clocks_are_half_an_hour_off_counts_as_well() -> None:
    hours = calendar(Window(start="22:00", end="23:00", time_zone="Asia/Kolkata"))
    assert hours.closes(utc("2026-11-28T16:30")) == utc("2026-11-28T17:30")
    assert hours.closes(utc("2026-11-28T16:29")) is None


def test_a_window_of_a_whole_day_lasts_until_midnight() -> None:
    hours = calendar(Window(days=(Day.SUN,), start="00:00", end="24:00"))
    assert hours.closes(utc("2026-11-29T00:00")) == utc("2026-11-30T00:00")
    assert hours.closes(utc("2026-11-28T23:59")) is None


def test_windows_that_follow_each_other_are_one() -> None:
    parts = (
        Window(days=(Day.SAT,), start="22:00", end="24:00"),
        Window(days=(Day.SUN,), start="00:00", end="04:00"),
        Window(days=(Day.SUN,), start="03:00", end="06:00"),
    )
    assert calendar(*parts).closes(utc("2026-11-28T22:30")) == utc("2026-11-29T06:00")


def test_a_window_of_every_day_and_hour_never_closes_while_a_node_is_changed() -> None:
    closes = calendar(Window(start="00:00", end="24:00")).closes(utc("2026-11-28T12:00"))
    assert closes is not None
    assert closes - utc("2026-11-28T12:00") > timedelta(days=2)


@pytest.mark.parametrize(
    ("moment", "needed", "opens"),
    [
        pytest.param("2026-11-28T22:00", HALF, "2026-11-28T22:00", id="now"),
        pytest.param("2026-11-28T12:00", HALF, "2026-11-28T21:00", id="tonight"),
        pytest.param("2026-11-29T02:40", HALF, "2026-12-05T21:00", id="not what is left of tonight"),
        pytest.param("2026-11-28T12:00", 7 * HOUR, "2027-10-30T20:00", id="the night in which clocks go back"),
        pytest.param("2026-11-28T12:00", 8 * HOUR, None, id="never"),
    ],
)
def test_the_next_window_that_is_long_enough(moment: str, needed: timedelta, opens: str | None) -> None:
    assert calendar(NIGHT).opens(utc(moment), needed) == (None if opens is None else utc(opens))


FREEZE = Blackout(first="2026-12-20", last="2027-01-03", time_zone=BERLIN, reason="end of the year")


def test_a_blackout_lasts_until_the_end_of_its_last_day() -> None:
    hours = calendar(blackouts=(FREEZE,))
    assert hours.closes(utc("2026-12-19T22:59")) == utc("2026-12-19T23:00")
    assert hours.closes(utc("2026-12-19T23:00")) is None
    assert hours.closes(utc("2027-01-03T22:59")) is None
    assert hours.closes(utc("2027-01-03T23:00")) == NEVER


def test_a_blackout_of_minutes_cuts_a_window() -> None:
    cut = Blackout(first="2026-11-28T23:00", last="2026-11-29T01:00", time_zone=BERLIN)
    hours = calendar(NIGHT, blackouts=(cut,))
    assert hours.closes(utc("2026-11-28T21:30")) == utc("2026-11-28T22:00")
    assert hours.opens(utc("2026-11-28T21:30"), HOUR) == utc("2026-11-29T00:00")


@pytest.mark.parametrize(
    ("moment", "reason"),
    [
        pytest.param("2026-11-28T21:00", "", id="open"),
        pytest.param(
            "2026-11-28T12:00", "waits for its window, which opens 2026-11-28 22:00 Europe/Berlin", id="closed"
        ),
        pytest.param(
            "2026-11-29T02:45",
            "a node takes 30 minutes, and the window closes 2026-11-29 04:00 Europe/Berlin: "
            "waits for the one that opens 2026-12-05 22:00 Europe/Berlin",
            id="too little is left",
        ),
        pytest.param(
            "2026-12-24T12:00",
            "waits until 2027-01-09 22:00 Europe/Berlin, because of a blackout: end of the year",
            id="blackout",
        ),
    ],
)
def test_the_reason_says_when_it_ends(moment: str, reason: str) -> None:
    assert calendar(NIGHT, blackouts=(FREEZE,)).why_closed(utc(moment), HALF) == reason


def test_a_window_that_is_too_short_is_said_to_be() -> None:
    assert calendar(NIGHT).why_closed(utc("2026-11-28T12:00"), 8 * HOUR) == (
        "no window is long enough for a node, which takes 480 minutes: declare a longer one"
    )


def test_the_usual_time_is_what_nine_of_ten_nodes_took() -> None:
    assert usual_time([HALF]) == HALF
    assert usual_time([timedelta(minutes=number) for number in range(1, 11)]) == timedelta(minutes=9)
    assert usual_time([HALF] * 9 + [timedelta(days=400)]) == HALF
