"""How long steps took last time: remembered for each project, bounded, and never in the way."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from provision.report.runs.durations import STEPS, WHOLE, Durations
from tests.provision.runs.story import began, night, report_of, step

if TYPE_CHECKING:
    from pathlib import Path


def test_the_last_run_is_remembered(tmp_path: Path) -> None:
    durations = Durations(tmp_path)
    durations.update(report_of(night()))

    read = durations.read()
    assert (read["swap"], read["driver: swap the driver"], read[WHOLE]) == (80, 75, 129)
    assert stat.S_IMODE(durations.path.stat().st_mode) == 0o600


def test_steps_of_other_runs_are_kept_up_to_a_bound(tmp_path: Path) -> None:
    durations = Durations(tmp_path)
    durations.update(report_of([began(), *step("n1", "runtime: restart", 1, 7)]))
    for number in range(STEPS - 1):
        durations.update(report_of([began(), *step("n1", f"step {number}", 1, 2)]))
    assert durations.read()["runtime: restart"] == 7

    durations.update(report_of([began(), *step("n1", "one more", 1, 2)]))
    assert "runtime: restart" not in durations.read()
    assert len(durations.read()) == STEPS


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema": "grapnel.dev/durations/v9"}', '{"seconds": {"x": -1}}', '{"seconds": {"x": "long"}}'],
)
def test_a_file_that_is_broken_says_nothing(tmp_path: Path, text: str) -> None:
    durations = Durations(tmp_path)
    durations.path.write_text(text)
    assert durations.read() == {}


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    durations = Durations(tmp_path / "absent")
    durations.update(report_of(night()))
    assert durations.read() == {}
