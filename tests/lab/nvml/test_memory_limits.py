"""Memory limits of control groups: set through NVML, held by the simulated CUDA library in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.nvml import install, install_cuda, models, state
from lab.nvml.machine import GIB, MIB
from tests.control_groups import control_group, hierarchy, inside
from tests.lab.nvml.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nvml.machine import Machine

INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 2, 3, 4, 6
OUT_OF_MEMORY = 2
MAX = (1 << 64) - 1
NOBODY = 65534
# Takes orders on stdin: allocate N bytes (the answer is CUDA's result), or free the last allocation.
CUDA = """
import ctypes, json, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, kept = ctypes.c_void_p(), []
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
for line in sys.stdin:
    size = json.loads(line)
    pointer = ctypes.c_uint64()
    if size < 0:
        result = cuda.cuMemFree_v2(kept.pop())
    else:
        result = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
        kept += [pointer] if result == 0 else []
    print(result, flush=True)
"""


class Program:
    """A process in a control group that allocates memory of the first GPU."""

    def __init__(self, library: Path, group: Path) -> None:
        self._child = subprocess.Popen(
            inside(group, [sys.executable, "-c", CUDA]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(library.parent)},
            text=True,
        )

    def allocate(self, size: int) -> int:
        assert self._child.stdin
        assert self._child.stdout
        self._child.stdin.write(json.dumps(size) + "\n")
        self._child.stdin.flush()
        return int(self._child.stdout.readline())

    def free(self) -> None:
        assert self.allocate(-1) == 0

    def kill(self) -> None:
        self._child.kill()
        self._child.communicate(timeout=10)


def machine_here(**changes: object) -> Machine:
    root = hierarchy()
    return replace(models.machine("a100-40gb", 2), driver_version="615.71.09", cgroup_root=str(root), **changes)  # type: ignore[arg-type]


def put(folder: Path, machine: Machine) -> Path:
    library = install(folder / "lib", "615.71.09", machine)
    install_cuda(folder / "lib", "615.71.09")
    return library


@pytest.fixture
def group() -> Iterator[Path]:
    with control_group(f"grapnel-test-{os.getpid()}/container") as folder:
        yield folder


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return put(tmp_path, machine_here())


@pytest.fixture
def nvml(library: Path) -> Iterator[Client]:
    with Client(library) as client:
        client("nvmlInit()")
        yield client


def setting(group: Path | str, hard: int, soft: int = 0, gpu: int = 0) -> str:
    limits = f"c_nvmlSetMemoryLimits_v1_t(nameSpace={str(group).encode()!r}, softLimit={soft}, hardLimit={hard})"
    return f"nvmlDeviceSetMemoryLimits_v1(gpu({gpu}), {limits})"


def getting(group: Path | str, gpu: int = 0) -> str:
    known = f"kept.setdefault('limits', c_nvmlGetMemoryLimits_v1_t(nameSpace={str(group).encode()!r}))"
    read = f"nvmlDeviceGetMemoryLimits_v1(gpu({gpu}), {known})"
    return f"({read}, [{known}.softLimit, {known}.hardLimit, {known}.currentUsed], kept.clear())[1]"


def test_a_group_without_a_limit_has_none(nvml: Client, group: Path) -> None:
    assert nvml(getting(group)) == [0, MAX, 0]


def test_a_limit_is_read_back_and_by_other_processes(nvml: Client, library: Path, group: Path) -> None:
    nvml(setting(group, 4 * GIB, soft=1 * GIB))
    assert nvml(getting(group)) == [1 * GIB, 4 * GIB, 0]
    assert nvml(getting(group, gpu=1)) == [0, MAX, 0]
    with Client(library) as other:
        other("nvmlInit()")
        assert other(getting(group)) == [1 * GIB, 4 * GIB, 0]


def test_a_limit_is_replaced_cleared_and_gone_with_its_group(nvml: Client, library: Path, group: Path) -> None:
    nvml(setting(group, 4 * GIB))
    nvml(setting(group, 2 * GIB))
    assert nvml(getting(group)) == [0, 2 * GIB, 0]
    nvml(setting(group, MAX))
    assert state.read(library).limits == ()
    below = group / "below"
    below.mkdir()
    nvml(setting(below, 2 * GIB))
    below.rmdir()
    nvml(setting(group, 4 * GIB))
    assert [limit.hard for limit in state.read(library).limits] == [4 * GIB]


def test_a_group_reads_the_limit_of_the_nearest_around_it(nvml: Client, group: Path) -> None:
    nvml(setting(group.parent, 4 * GIB))
    assert nvml(getting(group)) == [0, 4 * GIB, 0]


@pytest.mark.parametrize(
    ("below", "sizes", "code"),
    [
        pytest.param("", (GIB, 2 * GIB), INVALID_ARGUMENT, id="soft above hard"),
        pytest.param("", (41 * GIB, 0), INVALID_ARGUMENT, id="more than the gpu has"),
        pytest.param("/absent", (GIB, 0), NOT_FOUND, id="no such group"),
        pytest.param("/../../../..", (GIB, 0), NOT_FOUND, id="out of the hierarchy"),
        pytest.param("/cgroup.procs", (GIB, 0), NOT_FOUND, id="a file"),
    ],
)
def test_what_no_driver_would_set_is_refused(
    below: str, sizes: tuple[int, int], code: int, nvml: Client, group: Path
) -> None:
    assert nvml.error(setting(f"{group}{below}", *sizes)) == code


def test_a_folder_that_is_no_group_is_refused(nvml: Client, tmp_path: Path) -> None:
    assert nvml.error(setting(tmp_path, GIB)) == NOT_FOUND


@pytest.mark.parametrize(
    "machine",
    [
        pytest.param(replace(machine_here(), driver_version="610.43.02"), id="a driver of an earlier branch"),
        pytest.param(machine_here(memory_limits_from=0), id="a driver that has none"),
        pytest.param(models.with_mig(machine_here(), 0, ["3g.20gb"]), id="a gpu in mig mode"),
    ],
)
def test_where_there_are_no_limits_it_says_so(machine: Machine, tmp_path: Path, group: Path) -> None:
    with Client(put(tmp_path, machine)) as client:
        client("nvmlInit()")
        assert client.error(setting(group, GIB)) == NOT_SUPPORTED
        assert client.error(getting(group)) == NOT_SUPPORTED


def test_a_mig_device_has_no_limit(tmp_path: Path, group: Path) -> None:
    with Client(put(tmp_path, models.with_mig(machine_here(), 0, ["3g.20gb"]))) as client:
        client("nvmlInit()")
        device = "nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 0)"
        assert client.error(setting(group, GIB).replace("gpu(0)", device)) == NOT_SUPPORTED


def test_only_root_sets_and_everybody_reads(nvml: Client, group: Path) -> None:
    nvml(setting(group, GIB))
    nvml(f"__import__('os').seteuid({NOBODY})")
    assert nvml.error(setting(group, 2 * GIB)) == NO_PERMISSION
    assert nvml(getting(group))[1] == GIB


def test_memory_past_the_limit_is_not_to_be_had(nvml: Client, library: Path, group: Path) -> None:
    nvml(setting(group, 100 * MIB))
    program = Program(library, group)
    assert program.allocate(60 * MIB) == 0
    assert program.allocate(60 * MIB) == OUT_OF_MEMORY
    assert nvml(getting(group)) == [0, 100 * MIB, 60 * MIB]
    assert program.allocate(40 * MIB) == 0
    program.free()
    assert nvml(getting(group))[2] == 60 * MIB
    program.kill()
    assert nvml(getting(group))[2] == 0


def test_processes_of_a_group_share_its_limit_and_others_do_not(nvml: Client, library: Path, group: Path) -> None:
    nvml(setting(group, 100 * MIB))
    first, second, outside = Program(library, group), Program(library, group), Program(library, group.parent)
    assert first.allocate(80 * MIB) == 0
    assert second.allocate(30 * MIB) == OUT_OF_MEMORY
    assert outside.allocate(200 * MIB) == 0
    for each in (first, second, outside):
        each.kill()


def test_a_group_below_does_not_get_round_the_limit(nvml: Client, library: Path, group: Path) -> None:
    nvml(setting(group, 100 * MIB))
    below = group / "below"
    below.mkdir()
    nvml(setting(below, 200 * MIB))
    program = Program(library, below)
    try:
        assert program.allocate(150 * MIB) == OUT_OF_MEMORY
        assert program.allocate(90 * MIB) == 0
    finally:
        program.kill()
        below.rmdir()


def test_a_limit_set_while_a_program_runs_holds_for_what_it_asks_for_next(
    nvml: Client, library: Path, group: Path
) -> None:
    program = Program(library, group)
    assert program.allocate(90 * MIB) == 0
    nvml(setting(group, 100 * MIB))
    assert program.allocate(20 * MIB) == OUT_OF_MEMORY
    program.kill()
