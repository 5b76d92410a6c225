"""What nodes say reaches the terminal as visible characters in its own place, whatever it is."""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment

from provision.apply.model import (
    Assessment,
    Failure,
    NodeFinished,
    NodeResult,
    NodeTask,
    Note,
    PassStarted,
    Status,
    Upgrade,
)
from provision.apply.runner import TaskDone, TaskOutcome, TaskStarted
from provision.base.printable import MAX_SHOWN, printable, printable_json, printable_lines
from provision.planning.node_plan import Action, Disruption, NodePlan, Problem
from provision.report.console import Text, make_console
from provision.report.documents.plans import plans_document
from provision.report.planned.plans import render_plans
from provision.report.planned.rollout import render_rollout
from provision.report.progress.live import LiveView
from provision.report.progress.plain import PlainView
from provision.report.results import render_results
from provision.report.terminal import show
from provision.rollout.decision.prepare import Prepared
from provision.rollout.interface.progress import NodeWaits, PhaseEntered
from provision.rollout.model import Phase
from tests.provision.apply.fakes import facts_of, item
from tests.provision.rollout.fakes import pod, state, view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import ConsoleOptions

    from provision.report.console import Console
    from provision.rollout.interface.progress import RolloutProgress

FORGED = "victim                                                               as declared"
CONTROLS = {
    "clear the screen": "\x1b[2J\x1b[H",
    "conceal": "\x1b[8m",
    "window title": "\x1b]0;title\x07",
    "clipboard": "\x1b]52;c;ZXZpbA==\x1b\\",
    "C1 control sequence": "\x9b2J",
    "device control string": "\x1bP1;1|payload\x1b\\",
    "lone escape": "\x1b",
    "carriage return": "\r" + FORGED,
    "backspace": "\x08" * 8,
    "newline": "\n" + FORGED + "\n",
    "next line": "\x85" + FORGED,
    "line separator": "\u2028" + FORGED,
    "paragraph separator": "\u2029" + FORGED,
    "right to left override": "\u202egnol",
    "isolate": "\u2066left\u2069",
    "marks of direction": "\u200e\u200f\u061c",
    "zero width": "z\u200bw\u200dj\ufeff",
    "tag": "\U000e0041",
    "soft hyphen": "soft\xadhyphen",
    "stacked marks": "a" + "\u0335" * 40,
    "half a pair": "\udc80",
    "blank letter": "\u3164" * 8,
    "no-break space": "\xa0" * 8,
    "padding up to the next line": "x" + " " * 70 + FORGED,
    "without end": "9" * 5000,
}
texts = st.text(max_size=40)
hostile = st.lists(st.one_of(st.sampled_from(sorted(CONTROLS.values())), texts), min_size=1, max_size=4).map("".join)
all_controls = pytest.mark.parametrize("value", CONTROLS.values(), ids=CONTROLS)
STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Clock:
    """A second passes between two looks."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def hostile_answers(value: str) -> dict[str, Assessment | Failure]:
    problem = Problem(code=value, message=value, hint=value)
    items = (
        item(value, to=value, reason=value),
        item("libcuda1", action=Action.UPGRADE, from_=value, to="1", reason=value, disruption=Disruption.DRAIN),
    )
    return {
        "n1": Assessment(facts_of("n1"), NodePlan(node="n1", items=items)),
        "n2": Assessment(facts_of("n2"), NodePlan(node="n2", problems=(problem,))),
        "n3": Failure(Status.FAILED, value, value, (value,)),
    }


def show_plans(console: Console, value: str) -> None:
    show(console, render_plans(hostile_answers(value), {"n1": Failure(Status.REFUSED, value)}))


def show_rollout(console: Console, value: str) -> None:
    seen = view("n1", gpu_pods=(pod(value, controller=value), pod("web")))
    show(console, render_rollout(Prepared(states=(state("n1", seen, origin=value),), rollout=("n1",)), "cluster x"))


def show_results(console: Console, value: str) -> None:
    failure = Failure(Status.FAILED, value, value, (value, value))
    failed = NodeResult("n1", Status.FAILED, 1, 1, failure)
    out = NodeResult("n2", Status.FAILED, 1, 1, failure, Upgrade(value, value, 60, is_out=True))
    show(console, render_results([failed], 1))
    show(console, render_results([failed, out], 1))


def story(value: str) -> list[RolloutProgress]:
    return [
        Note("n1", value),
        PassStarted("n1", 1, 1),
        NodeTask(TaskStarted("n1", value, value), gathering=False),
        NodeTask(TaskDone("n1", value, TaskOutcome.FAILED, value, value, (value,)), gathering=False),
        PhaseEntered("n2", Phase.DRAIN),
        NodeWaits("n2", value, is_out=True),
        NodeWaits("n4", value),
        PhaseEntered("n2", Phase.FAILED, value),
        NodeFinished(NodeResult("n1", Status.FAILED, failure=Failure(Status.FAILED, value))),
    ]


def show_live(console: Console, value: str) -> None:
    moving = LiveView(console, ["n1", "n2", "n3", "n4"], Clock())
    for progress in story(value):
        moving(progress)
        console.print(moving.render())


def show_log(console: Console, value: str) -> None:
    log = PlainView(console, ["n1", "n2", "n3", "n4"], Clock())
    for progress in story(value):
        log(progress)


VIEWS: dict[str, Callable[[Console, str], None]] = {
    "plans": show_plans,
    "rollout": show_rollout,
    "results": show_results,
    "live": show_live,
    "log": show_log,
}
every_view = pytest.mark.parametrize("show_view", VIEWS.values(), ids=VIEWS)


def shown(show_view: Callable[[Console, str], None], value: str, width: int = 80) -> str:
    stream = io.StringIO()
    show_view(make_console(stream, width=width), value)
    return stream.getvalue()


@pytest.fixture
def colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def hold_together(text: str, *, width: int | None) -> None:
    """Assert that there are only visible characters, in lines that fit, none of which begins as a node's would."""
    assert text.endswith("\n")
    for line in text.splitlines():
        assert printable(line, limit=len(line)) == line
        assert not line.startswith("victim")
        assert width is None or cell_len(line) <= width
    assert len(text.splitlines()) == text.count("\n")


