"""Limits in the driver, against the lab's C library and real control groups; in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.nvml import install, models
from tests.control_groups import control_group, hierarchy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nvml.machine import Machine

REPOSITORY = Path(__file__).parents[4]
VERSION = "615.71.09"
GIB = 1 << 30
MACHINE = replace(models.machine("a100-40gb", 2), driver_version=VERSION, cgroup_root=str(hierarchy()))
UUID = MACHINE.gpus[0].uuid
MIG = models.with_mig(MACHINE, 0, ["3g.20gb"])
GPU_IS_LOST = 15
# Takes a list of calls, each a function's name with its arguments; a refusal is the error's class and its words.
CALLS = """
import json, sys
from plugin.driver.nvml.changes import memory_limits
from plugin.driver.nvml.loading.library import NvmlSource
from plugin.base.errors import LimitError
source, answers = NvmlSource(), []
for name, *arguments in json.loads(sys.argv[1]):
    try:
        if name in ("open", "close"):
            getattr(source, name)()
        else:
            answers.append(getattr(memory_limits, name)(*arguments))
    except LimitError as error:
        answers.append([type(error).__name__, error.message, error.hint])
print(json.dumps(answers))
"""


@pytest.fixture
def group() -> Iterator[str]:
    with control_group(f"grapnel-test-{os.getpid()}/container") as folder:
        yield str(folder)


def calls(folder: Path, machine: Machine, *wanted: tuple[object, ...], is_open: bool = True) -> list[Any]:
    install(folder, VERSION, machine)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(folder)}
    listed = [("open",), *wanted, ("close",)] if is_open else list(wanted)
    command = [sys.executable, "-W", "error", "-c", CALLS, json.dumps(listed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def test_a_limit_is_set_read_and_taken_away(tmp_path: Path, group: str) -> None:
    steps = (
        ("read_group", UUID, group),
        ("set_limit", UUID, group, 5 * GIB),
        ("read_group", UUID, group),
        ("clear_limit", UUID, group),
        ("read_group", UUID, group),
    )
    assert calls(tmp_path, MACHINE, *steps) == [[None, 0], None, [5 * GIB, 0], None, [None, 0]]


def test_nothing_is_reserved_in_the_groups_around_it(tmp_path: Path, group: str) -> None:
    """A soft limit would stay in them when a runtime removes the container's group."""
    calls(tmp_path, MACHINE, ("set_limit", UUID, group, GIB))
    from lab.nvml import state  # noqa: PLC0415 - beside its one use

    (limit,) = state.read(tmp_path / f"libnvidia-ml.so.{VERSION}").limits
    assert (limit.soft, limit.hard) == (0, GIB)


@pytest.mark.parametrize(
    ("machine", "kind", "words"),
    [
        pytest.param(
            replace(MACHINE, driver_version="580.95.05"), "LimitUnsupported", "no memory limits", id="an older driver"
        ),
        pytest.param(
            MACHINE.with_failure("nvmlDeviceSetMemoryLimits", 13, 0),
            "LimitUnsupported",
            "no memory limits",
            id="a library without the function",
        ),
        pytest.param(MIG, "LimitUnsupported", "no memory limits", id="a gpu that is cut"),
        pytest.param(
            MACHINE.with_failure("nvmlDeviceSetMemoryLimits", 4, 0), "LimitError", "permission", id="no permission"
        ),
        pytest.param(MACHINE.with_gpu_lost(0), "LimitError", "lost", id="a gpu off the bus"),
    ],
)
def test_a_driver_that_cannot_says_so(tmp_path: Path, group: str, machine: Machine, kind: str, words: str) -> None:
    ((found, message, hint),) = calls(tmp_path, machine, ("set_limit", UUID, group, GIB))
    assert found == kind
    assert words in message.lower()
    assert hint


@pytest.mark.parametrize(
    ("uuid", "below", "size"),
    [
        pytest.param("GPU-00000000-0000-0000-0000-00000000dead", "", GIB, id="a gpu that is not here"),
        pytest.param(UUID, "/absent", GIB, id="a group that is not there"),
        pytest.param(UUID, "", 41 * GIB, id="more than the gpu has"),
    ],
)
def test_what_cannot_be_is_an_error(tmp_path: Path, group: str, uuid: str, below: str, size: int) -> None:
    ((kind, _, _),) = calls(tmp_path, MACHINE, ("set_limit", uuid, f"{group}{below}", size))
    assert kind == "LimitError"


def test_without_a_session_there_is_an_error(tmp_path: Path, group: str) -> None:
    ((kind, message, hint),) = calls(tmp_path, MACHINE, ("set_limit", UUID, group, GIB), is_open=False)
    assert kind == "LimitError", message
    assert hint


def test_a_driver_that_keeps_another_limit_is_not_believed(tmp_path: Path, group: str) -> None:
    """One answers success, and reads back none: as a group of which the container's is not a part."""
    lying = CALLS.replace(
        "from plugin.base.errors",
        "memory_limits.pynvml.nvmlDeviceSetMemoryLimits_v1 = lambda *_: None\nfrom plugin.base.errors",
    )
    install(tmp_path, VERSION, MACHINE)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(tmp_path)}
    wanted = json.dumps([("open",), ("set_limit", UUID, group, GIB), ("close",)])
    done = subprocess.run([sys.executable, "-c", lying, wanted], env=environment, capture_output=True, check=True)
    ((kind, message, _),) = json.loads(done.stdout)
    assert kind == "LimitError"
    assert f"none instead of {GIB} bytes" in message
