"""Lines of the live view: how long a step took last time, and many nodes that do the same."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from provision.apply.model import NodeResult, NodeTask, PassStarted, Status
from provision.apply.runner import TaskStarted
from provision.report.console import make_console
from provision.report.progress.live import LINES, LiveView
from provision.report.results import render_results
from provision.report.terminal import show

if TYPE_CHECKING:
    from collections.abc import Mapping

INSTALL = "runtime: Install the engine's packages"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def started(node: str, task: str = "Install the engine's packages", *, is_step: bool = True) -> NodeTask:
    return NodeTask(TaskStarted(node, task, "grapnel.node.runtime", is_step), gathering=False)


def view_of(nodes: list[str], clock: Clock, last: Mapping[str, float]) -> LiveView:
    view = LiveView(make_console(io.StringIO(), width=80), nodes, clock, last)
    for node in nodes:
        view(PassStarted(node, 1, 3))
        view(started(node))
    return view


def picture(view: LiveView) -> list[str]:
    out = io.StringIO()
    show(make_console(out, width=80), [view.render()])
    return [" ".join(line.split()[1:]) for line in out.getvalue().splitlines()[:-1]]


@pytest.mark.parametrize(
    ("last", "words"),
    [
        pytest.param({INSTALL: 40.0}, "  5s, 40s last time", id="it is known"),
        pytest.param({INSTALL: 0.3}, "", id="it was over in no time"),
        pytest.param({"runtime: Something else": 40.0}, "", id="another step"),
        pytest.param({}, "", id="nothing is known"),
    ],
)
def test_a_step_tells_how_long_it_took_last_time(last: Mapping[str, float], words: str) -> None:
    clock = Clock()
    view = view_of(["n1"], clock, last)
    clock.now = 5

    assert picture(view) == [" ".join(f"n1 {INSTALL}{words} step 1 5s".split())]


def test_many_nodes_that_do_the_same_have_one_line() -> None:
    clock = Clock()
    nodes = [f"gpu{number:03}" for number in range(1, 2 * LINES)]
    view = view_of(nodes, clock, {INSTALL: 40})
    clock.now = 7
    view(started("gpu003", "Apply the configuration"))

    assert picture(view) == [
        f"{len(nodes) - 1} nodes: gpu001, … {INSTALL} 7s, 40… 7s",
        "gpu003 runtime: Apply the configuration step 1 7s",
    ]


def test_lines_are_bounded_however_different_the_nodes_are() -> None:
    clock = Clock()
    nodes = [f"gpu{number:03}" for number in range(1, 4 * LINES)]
    view = view_of(nodes, clock, {})
    for number, node in enumerate(nodes):
        view(started(node, f"step {number}"))

    lines = picture(view)
    assert len(lines) == LINES + 1
    assert lines[-1].endswith("at other steps")


def test_what_only_arranges_is_not_shown() -> None:
    clock = Clock()
    view = view_of(["n1"], clock, {})
    view(started("n1", "Validating arguments against arg spec", is_step=False))

    assert picture(view) == [f"n1 {INSTALL} step 1 0s"]


def test_equal_results_share_a_row() -> None:
    good = [NodeResult(f"n{number}", Status.CONVERGED, 1, 3) for number in range(1, 4)]
    out = io.StringIO()
    show(make_console(out, width=80), render_results([*good, NodeResult("n4", Status.UNFINISHED, 1, 3)], 5))

    rows = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert rows[1:3] == ["n1 to n3 converged 3", "n4 unfinished 3"]
