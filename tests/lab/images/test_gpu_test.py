"""The GPU test program as a process of this machine; what it does in containers is in tests/lab/cri."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.images import recipes
from lab.images.recipes import compiled
from lab.nvml import install, models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lab.nvml.machine import Machine

MACHINE = models.machine("a100-40gb", 3)
UUIDS = [gpu.uuid for gpu in MACHINE.gpus]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("gpu-test") / "gpu-test"
    place.write_bytes(compiled("gpu-test").data or b"")
    place.chmod(0o755)
    return place


@pytest.fixture
def run(program: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the program where NVML answers for a machine."""

    def run_on(machine: Machine, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        library = install(tmp_path, "550.163.01", machine)
        env = {"LD_LIBRARY_PATH": str(library.parent), **environment}
        return subprocess.run([program, *arguments], check=False, capture_output=True, text=True, timeout=30, env=env)

    return run_on


@pytest.mark.slow
def test_the_program_is_the_same_each_time_and_finds_libraries_by_the_loader() -> None:
    entry = recipes.compiled("gpu-test")
    assert entry == recipes.compiled("gpu-test")
    assert b"/lib64/ld-linux-x86-64.so.2" in (entry.data or b"")


@pytest.mark.slow
def test_list_counts_and_names_the_gpus(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = run(MACHINE, "list")
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, ["3", *UUIDS], "")


@pytest.mark.slow
def test_list_says_what_nvml_says_of_a_driver_that_is_not_loaded(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run(replace(MACHINE, module="check", module_version="none"), "list")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "gpu-test: no GPU: NVML: Driver Not Loaded\n"


def test_list_fails_where_there_is_no_gpu(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = run(replace(MACHINE, gpus=()), "list")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "gpu-test: no GPU: NVML counts none\n")


def test_look_prints_what_there_is_as_json(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    odd = 'a "word"\\\nand more'
    done = run(MACHINE, "look", NVIDIA_VISIBLE_DEVICES=odd, OTHER="1")
    seen = json.loads(done.stdout)
    assert done.returncode == 0
    assert seen["gpus"] == UUIDS
    assert seen["problem"] == ""
    assert seen["environment"] == {"NVIDIA_VISIBLE_DEVICES": odd}
    assert seen["libraries"]["libnvidia-ml.so.1"] == ""
    assert set(seen) == {"devices", "libraries", "environment", "gpus", "problem"}


@pytest.mark.parametrize(
    "arguments", [[], ["other"], ["list", "more"], ["allocate"]], ids=["no verb", "another", "too many", "no size"]
)
def test_other_verbs_are_told_which_there_are(
    run: Callable[..., subprocess.CompletedProcess[str]], arguments: list[str]
) -> None:
    done = run(MACHINE, *arguments)
    assert (done.returncode, done.stderr) == (2, "usage: gpu-test list|hold|look|allocate MIB...\n")
