"""Progress and results on 80 columns."""

from __future__ import annotations

import io

from provision.apply.model import Failure, NodeFinished, NodeResult, NodeTask, PassStarted, Progress, Status
from provision.apply.runner import TaskDone, TaskOutcome, TaskStarted
from provision.report.console import make_console
from provision.report.progress.live import LiveView, open_view
from provision.report.progress.plain import PlainView
from provision.report.results import render_results
from provision.report.terminal import show

APT = Failure(Status.FAILED, "apt cannot install libcuda1", "install the packages", ("E: Unable to correct problems",))
STORY: list[Progress] = [
    NodeTask(TaskStarted("n1", "gather facts"), gathering=True),
    NodeTask(TaskDone("n1", "gather facts", TaskOutcome.OK), gathering=True),
    NodeTask(TaskDone("n12", "gather facts", TaskOutcome.UNREACHABLE, message="no route to host"), gathering=True),
    PassStarted("n1", 1, 2),
    NodeTask(TaskStarted("n1", "driver : write the pin", "grapnel.node.driver"), gathering=False),
    NodeTask(TaskDone("n1", "driver : write the pin", TaskOutcome.CHANGED, "grapnel.node.driver"), gathering=False),
    NodeTask(TaskDone("n1", "only elsewhere", TaskOutcome.SKIPPED), gathering=False),
    NodeTask(TaskDone("n1", "install the packages", TaskOutcome.FAILED, "driver", APT.message), gathering=False),
    NodeFinished(NodeResult("n1", Status.FAILED, 1, 1, APT)),
]


class Clock:
    """Four seconds pass between two looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 4
        return self.now - 4


LOG = """\
   4.0s n12  gather facts … unreachable: no route to host
   8.0s n1   pass 1: 2 changes to make
  12.0s n1   driver: write the pin … changed
  16.0s n1   driver: install the packages … failed: apt cannot install libcuda1
  20.0s n1   failed: apt cannot install libcuda1
"""


def test_a_log_gets_a_line_for_what_ended() -> None:
    stream = io.StringIO()
    view = open_view(make_console(stream, width=80), ["n1", "n12"], Clock())
    assert isinstance(view, PlainView)
    with view:
        for progress in STORY:
            view(progress)
    assert stream.getvalue() == LOG


def picture(view: LiveView) -> list[str]:
    stream = io.StringIO()
    make_console(stream, width=80).print(view.render())
    return [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]


def test_a_terminal_gets_a_line_for_each_running_node() -> None:
    stream = io.StringIO()
    view = LiveView(make_console(stream, width=80), ["n1", "n12"], lambda: 3.0)
    view(STORY[0])
    assert picture(view) == ["gathering facts: 0 of 2 nodes  0s"]
    view(STORY[1])
    for progress in STORY[3:5]:
        view(progress)
    line, footer = picture(view)
    assert line.endswith("step 1  0s")
    assert "n1 driver: write the pin" in line
    assert footer == "0 of 2 done, 1 running, 1 waiting  0s"


def test_a_long_task_does_not_break_the_picture() -> None:
    view = LiveView(make_console(io.StringIO(), width=80), ["n1"], lambda: 3.0)
    view(PassStarted("n1", 2, 1))
    view(NodeTask(TaskStarted("n1", "long " * 40), gathering=False))
    line, _footer = picture(view)
    assert len(line) <= 80
    assert line.endswith("step 1  0s")


def test_finished_nodes_stay_on_the_screen() -> None:
    stream = io.StringIO()
    view = LiveView(make_console(stream, width=80), ["n1", "n2"], lambda: 3.0)
    for progress in STORY[3:]:
        view(progress)
    view(NodeFinished(NodeResult("n2", Status.CONVERGED, 1, 1)))
    assert stream.getvalue().splitlines() == [
        "✗ n1  failed: apt cannot install libcuda1  0s",
        "✓ n2  converged, 1 change",
    ]
    assert picture(view) == ["2 of 2 done, 0 running, 0 waiting  0s"]


VALIDATION = "Validating arguments against arg spec main - Bring the driver to one version"


def test_what_is_no_step_of_the_users_is_shown_nowhere_unless_it_fails() -> None:
    refused = TaskDone("n1", VALIDATION, TaskOutcome.FAILED, "driver", "driver_version is required", is_step=False)
    include = [
        NodeTask(TaskStarted("n1", VALIDATION, "driver", is_step=False), gathering=False),
        NodeTask(TaskDone("n1", VALIDATION, TaskOutcome.OK, "driver", is_step=False), gathering=False),
    ]
    view = LiveView(make_console(io.StringIO(), width=80), ["n1"], lambda: 3.0)
    for progress in [STORY[3], *include]:
        view(progress)
    assert "n1 starting" in picture(view)[0]
    view(STORY[4])
    for progress in [STORY[5], *include]:
        view(progress)
    (line, _footer) = picture(view)
    assert "n1 driver: write the pin" in line
    assert line.endswith("step 2  0s")

    stream = io.StringIO()
    with PlainView(make_console(stream, width=80), ["n1"], lambda: 3.0) as log:
        for progress in include:
            log(progress)
        assert stream.getvalue() == ""
        log(NodeTask(refused, gathering=False))
    assert "failed: driver_version is required" in stream.getvalue()


RESULTS = """\
node    result       changes
n1      converged          9  in 2 passes
n2      failed             2  install the packages: apt cannot install libcuda1
n5      unreachable           no route to host
n3, n4  unchanged

