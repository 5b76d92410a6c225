"""An apply that is ended half-way leaves nothing behind on this machine, and the next one finishes the work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from provision.apply.lock import APPLY_VARIABLE, Claim, lock_machines
from provision.apply.runner.processes import find_processes
from tests.provision.apply.real_apply import CLAIM, lay_out

pytestmark = pytest.mark.functional

CHECKOUT = Path(__file__).parents[3]


def start(folder: Path, *mode: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.provision.apply.real_apply", str(folder), *mode],
        cwd=CHECKOUT,
        env={**os.environ, "TMPDIR": str(folder), "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_first_pass(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if "pass 1" in line:
            return
    pytest.fail("the apply ended before it applied anything")


def children(folder: Path) -> list[int]:
    return find_processes(APPLY_VARIABLE, str(folder / "grapnel" / "applies" / f"{CLAIM.key}.apply"))


def wait_for_module(folder: Path) -> None:
    """Ansible works through ansible-playbook, a worker, and the module's own process."""
    while len(children(folder)) < 3:
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(
            signal.SIGINT, 130, id="SIGINT", marks=pytest.mark.long
        ),  # what SIGTERM does is the same handler's: see below
        pytest.param(signal.SIGKILL, -9, id="SIGKILL"),
    ],
)
def test_killed_half_way_and_applied_again(tmp_path: Path, number: signal.Signals, code: int) -> None:
    lay_out(tmp_path)
    with start(tmp_path) as process:
        wait_for_first_pass(process)
        wait_for_module(tmp_path)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == code, output
    if number is not signal.SIGKILL:
        assert "1 canceled" in output
        assert children(tmp_path) == []
    assert list((tmp_path / "state").iterdir()) == []
    (tmp_path / "gate").touch()
    with start(tmp_path) as process:
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert "1 node: 1 converged" in output
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["driver", "runtime"]
    assert children(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGTERM, 130, id="SIGTERM", marks=pytest.mark.long), (signal.SIGKILL, -9)]
)
def test_a_rollout_that_is_ended_in_the_swap_goes_on_from_there(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    lay_out(tmp_path)
    with start(tmp_path, "rollout") as process:
        wait_for_first_pass(process)
        wait_for_module(tmp_path)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == code, output
    if number is signal.SIGTERM:
        assert "in swap: `grapnel apply` continues from there" in " ".join(output.split())
        assert "n1 stays out of service" in output
    entry = json.loads((tmp_path / "state_file.json").read_text())["nodes"]["n1"]
    assert (entry["record"]["phase"], entry["cordoned"]) == ("swap", True)
    (tmp_path / "gate").touch()
    with start(tmp_path, "rollout") as process:
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert "n1  550.163.01  continues from swap" in output
    assert (tmp_path / "verbs").read_text().split() == ["release", "verify", "resume"], "nothing is done twice"
    entry = json.loads((tmp_path / "state_file.json").read_text())["nodes"]["n1"]
    assert (entry["record"]["phase"], entry.get("cordoned", False)) == ("done", False)
    assert children(tmp_path) == []


def test_what_a_killed_apply_left_running_is_ended_by_one_of_another_inventory_with_its_machine(tmp_path: Path) -> None:
    lay_out(tmp_path)
    with start(tmp_path) as process:
        wait_for_first_pass(process)
        wait_for_module(tmp_path)
        process.kill()
    orphans = children(tmp_path)
    assert orphans
    other = Claim("other inventory", {"first": ["gpu-1:22", "10.0.0.1:22"], "second": ["10.0.0.2:22"]})
    with lock_machines(other, {"XDG_STATE_HOME": str(tmp_path)}):
        assert children(tmp_path) == []


def test_a_second_apply_of_the_same_inventory_is_turned_away(tmp_path: Path) -> None:
    lay_out(tmp_path)
    with start(tmp_path) as first:
        wait_for_first_pass(first)
        with start(tmp_path) as second:
            output, _ = second.communicate(timeout=60)
        assert second.returncode != 0
        assert f"is being changed by process {first.pid}" in output
        first.terminate()
        first.communicate(timeout=60)