@pytest.mark.slow
@every_view
@all_controls
def test_no_control_reaches_the_terminal(show_view: Callable[[Console, str], None], value: str) -> None:
    for width in (60, 80):
        hold_together(shown(show_view, value, width), width=None if show_view is show_log else width)


@pytest.mark.slow
@every_view
@settings(max_examples=25)
@given(value=hostile)
@example(value=FORGED)
def test_no_value_reaches_the_terminal_as_anything_but_text(
    show_view: Callable[[Console, str], None], value: str
) -> None:
    hold_together(shown(show_view, value), width=None if show_view is show_log else 80)


@pytest.mark.slow
@pytest.mark.usefixtures("colour")
@every_view
@all_controls
def test_with_colour_there_are_the_styles_of_a_harmless_value_and_no_others(
    show_view: Callable[[Console, str], None], value: str
) -> None:
    output = shown(show_view, value)
    assert "\x1b[" in output or show_view is show_log
    assert set(STYLE.findall(output)) <= set(STYLE.findall(shown(show_view, "1.0")))
    hold_together(STYLE.sub("", output), width=None)


@every_view
def test_a_value_stays_one_value_and_is_readable(show_view: Callable[[Console, str], None]) -> None:
    assert r"1.0\x1b[2J\u202e" in shown(show_view, "1.0\x1b[2J\u202e", 200)


def test_text_is_clean_before_it_is_measured() -> None:
    """Rich itself drops some controls without a word, and breaks lines at others."""
    spelled = r"a\r\n\x08\x07b"
    raw = "a\r\n\x08\x07b"
    for text in (Text(raw), Text().append(raw), Text.assemble(raw), Text.assemble((raw, "bold"))):
        assert text.plain == spelled


