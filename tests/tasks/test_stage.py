"""Stages run side by side, every one of them, and their table says what came of each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tasks.errors import SetupError, StageError
from tasks.progress import Progress
from tasks.stage import Result, Stage, render_table, require, run_in_turn, run_stages

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
# Says that it is there, then waits until the other one says so too.
MEET = 'touch "$1"; until [ -e "$2" ]; do sleep 0.02; done'
# Fails if it meets another one.
ALONE = 'mkdir "$1" && sleep 0.2 && rmdir "$1"'
INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from tasks.progress import Progress
from tasks.stage import Stage, run_stages

class Interrupted(Progress):
    def redraw(self, text):
        if nodes.exists():
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started the tests
nodes = Path(sys.argv[1], "nodes")
tidy = "trap 'rm $0; exit 1' INT; touch $0; while :; do sleep 0.02; done"
run_stages([Stage("long", ("sh", "-c", tidy, str(nodes)))], Interrupted(Path(sys.argv[1], "logs")))
"""


@pytest.fixture
def progress(tmp_path: Path) -> Progress:
    return Progress(tmp_path / "logs")


def shell(title: str, script: str, *arguments: Path, cores: int = 1, beside: bool = False) -> Stage:
    return Stage(title, ("sh", "-c", script, "sh", *map(str, arguments)), cores=cores, beside=beside)


def statuses(stages: Sequence[Stage], progress: Progress) -> dict[str, int]:
    return {result.title: result.status for result in run_stages(stages, progress)}


def test_what_goes_on_is_told_with_about_how_long_it_takes(tmp_path: Path) -> None:
    told: list[str] = []

    class Listened(Progress):
        def redraw(self, text: str) -> None:
            told.append(text)
            said.touch()

    said = tmp_path / "said"
    wait = ("sh", "-c", 'echo pulling; until [ -e "$1" ]; do sleep 0.02; done', "sh", str(said))
    run_stages([Stage("tree", wait, about="half a minute")], Listened(tmp_path / "logs"))

    assert "tree (about half a minute): " in told[0]


def test_a_stage_that_fails_keeps_no_later_one_from_running(progress: Progress) -> None:
    stages = [shell("first", "exit 3", cores=2), shell("second", "exit 0", cores=2), shell("third", "exit 1", cores=2)]

    assert statuses(stages, progress) == {"first": 3, "second": 0, "third": 1}


def test_two_stages_of_one_core_run_at_the_same_time(progress: Progress, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"

    done = statuses([shell("one", MEET, one, other), shell("other", MEET, other, one)], progress)

    assert done == {"one": 0, "other": 0}


def test_a_stage_that_keeps_both_cores_busy_has_the_machine_to_itself(progress: Progress, tmp_path: Path) -> None:
    cores = {"first": 2, "second": 1, "third": 2}
    stages = [shell(title, ALONE, tmp_path / "room", cores=count) for title, count in cores.items()]

    assert set(statuses(stages, progress).values()) == {0}


def test_stages_are_started_in_their_order(progress: Progress, tmp_path: Path) -> None:
    """What could run beside the first one waits behind what cannot."""
    last = shell("last", '! test -e "$1"', tmp_path / "first")
    stages = [shell("first", 'touch "$1"; sleep 0.3; rm "$1"', tmp_path / "first"), shell("both", "", cores=2), last]

    done = statuses(stages, progress)

    assert done == {"first": 0, "both": 0, "last": 0}
    assert list(done) == ["first", "both", "last"]


def test_what_mostly_waits_runs_beside_what_keeps_both_cores_busy(progress: Progress, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    stages = [shell("busy", MEET, one, other, cores=2), shell("waits", MEET, other, one, beside=True)]

    assert statuses(stages, progress) == {"busy": 0, "waits": 0}


def test_what_mostly_waits_keeps_nothing_back(progress: Progress, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    stages = [shell("waits", MEET, one, other, beside=True), shell("first", ""), shell("last", MEET, other, one)]

    assert statuses(stages, progress) == {"first": 0, "waits": 0, "last": 0}


def test_two_that_mostly_wait_follow_one_another(progress: Progress, tmp_path: Path) -> None:
    stages = [shell(title, ALONE, tmp_path / "room", beside=True) for title in ("first", "second")]

    assert list(statuses(stages, progress).items()) == [("first", 0), ("second", 0)]


def test_the_end_of_what_a_failed_stage_printed_is_shown(
    progress: Progress, capsys: pytest.CaptureFixture[str]
) -> None:
    run_stages([shell("tests", "seq 1000; echo assert 1 == 2 >&2; exit 1")], progress)

    shown = capsys.readouterr().out
    assert "tests: failed with status 1" in shown
    assert "assert 1 == 2" in shown
    assert "\n1000\n" in shown
    assert "\n1\n" not in shown


def test_a_stage_that_passes_is_one_line(progress: Progress, capsys: pytest.CaptureFixture[str]) -> None:
    run_stages([shell("tests", "echo noise; echo 7 passed in 0.1s; echo")], progress)

    (line,) = capsys.readouterr().out.splitlines()
    assert "tests: passed in" in line
    assert line.endswith("7 passed in 0.1s")


def test_a_stage_has_its_own_environment(progress: Progress) -> None:
    stage = Stage("asks", ("sh", "-c", 'test "$WHERE" = here && test -n "$PATH"'), {"WHERE": "here"})

    assert statuses([stage], progress) == {"asks": 0}


def test_the_table_has_a_line_for_each_stage_with_its_time_and_what_came_of_it(progress: Progress) -> None:
    log = progress.log_dir / "not-so-good.log"
    results = [Result("good", 7.9, 3.2, 0, progress.log_dir / "good.log"), Result("not so good", 754.2, 62.0, 1, log)]

    assert render_table(results) == [
        "good           0:07    0:03 of CPU  passed",
        f"not so good   12:34    1:02 of CPU  FAILED, see {log}",
    ]


def test_what_a_stage_takes_of_processors_is_measured_with_what_it_starts(progress: Progress) -> None:
    busy = "import time\nwhile time.process_time() < 0.3:\n    pass"
    stages = [shell("busy", f"{sys.executable} -c '{busy}' & wait"), shell("waiting", "sleep 0.01")]

    took = {result.title: result.cpu_s for result in run_stages(stages, progress)}

    assert took["busy"] >= 0.3 > took["waiting"]


def test_failed_stages_are_named_together(progress: Progress) -> None:
    results = run_stages([shell("a", "exit 1"), shell("b", "exit 0"), shell("c", "exit 1", cores=2)], progress)

    with pytest.raises(StageError, match=r"^failed: a, c$"):
        require(results)


def test_what_all_else_depends_on_stops_at_its_first_failure(progress: Progress, tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"^failed: first$"):
        run_in_turn([shell("first", "exit 1"), shell("second", 'touch "$1"', tmp_path / "made")], progress)

    assert not (tmp_path / "made").exists()


def test_a_program_that_is_missing_is_named(progress: Progress) -> None:
    with pytest.raises(SetupError, match="no-such-program: no such program"):
        run_stages([Stage("tool", ("no-such-program",))], progress)


def test_an_interrupt_reaches_the_stages_and_waits_until_they_have_tidied_up(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", INTERRUPTED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "KeyboardInterrupt" in done.stderr
    assert not (tmp_path / "nodes").exists()
