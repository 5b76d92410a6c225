"""`grapnel-node gpu-settings` against the lab's C library, as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.nvml import install, models, state
from plugin.changes.gpu_settings.document import SCHEMA

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[3]
WANTED = {
    "devices": "all",
    "persistenceMode": True,
    "computeMode": "EXCLUSIVE_PROCESS",
    "powerLimitWatts": 300,
    "graphicsClockMHz": {"min": 1200, "max": 1410},
}


class Node:
    """A node with two GPUs, whose driver's library is the lab's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.library = install(folder / "lib", "550.163.01", models.machine("a100-40gb", 2))
        self.config = folder / "node.json"
        places = {"stateFolder": str(folder / "state"), "adminSocket": str(folder / "node.sock")}
        self.config.write_text(json.dumps(places))
        self.file = folder / "gpu-settings.json"

    def declare(self, *entries: dict[str, object]) -> None:
        self.file.write_text(json.dumps({"schema": SCHEMA, "settings": entries}))

    def run(self, act: str, *more: str) -> subprocess.CompletedProcess[str]:
        file = () if act == "show" else ("--file", str(self.file))
        return self.call("gpu-settings", act, *file, *more)

    def call(self, *verb: str) -> subprocess.CompletedProcess[str]:
        words = ("-c", "from plugin.cli import main; raise SystemExit(main())", *verb)
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(self.library.parent)}
        return subprocess.run(
            [sys.executable, *words, "--config", str(self.config)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def found(self, index: int = 0) -> tuple[int, int, int, int]:
        gpu = state.read(self.library).gpus[index]
        return int(gpu.persistence_mode), gpu.compute_mode, gpu.power_limit_mw, gpu.clock_sm_locked_max


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_gpus_are_set_as_declared_shown_and_given_back(node: Node) -> None:
    node.declare(WANTED, {"devices": [1], "powerLimitWatts": 200})
    planned = node.run("plan")
    assert (planned.returncode, "powerLimitWatts: 300 W" in planned.stdout) == (3, True), planned.stderr
    done = node.run("apply", "--json")
    assert (done.returncode, json.loads(done.stdout)["problems"]) == (0, []), done.stderr
    assert (node.found(0), node.found(1)) == ((1, 3, 300_000, 1410), (1, 3, 200_000, 1410))
    assert node.run("plan").returncode == 0
    again = node.run("apply")
    assert (again.returncode, again.stdout) == (0, "the gpus are set as declared already\n")
    shown = json.loads(node.run("show", "--json").stdout)["gpus"][0]
    assert shown["settings"] == {key: value for key, value in WANTED.items() if key != "devices"}
    assert shown["powerLimitsMilliwatts"] == {"min": 100_000, "max": 400_000}
    node.file.unlink()
    assert node.run("apply").returncode == 0
    assert node.found() == (1, 0, 400_000, 0), "persistence mode was on before"
    assert list((node.folder / "state").iterdir()) == []


def test_what_a_gpu_cannot_have_is_told_with_its_range_and_the_rest_is_set(node: Node) -> None:
    node.declare({**WANTED, "powerLimitWatts": 999}, {"devices": [5], "persistenceMode": True})
    assert node.run("plan").returncode == 1
    done = node.run("apply")
    assert done.returncode == 3
    assert "powerLimitWatts: it can have 100 W to 400 W" in done.stdout
    assert "an entry is about gpu 5, and there is none" in done.stdout
    assert node.found() == (1, 3, 400_000, 1410)


def test_a_driver_that_refuses_is_a_failure_by_name(node: Node) -> None:
    state.update(node.library, lambda machine: machine.with_failure("nvmlDeviceSetPowerManagementLimit", 3, gpu=1))
    node.declare(WANTED)
    done = node.run("apply")
    assert done.returncode == 1
    assert "powerLimitWatts cannot be set: this gpu or its driver does not support it" in done.stdout
    assert (node.found(0)[2], node.found(1)[2]) == (300_000, 400_000)


def test_where_nothing_is_declared_the_driver_is_not_asked(node: Node) -> None:
    node.library.write_bytes(b"")
    done = node.run("apply")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_that_is_wrong_is_an_error_and_nothing_is_given_back(node: Node) -> None:
    node.declare(WANTED)
    node.run("apply")
    node.file.write_text("{}")
    done = node.run("apply")
    assert done.returncode == 1
    assert "cannot be understood" in done.stderr
    assert node.found() == (1, 3, 300_000, 1410)


def test_a_node_that_resumes_has_its_gpus_set_before_they_are_offered(node: Node) -> None:
    node.declare(WANTED)
    node.run("apply")
    done = node.call("resume")  # where nothing is declared in /etc, what was set is given back
    assert (done.returncode, "settings" in done.stdout) == (0, False), done.stderr
    assert node.found() == (1, 0, 400_000, 0)


def test_gpus_that_cannot_be_set_keep_no_node_from_resuming(node: Node) -> None:
    node.declare(WANTED)
    node.run("apply")
    state.update(node.library, lambda machine: machine.with_failure("nvmlDeviceSetComputeMode", 999))
    done = node.call("resume", "--json")
    assert done.returncode == 0, done.stderr
    problems = json.loads(done.stdout)["problems"]
    assert [line for line in problems if "computeMode cannot be set" in line]