n2: output of 'install the packages'
  E: Unable to correct problems

5 nodes: 2 unchanged, 1 converged, 1 failed, 1 unreachable in 1m05s"""


def test_results_of_a_mixed_fleet() -> None:
    results = [
        NodeResult("n1", Status.CONVERGED, 2, 9),
        NodeResult("n2", Status.FAILED, 1, 2, APT),
        NodeResult("n3", Status.UNCHANGED),
        NodeResult("n4", Status.UNCHANGED),
        NodeResult("n5", Status.UNREACHABLE, failure=Failure(Status.UNREACHABLE, "no route to host")),
    ]
    stream = io.StringIO()
    show(make_console(stream, width=80), render_results(results, 65.4))
    assert "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) == RESULTS


def test_what_failed_alike_is_one_row_and_names_every_node() -> None:
    """Forty nodes that could not be reached were eighty lines, among which another failure was not seen."""
    away = [
        NodeResult(f"gpu-{number}", Status.UNREACHABLE, failure=Failure(Status.UNREACHABLE, lost(f"10.0.0.{number}")))
        for number in range(40)
    ]
    broken = [
        NodeResult(name, Status.FAILED, 1, 2, Failure(Status.FAILED, "no space left", "Install", (f"{name}: full",)))
        for name in ("a1", "a2")
    ]
    stream = io.StringIO()
    show(make_console(stream, width=200), render_results([*away, *broken], 1.0))
    shown = stream.getvalue()
    assert shown.count("No route to host") == shown.count("no space left") == shown.count("output of 'Install'") == 1
    assert lost("ADDRESS") in shown
    assert all(each in shown for each in ("gpu-0 to gpu-39", "a1, a2"))
    assert len(shown.splitlines()) < 12


def test_every_node_that_failed_is_named_where_their_names_are_no_series() -> None:
    names = [f"{chr(ord('a') + number)}-rack" for number in range(20)]
    lost_ones = [NodeResult(name, Status.UNREACHABLE, failure=Failure(Status.UNREACHABLE, "lost")) for name in names]
    stream = io.StringIO()
    show(make_console(stream, width=80), render_results(lost_ones, 1.0))
    assert all(name in stream.getvalue() for name in names)


def test_what_one_node_alone_has_is_told_as_it_was_said() -> None:
    stream = io.StringIO()
    alone = NodeResult("n1", Status.UNREACHABLE, failure=Failure(Status.UNREACHABLE, lost("10.0.0.1")))
    mirror = [
        NodeResult(name, Status.FAILED, 1, 2, Failure(Status.FAILED, "no answer of 10.0.0.9")) for name in ("n2", "n3")
    ]
    show(make_console(stream, width=200), render_results([alone, *mirror], 1.0))
    assert lost("10.0.0.1") in stream.getvalue()
    assert "no answer of 10.0.0.9" in stream.getvalue(), "it is the same machine for both"


def lost(address: str) -> str:
    return f"ssh: connect to host {address} port 22: No route to host"