def test_the_plan_of_a_node_that_is_as_declared_cannot_be_forged() -> None:
    answers = hostile_answers("\r\x1b[1A\x1b[2Kn1" + " " * 69 + "as declared")
    stream = io.StringIO()
    show(make_console(stream, width=80), render_plans(answers))
    heads = [line for line in stream.getvalue().splitlines() if line and not line.startswith(" ")]
    assert [head.split()[0] for head in heads] == ["n1", "n2", "n3", "3"]
    assert not any(head.rstrip().endswith("as declared") for head in heads)


def test_a_hostile_node_leaves_the_rows_of_others_readable() -> None:
    long = "9" * 5000
    ours = NodeResult("n2", Status.CONVERGED, 1, 1, None, Upgrade("535.261.03", "535.309.01", 42))
    theirs = NodeResult("n1", Status.CONVERGED, 1, 1, None, Upgrade(long, long, 42))
    stream = io.StringIO()
    show(make_console(stream, width=80), render_results([theirs, ours], 1))
    row = next(line for line in stream.getvalue().splitlines() if line.startswith("n2"))
    assert row.split() == ["n2", "converged", "1", "535.261.03", "→", "535.309.01", "42s"]


class Raw:
    """A renderable that hands a text to the console as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> Iterator[Segment]:
        yield Segment(self.text)
        yield Segment.line()


@pytest.mark.slow
@all_controls
def test_no_renderable_can_go_around_the_console(value: str) -> None:
    stream = io.StringIO()
    make_console(stream, width=80).print(Raw(value.replace("\n", "")))
    text = stream.getvalue()
    assert printable(text[:-1], limit=len(text)) == text[:-1]


def test_the_live_display_moves_the_cursor_by_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_INTERACTIVE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    value = "".join(CONTROLS.values())
    stream = io.StringIO()
    with LiveView(make_console(stream, width=80), ["n1", "n2", "n3", "n4"], Clock()) as moving:
        for progress in story(value):
            moving(progress)
    rest = re.sub(r"\x1b\[(\?25[lh]|2K|1A|[0-9;]*m)|\r", "", stream.getvalue())
    assert r"\x1b]52;c;ZXZpbA==" in rest
    hold_together(rest + "\n", width=None)


@pytest.mark.slow
@settings(max_examples=50)
@given(value=st.one_of(hostile, st.text()))
def test_json_is_whole_and_ascii(value: str) -> None:
    text = plans_document(hostile_answers(value), {"cluster": value})
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    document = json.loads(text)
    assert document["rollout"]["cluster"] == value
    assert document["failures"][0]["message"] == value


def test_json_spells_delete_out() -> None:
    assert printable_json(["\x7f"]) == '[\n  "\\u007f"\n]'


@given(text=st.text(), limit=st.integers(min_value=30, max_value=60))
def test_a_printable_text_is_bounded_and_stays_as_it_is(text: str, limit: int) -> None:
    shown = printable(text, limit=limit)
    assert len(shown) <= limit
    assert printable(shown, limit=limit) == shown
    assert shown.isprintable()


@pytest.mark.parametrize("text", ["", "n1", "535.261.03 → 535.309.01", "Größe", "例え", "café", "✓ \N{GRINNING FACE}"])
def test_what_is_visible_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_a_cut_value_says_how_long_it_is() -> None:
    text = printable("9" * 5000)
    assert len(text) == MAX_SHOWN
    assert text.endswith("9… (5000 characters)")


def test_further_lines_of_a_message_are_indented_and_counted() -> None:
    assert printable_lines("a\nb\x1b", indent="  ") == "a\n  b\\x1b"
    assert printable_lines("\n" * 1000).splitlines()[-1] == "… (801 more lines)"
