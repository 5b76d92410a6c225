"""What is sent, and when: over outages, refusals, other people's changes, and any order of all of them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugin.publication.node_object.api.budget import MAX_WAIT_S
from plugin.publication.node_object.conditions import conditions_of
from plugin.publication.node_object.model import Condition, Note
from tests.plugin.node_object.simulation import Simulation
from tests.plugin.node_object.states import observed

HOUR_S = 3600.0
WELL = conditions_of(observed("", ""), "")
ILL = conditions_of(observed("xid 48", ""), "")
LABELS = {"nvidia.com/gpu.count": "2"}


def as_shown(conditions: tuple[Condition, ...]) -> dict[str, tuple[str, str, str]]:
    return {each.kind: (each.status, each.reason, each.message) for each in conditions}


def note(subject: str = "gpu-0", message: str = "m") -> Note:
    return Note(is_warning=True, reason="GPUXidError", message=message, subject=subject)


def running(conditions: tuple[Condition, ...] = WELL) -> Simulation:
    node = Simulation()
    node.session.show(conditions)
    node.session.label(LABELS)
    node.settle(1)
    return node


def test_nothing_is_asked_before_there_is_something_to_say() -> None:
    node = Simulation()
    assert node.session.work() is None
    assert node.calls == []


def test_everything_is_said_once_and_then_a_heartbeat_after_ten_minutes_or_more() -> None:
    node = running()
    assert [call for _, call in node.calls] == ["get nodes", "patch nodes/status", "patch nodes"]
    node.settle(24 * HOUR_S)
    beats = [at for at, call in node.calls if call == "patch nodes/status"]
    gaps = [later - earlier for earlier, later in itertools.pairwise(beats)]
    assert min(gaps) >= 600
    assert max(gaps) <= 900.1
    assert len(set(gaps)) > 10, "by chance, so that nodes do not come together"
    assert node.count("patch nodes") == len(beats) + 1


def test_a_change_is_sent_at_once_and_a_change_of_words_after_a_minute() -> None:
    node = running()
    node.session.show(ILL)
    node.settle(0.1)
    assert node.shown() == as_shown(ILL)
    other = conditions_of(observed("xid 79", ""), "")
    node.session.show(other)
    node.settle(30)
    assert node.shown() == as_shown(ILL)
    node.settle(60)
    assert node.shown() == as_shown(other)


def test_after_hours_without_the_api_the_state_is_right_and_the_journal_has_one_line() -> None:
    node = running()
    node.failing = 0
    for hour in range(6):
        node.session.show(ILL if hour % 2 else WELL)
        for _ in range(100):
            node.session.note((note(),))
        node.settle(HOUR_S)
    assert len(node.logger.lines("connection refused")) == 1
    tries = len(node.calls)
    assert tries < 6 * HOUR_S / (MAX_WAIT_S / 2) + 20
    node.failing = None
    node.session.show(ILL)
    node.settle(2 * MAX_WAIT_S)
    assert node.shown() == as_shown(ILL)
    assert [event["count"] for event in node.events.values()] == [600]
    assert len(node.logger.lines("resolved")) == 1


@pytest.mark.slow
def test_a_storm_of_events_does_not_flood_the_api() -> None:
    node = running()
    before = len(node.calls)
    for second in range(600):
        for number in range(100):
            node.session.note((note(f"gpu-{number % 8}", f"at {second}"), note(f"unknown-{second}-{number}")))
        node.settle(1)
    assert len(node.calls) - before <= 20 + 600 / 30 + 2
    assert node.logger.lines("events were dropped")


@pytest.mark.parametrize(
    ("status", "what", "others"),
    [
        pytest.param(403, "events", {"patch nodes/status"}, id="events are forbidden"),
        pytest.param(422, "events", {"patch nodes/status"}, id="an event is invalid"),
    ],
)
def test_what_is_refused_for_one_kind_does_not_stop_the_others(status: int, what: str, others: set[str]) -> None:
    node = running()
    node.failing = status
    node.session.note((note(),))
    node.settle(0.1)
    assert node.count(f"create {what}") == 1
    node.failing = None
    node.session.show(ILL)
    node.settle(0.1)
    assert {call for at, call in node.calls[-1:]} == others


def test_an_invalid_event_is_given_up_and_a_forbidden_one_is_not() -> None:
    node = running()
    node.failing = 422
    node.session.note((note("bad"),))
    node.settle(0.1)
    node.failing = 403
    node.session.note((note("good"),))
    node.settle(10)
    node.failing = None
    node.settle(HOUR_S)
    assert [event["message"] for event in node.events.values()] == ["m"]
    assert 'allow verb \\"create\\" on \\"events\\"' in node.logger.text()


def test_patience_that_is_asked_for_is_given() -> None:
    node = running()
    node.failing, node.retry_after = 429, "120"
    node.session.show(ILL)
    node.settle(0.1)
    first = len(node.calls)
    node.settle(119)
    assert len(node.calls) == first
    node.failing = None
    node.settle(62)
    assert node.shown() == as_shown(ILL)


def test_an_event_whose_answer_was_lost_is_there_once() -> None:
    node = running()
    node.is_lost = True
    node.session.note((note(),))
    node.settle(100)
    assert node.count("create events") == 2
    assert [event["count"] for event in node.events.values()] == [1]


def test_an_event_that_the_api_forgot_is_recreated() -> None:
    node = running()
    node.session.note((note(),))
    node.settle(1)
    node.events.clear()
    node.session.note((note(),))
    node.settle(100)
    assert [event["count"] for event in node.events.values()] == [2]


def test_a_recreated_node_gets_everything_again() -> None:
    node = running()
    node.recreate()
    node.settle(HOUR_S)
    assert node.shown() == as_shown(WELL)
    assert node.own_labels() == LABELS


def test_a_node_that_is_not_there_yet_is_waited_for_and_not_made() -> None:
    node = Simulation()
    node.exists = False
    node.session.show(WELL)
    node.session.label(LABELS)
    node.settle(HOUR_S)
    assert node.count("patch") == 0
    assert len(node.logger.lines("there is no such node")) == 1
    node.exists = True
    node.settle(2 * MAX_WAIT_S)
    assert node.shown() == as_shown(WELL)
    assert node.own_labels() == LABELS


def test_a_label_that_somebody_took_away_comes_back_and_one_that_somebody_owns_is_left() -> None:
    node = running()
    node.labels.clear()
    node.settle(1000)
    assert node.own_labels() == LABELS
    node.labels["nvidia.com/gpu.count"] = ("8", "gfd")
    node.settle(1000)
    assert node.labels["nvidia.com/gpu.count"] == ("8", "gfd")
    assert len(node.logger.lines("nvidia.com/gpu.count (gfd)")) == 1
    node.labels.clear()
    node.settle(2000)
    assert node.own_labels() == LABELS
    assert node.logger.lines('msg=resolved topic="labels of others"')


def test_no_label_of_ours_is_left_when_none_is_wanted() -> None:
    node = running()
    node.labels["team"] = ("a", "kubectl")
    node.session.label({})
    node.settle(1)
    assert node.labels == {"team": ("a", "kubectl")}


def test_the_time_of_a_change_outlives_a_restart_of_the_daemon() -> None:
    node = running()
    first = node.conditions["GPUsHealthy"]["lastTransitionTime"]
    again = Simulation()
    again.conditions, again.now_s = node.conditions, node.now_s + HOUR_S
    again.session.show(WELL)
    again.settle(1)
    assert again.conditions["GPUsHealthy"]["lastTransitionTime"] == first
    assert again.conditions["GPUsHealthy"]["lastHeartbeatTime"] != first


STATES = (WELL, ILL, conditions_of(observed("", "xid 79"), ""), conditions_of(observed(""), "released"))
KEYS = ("nvidia.com/a", "nvidia.com/b")
ACTIONS = st.one_of(
    st.tuples(st.just("show"), st.sampled_from(STATES)),
    st.tuples(st.just("label"), st.dictionaries(st.sampled_from(KEYS), st.sampled_from("12"))),
    st.tuples(st.just("note"), st.sampled_from(["gpu-0", "gpu-1"])),
    st.tuples(st.just("fail"), st.sampled_from([None, 0, 401, 403, 409, 410, 422, 429, 500])),
    st.tuples(st.just("lose"), st.none()),
    st.tuples(st.just("recreated"), st.none()),
    st.tuples(st.just("gone"), st.none()),
    st.tuples(st.just("own"), st.sampled_from(KEYS)),
    st.tuples(st.just("pass"), st.sampled_from([0.0, 1.0, 70.0, 1000.0])),
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(ACTIONS, max_size=25))
def test_whatever_happened_the_node_ends_as_it_should_be(  # noqa: C901 - a case for each thing that can happen
    actions: list[tuple[str, object]],
) -> None:
    node = Simulation()
    conditions: tuple[Condition, ...] = WELL
    labels: dict[str, str] = {}
    node.session.show(conditions)
    for act, value in actions:
        match act, value:
            case "show", tuple():
                conditions = value
                node.session.show(conditions)
            case "label", dict():
                labels = value
                node.session.label(labels)
            case "note", str():
                node.session.note((note(value),))
            case "fail", (int() | None):
                node.failing = value
            case "lose", _:
                node.is_lost = True
            case "recreated", _:
                node.recreate()
            case "gone", _:
                node.exists = False
            case "own", str():
                node.labels[value] = ("theirs", "gfd")
            case "pass", float():
                node.settle(value)
    node.failing, node.exists = None, True
    node.settle(3 * HOUR_S)
    theirs = {key for key, (_, owner) in node.labels.items() if owner == "gfd"}
    assert node.shown() == as_shown(conditions)
    assert node.own_labels() == {key: value for key, value in labels.items() if key not in theirs}
    assert {node.labels[key] for key in theirs} <= {("theirs", "gfd")}
    spoken = len(node.calls)
    node.settle(550)
    assert len(node.calls) - spoken <= 1, "then there is nothing to say but a heartbeat"
