"""Processes and MIG instances, against the lab's C library; in processes of their own, as in `test_library`."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lab.nvml import models
from lab.nvml.machine import MIB, Machine, Process, ProcessKind
from plugin.driver.nvml.instances import profile_of
from plugin.driver.nvml.processes import memory_by_pid, newest_percent
from tests.plugin.driver.nvml.test_telemetry import measure

if TYPE_CHECKING:
    from pathlib import Path

NOT_SUPPORTED, UNKNOWN = 3, 999
LISTS = "nvmlDeviceGetComputeRunningProcesses"


def with_processes(*processes: Process, gpu: int = 0, gpus: int = 1) -> Machine:
    return models.machine("a100-40gb", gpus).with_gpu(gpu, processes=processes)


def processes_of(folder: Path, machine: Machine, gpu: int = 0) -> Any:
    return measure(folder, machine)[gpu]["processes"]


@pytest.mark.slow
def test_every_kind_of_process_is_told_once_with_memory_and_use(tmp_path: Path) -> None:
    machine = with_processes(
        Process(30, 3 * MIB, ProcessKind.COMPUTE, 40),
        Process(20, 2 * MIB, ProcessKind.GRAPHICS),
        Process(10, MIB, ProcessKind.MPS, 7),
        Process(40, 4 * MIB, ProcessKind.COMPUTE),
        Process(40, 4 * MIB, ProcessKind.GRAPHICS),  # computes and draws: in both lists, with the same memory
        gpu=1,
        gpus=2,
    )
    found = processes_of(tmp_path, machine, 1)
    assert found == [[10, MIB, 7], [20, 2 * MIB, 0], [30, 3 * MIB, 40], [40, 4 * MIB, 0]]
    assert processes_of(tmp_path, machine, 0) == []


@pytest.mark.slow
def test_the_time_is_that_of_before_the_list(tmp_path: Path) -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    (found,) = measure(tmp_path, with_processes(Process(1)))
    assert before < found["asked_at_s"] < time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.mark.slow
def test_nobody_busy_is_a_use_of_0(tmp_path: Path) -> None:
    assert processes_of(tmp_path, with_processes(Process(7, MIB))) == [[7, MIB, 0]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "code", "processes"),
    [
        pytest.param(LISTS, UNKNOWN, None, id="a list that fails is not nobody"),
        pytest.param(LISTS.replace("Compute", "Graphics"), NOT_SUPPORTED, [[7, MIB, 5]], id="no GPU for graphics"),
        pytest.param(LISTS.replace("Compute", "MPSCompute"), NOT_SUPPORTED, [[7, MIB, 5]], id="no MPS"),
        pytest.param("nvmlDeviceGetProcessUtilization", NOT_SUPPORTED, [[7, MIB, None]], id="no use by process"),
        pytest.param("nvmlDeviceGetProcessUtilization", UNKNOWN, [[7, MIB, None]], id="use by process fails"),
    ],
)
def test_what_cannot_be_told_is_none(tmp_path: Path, function: str, code: int, processes: object) -> None:
    machine = with_processes(Process(7, MIB, sm_utilization=5)).with_failure(function, code)
    assert processes_of(tmp_path, machine) == processes


@pytest.mark.slow
def test_memory_that_the_driver_does_not_tell_is_none(tmp_path: Path) -> None:
    not_available = 2**64 - 1
    assert processes_of(tmp_path, with_processes(Process(7, not_available))) == [[7, None, 0]]


@pytest.mark.slow
def test_each_instance_of_a_gpu_that_is_cut_has_its_memory_and_processes(tmp_path: Path) -> None:
    machine = models.with_mig(models.machine("a100-40gb", 2), 1, ["1g.5gb", "3g.20gb"])
    migs = machine.gpus[1].migs
    used = (replace(migs[0], memory_used=64 * MIB, processes=(Process(7, 60 * MIB),)), migs[1])
    plain, cut = measure(tmp_path, machine.with_gpu(1, migs=used, mig_capable=True))
    assert plain["instances"] == []
    assert cut["processes"] is None
    (number, profile, uuids, measured), second = cut["instances"]
    memory = dict(zip(measured_fields(), measured, strict=True))
    assert (number, profile, uuids) == (migs[0].gpu_instance, "1g.5gb", [migs[0].uuid])
    assert memory["uuid"] == cut["uuid"]
    assert memory["memory_used_bytes"] == 64 * MIB
    assert memory["memory_total_bytes"] == migs[0].memory_total
    assert memory["processes"] == [[7, 60 * MIB, None]]
    assert memory["gpu_utilization_percent"] is None
    assert second[:3] == [migs[1].gpu_instance, "3g.20gb", [migs[1].uuid]]


def measured_fields() -> tuple[str, ...]:
    from plugin.driver.telemetry import GpuTelemetry  # noqa: PLC0415 - beside what it is for

    return GpuTelemetry._fields


@pytest.mark.slow
def test_compute_instances_of_one_gpu_instance_are_one_row(tmp_path: Path) -> None:
    machine = models.with_mig(models.machine("a100-40gb", 1), 0, ["3g.20gb", "3g.20gb"])
    first, second = machine.gpus[0].migs
    halves = (
        replace(first, profile="1c.3g.20gb", processes=(Process(7, MIB),)),
        replace(
            second,
            profile="2c.3g.20gb",
            gpu_instance=first.gpu_instance,
            compute_instance=1,
            processes=(Process(8, MIB),),
        ),
    )
    (found,) = measure(tmp_path, machine.with_gpu(0, migs=halves, mig_capable=True))
    ((_, profile, uuids, measured),) = found["instances"]
    assert (profile, uuids) == ("3g.20gb", [first.uuid, second.uuid])
    assert [pid for pid, *_ in dict(zip(measured_fields(), measured, strict=True))["processes"]] == [7, 8]


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        pytest.param("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "1g.5gb", id="the whole instance"),
        pytest.param("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "1g.10gb+me", id="with media engines"),
        pytest.param("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", "3g.20gb", id="a part of its compute"),
        pytest.param("NVIDIA A100-SXM4-40GB", "", id="a driver that does not say"),
    ],
)
def test_profiles(name: str, profile: str) -> None:
    assert profile_of(name) == profile


def sample(pid: int, time_us: int, percent: int) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, timeStamp=time_us, smUtil=percent)


def test_the_newest_sample_counts_and_what_nobody_wrote_does_not() -> None:
    samples = [sample(7, 30, 3), sample(7, 10, 1), sample(0, 40, 9), sample(8, 20, 2**31), sample(9, 20, 100)]
    assert newest_percent(samples) == {7: 3, 9: 100}


def listed(pid: int, memory: int | None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=memory)


def test_memory_is_told_once_whatever_list_has_it() -> None:
    lists = [listed(7, None), listed(8, None), listed(7, 5), listed(9, 5), listed(9, 5), listed(7, None)]
    assert memory_by_pid(lists) == {7: 5, 8: None, 9: 5}


@pytest.mark.slow
def test_of_a_gpu_with_too_many_processes_none_is_told(tmp_path: Path) -> None:
    """The simulated driver has room for 32 in a list: the limit is set below that in the process that asks."""
    machine = with_processes(*(Process(pid, MIB) for pid in range(1, 21)))
    assert len(processes_of(tmp_path, machine)) == 20
    below = "import plugin.driver.nvml.processes as processes; processes.MAX_PROCESSES = 19\n"
    assert measure(tmp_path, machine, prepare=below)[0]["processes"] is None
