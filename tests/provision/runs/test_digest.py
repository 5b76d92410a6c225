"""What a run came to, from its events: whatever state it was left in."""

from __future__ import annotations

import pytest

from provision.report.runs import events as happened
from provision.report.runs.digest import digest
from provision.report.runs.model import State
from provision.report.runs.spans import SPANS
from tests.provision.runs.story import BROKEN, DRIVER, ENGINE, LOST, at, began, ended, night, report_of, step


def test_what_is_out_of_service_is_told_first_and_equal_trouble_once() -> None:
    report = report_of(night())

    assert [(one.nodes, one.result, one.out_of_service) for one in report.troubles] == [
        (LOST, "failed", True),
        (("gpu044",), "unreachable", False),
        (("gpu043",), "refused", False),
    ]
    assert report.troubles[0].message.startswith("GPU 3 of gpu007 is missing")
    assert report.troubles[0].remedy.startswith("the node stays out of service")
    assert report.troubles[2].remedy == BROKEN.hint
    assert {one.command for one in report.troubles} == {"grapnel apply 'gpu*'"}


def test_nodes_with_equal_plans_and_results_are_one_group() -> None:
    report = report_of(night())

    groups = [(len(one.nodes), one.result, len(one.items)) for one in report.groups]
    assert groups == [
        (1, "unreachable", 0),
        (2, "failed", 4),
        (1, "refused", 0),
        (38, "converged", 4),
        (2, "unchanged", 0),
    ]
    assert report.counts == {"unreachable": 1, "failed": 2, "refused": 1, "converged": 38, "unchanged": 2}


def test_times_are_those_of_the_run() -> None:
    report = report_of(night())
    node = report.nodes[0]

    assert (report.seconds, report.gathered_seconds) == (1520, 14)
    assert (node.began_seconds, node.seconds, node.out_of_service_seconds) == (20, 129, 129)
    assert [(span.name, span.began_seconds, span.seconds) for span in node.spans][1:5] == [
        ("drain", 21, 30),
        ("release", 51, 4),
        ("swap", 55, 80),
        ("driver: swap the driver", 55, 75),
    ]
    slowest = report.steps[0]
    assert (slowest.kind, slowest.name, slowest.nodes, slowest.median_seconds) == ("phase", "swap", 40, 80)


@pytest.mark.parametrize(
    ("end", "is_going_on", "state"),
    [
        pytest.param(None, True, State.RUNNING, id="its process is there"),
        pytest.param(None, False, State.KILLED, id="its process is gone"),
        pytest.param(happened.Ended(time=at(9), exit_code=0), False, State.SUCCEEDED, id="it went well"),
        pytest.param(happened.Ended(time=at(9), exit_code=1), False, State.FAILED, id="it did not"),
        pytest.param(happened.Ended(time=at(9), exit_code=130), False, State.INTERRUPTED, id="Ctrl-C"),
        pytest.param(
            happened.Ended(time=at(9), exit_code=1, declined=True), False, State.DECLINED, id="nobody wanted it"
        ),
    ],
)
def test_state_of_a_run(end: happened.Ended | None, state: State, *, is_going_on: bool) -> None:
    assert report_of([began(), *([end] if end else [])], is_going_on=is_going_on).state is state


def killed_at_a_step() -> list[happened.RunEvent]:
    plan = happened.Planned(time=at(2), nodes=("n1", "n2"), items=ENGINE)
    same = happened.Planned(time=at(2), nodes=("n3",))
    return [began(), plan, same, happened.StepBegan(time=at(3), node="n1", step="runtime: restart containerd")]


def test_a_run_that_was_killed_says_what_it_was_at() -> None:
    report = report_of(killed_at_a_step())

    found = {one.name: (one.result, one.message) for one in report.nodes}
    assert found == {
        "n1": ("killed", "the run ended without a word while it was at: runtime: restart containerd"),
        "n2": ("waiting", "nothing was begun on it"),
        "n3": ("unchanged", ""),
    }
    assert report.nodes[0].spans[0].seconds is None
    assert [one.nodes for one in report.troubles] == [("n1",), ("n2",)]
    assert "it goes on from there" in report.troubles[0].remedy


def test_nothing_is_wrong_with_a_run_that_goes_on() -> None:
    report = report_of(killed_at_a_step(), is_going_on=True)

    assert report.troubles == ()
    assert {one.name: one.result for one in report.nodes} == {"n1": "running", "n2": "waiting", "n3": "unchanged"}


def test_nothing_happened_to_nodes_where_nobody_consented() -> None:
    plan = happened.Planned(time=at(2), nodes=("n1",), items=DRIVER)
    report = report_of([began(), plan, happened.Ended(time=at(9), exit_code=1, declined=True)])

    assert (report.troubles, report.nodes[0].result) == ((), "declined")


def test_the_last_word_about_a_node_counts_and_the_first_time() -> None:
    first = happened.NodeEnded(time=at(20), node="n1", result="converged", is_good=True)
    report = report_of([began(), *step("n1", "runtime: write", 5, 10), first, ended("n1", "unfinished", "again")])

    assert (report.nodes[0].result, report.nodes[0].seconds) == ("unfinished", 15)


def test_a_node_with_very_many_steps_keeps_the_longest() -> None:
    many = [event for number in range(3 * SPANS) for event in step("n1", f"step {number}", number * 10, 1 + number % 9)]
    spans = report_of([began(), *many]).nodes[0].spans

    assert len(spans) == SPANS
    assert min(span.seconds or 0 for span in spans) > 5
    assert list(spans) == sorted(spans, key=lambda span: span.began_seconds)


def test_short_steps_that_changed_nothing_are_left_out() -> None:
    quiet = step("n1", "driver: look", 1, 0.1, "ok")
    spans = report_of([began(), *quiet, *step("n1", "driver: write", 2, 0.1)]).nodes[0].spans

    assert [span.name for span in spans] == ["driver: write"]


def test_without_a_beginning_nothing_is_known() -> None:
    assert digest(night()[1:], is_going_on=False) is None


def test_a_clock_that_is_set_back_makes_no_time_negative() -> None:
    back = happened.StepEnded(time=at(-50), node="n1", step="x", seconds=0, outcome="changed")
    report = report_of([began(), happened.StepBegan(time=at(5), node="n1", step="x"), back])

    assert report.nodes[0].spans[0].seconds == 0
