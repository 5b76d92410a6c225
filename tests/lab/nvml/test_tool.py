"""The command line."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lab.nvml import models, state, tool
from lab.nvml.errors import NvmlError
from lab.nvml.machine import Event, Failure

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    state.write(tmp_path / "state", models.machine("t4", 2))
    return tmp_path / "state"


@pytest.mark.slow
def test_new_writes_a_machine(tmp_path: Path) -> None:
    tool.run([str(tmp_path / "fresh"), "new", "h100-80gb", "8"])
    assert state.read(tmp_path / "fresh") == models.machine("h100-80gb", 8)


def test_show_prints_what_set_takes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool.run([str(file), "set", "gpu1.temperature=81"])
    tool.run([str(file), "show", "gpu1.temperature="])
    assert capsys.readouterr().out == "gpu1.temperature=81\n"


def test_several_values_change_together_or_not_at_all(file: Path) -> None:
    with pytest.raises(NvmlError, match="no value absent"):
        tool.run([str(file), "set", "gpu0.temperature=81", "gpu0.absent=1"])
    assert state.read(file).gpus[0].temperature == 30


def test_xid_errors_are_counted_up(file: Path) -> None:
    tool.run([str(file), "xid", "0", "79"])
    tool.run([str(file), "xid", "1", "48"])
    assert state.read(file).events == (Event(1, 0, 79), Event(2, 1, 48))


@pytest.mark.slow
def test_failures_end_by_heal_and_events_stay(file: Path) -> None:
    tool.run([str(file), "xid", "0", "79"])
    tool.run([str(file), "fail", "nvmlInit", "999"])
    tool.run([str(file), "lose", "1"])
    assert state.read(file).failures == (Failure("nvmlInit", -1, 999), Failure("*", 1, 15))
    tool.run([str(file), "heal"])
    assert state.read(file).failures == ()
    assert len(state.read(file).events) == 1


def test_a_failure_may_be_of_one_driver(file: Path) -> None:
    tool.run([str(file), "fail", "cuMemAlloc", "2", "--gpu", "1", "--driver", "550.163.01"])
    assert state.read(file).failures == (Failure("cuMemAlloc", 1, 2, "550.163.01"),)


def test_what_is_not_a_change_is_refused(file: Path) -> None:
    with pytest.raises(NvmlError, match="not path=value: gpu0"):
        tool.run([str(file), "set", "gpu0"])


@pytest.mark.slow
def test_a_failure_is_one_line_and_a_hint_without_a_traceback(file: Path) -> None:
    command = [sys.executable, "-m", "lab.nvml.tool", str(file), "set", "gpu0.absent=1"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: no value absent in gpu\nvalues: name, uuid")
