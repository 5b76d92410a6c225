"""The page of a run as text: self-contained, escaped, and what is read first comes first."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from provision.report.run_page import render_page
from provision.report.run_page.render import LANES, lanes_of
from provision.report.run_page.words import clock, node_names, verdict
from provision.report.runs import events as happened
from tests.provision.runs.story import HOSTILE_NAME, at, began, ended, night, report_of, step


class Attributes(HTMLParser):
    """Collects the names of all attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {name for name, _ in attrs}


def test_the_failed_node_its_reason_and_its_remedy_come_before_everything_else() -> None:
    page = render_page(report_of(night()))

    order = ["4 of 44 nodes need somebody", "gpu007", "is missing: 7 of 8", "the node stays out of service", "No route"]
    places = [page.index(words, page.index("<body>")) for words in [*order, "What changed", "Timeline"]]
    assert places == sorted(places)


def test_what_nodes_say_is_text() -> None:
    page = render_page(report_of(night()))

    assert "<img" not in page
    assert "<script" not in page
    assert HOSTILE_NAME not in page
    assert "gpu-&lt;b&gt;013&lt;/b&gt;" in page
    assert "\\x1b[31m\\u202e" in page
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", page)


def test_nothing_is_fetched_or_run() -> None:
    page = render_page(report_of(night()))
    style = re.search(r"<style>(.*)</style>", page, re.DOTALL)
    assert style

    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert policy.replace("'", "&#39;") in page
    attributes = Attributes()
    attributes.feed(page)
    assert not {name for name in attributes.names if re.fullmatch("src|href|style|on.*", name)}
    assert {"content", "class", "x"} < attributes.names
    assert "url(" not in style[1]


@pytest.mark.parametrize(
    ("events", "title"),
    [
        pytest.param([], "The run was killed", id="killed at once"),
        pytest.param(
            [ended("n1", "unchanged", is_good=True), happened.Ended(time=at(3), exit_code=0)],
            "1 node as declared: nothing to do",
            id="nothing to do",
        ),
        pytest.param(
            [ended("n1", "converged", is_good=True), happened.Ended(time=at(3), exit_code=0)],
            "1 node changed, all is well",
            id="changed",
        ),
        pytest.param(
            [ended("n1", "failed", "x"), happened.Ended(time=at(3), exit_code=1)], "1 of 1 node needs", id="bad"
        ),
        pytest.param([happened.Ended(time=at(3), exit_code=1, declined=True)], "Nothing was changed", id="declined"),
        pytest.param([happened.Ended(time=at(3), exit_code=130)], "The run was interrupted", id="interrupted"),
        pytest.param([happened.Ended(time=at(3), exit_code=70, error="KeyError: 'x'")], "The run failed", id="a bug"),
    ],
)
def test_the_first_sentence_says_how_it_stands(events: list[happened.RunEvent], title: str) -> None:
    report = report_of([began(1), *events])
    assert verdict(report).title.startswith(title)
    assert title in render_page(report)


def test_nodes_that_took_their_time_alike_have_one_lane_and_many_are_bounded() -> None:
    alike = [event for number in range(300) for event in step(f"gpu{number:03}", "runtime: restart", 5, 40)]
    lanes = lanes_of(report_of([began(300), *alike])).lanes
    assert [len(lane.nodes) for lane in lanes] == [300]

    others = [event for number in range(300) for event in step(f"gpu{number:03}", f"step {number}", 5, 40)]
    made = lanes_of(report_of([began(300), *others]))
    assert (len(made.lanes), made.more) == (LANES, 300 - LANES)


def test_bars_stay_inside() -> None:
    for lane in lanes_of(report_of(night())).lanes:
        for bar in (*lane.phases, *lane.steps):
            assert 0 <= bar.left <= 100
            assert 0 < bar.width <= 100.01 - bar.left


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "\u2013"), (0.04, "0.0s"), (7.25, "7.2s"), (59.9, "59s"), (125, "2m05s"), (11_220, "3h07m")],
)
def test_durations_read_well(seconds: float | None, words: str) -> None:
    assert clock(seconds) == words


def test_consecutive_names_are_together() -> None:
    assert node_names(["gpu10", "gpu9", "gpu8", "head", "gpu12"]) == "gpu8 to gpu10, gpu12, head"
