"""What is measured, against the lab's C library; in processes of their own, as in `test_library`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from ctypes import c_uint
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pynvml import c_nvmlValue_t

from lab.nvml import install, models
from lab.nvml.machine import MIB, Ecc, Machine, RemappedRows
from plugin.driver.nvml.telemetry import value_of
from plugin.driver.telemetry import GpuTelemetry

REPOSITORY = Path(__file__).parents[4]
VERSION = "550.163.01"
NO_METRICS = ("processes", "instances", "asked_at_s")
MEASURE = """
import json
from plugin.driver.nvml.loading.library import NvmlSource
from plugin.driver.nvml.telemetry import TelemetryReader
reader = TelemetryReader()
before = reader.read()
source = NvmlSource(follower=reader)
source.open()
found = reader.read()
source.close()
print(json.dumps([before, [each._asdict() for each in found], reader.read()]))
"""


def measure(folder: Path, machine: Machine, prepare: str = "") -> list[dict[str, Any]]:
    install(folder, VERSION, machine)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(folder)}
    command = [sys.executable, "-W", "error", "-c", prepare + MEASURE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    before, found, after = json.loads(done.stdout)
    assert before is None, "measured without a session"
    assert after is None, "measured after the session"
    return list(found)


@pytest.mark.slow
def test_everything_that_the_library_measures_is_read(tmp_path: Path) -> None:
    machine = models.machine("a100-40gb", 2).with_gpu(
        1,
        memory_used=7 * MIB,
        memory_reserved=500 * MIB,
        temperature=61,
        memory_temperature=72,
        power_usage_mw=118_344,
        power_limit_mw=300_000,
        energy_mj=2**40,
        clock_sm=1410,
        clock_memory=1215,
        clock_event_reasons=4,
        utilization=97,
        memory_utilization=58,
        encoder_utilization=1,
        decoder_utilization=2,
        pcie_replays=3,
        nvlink_sent_kib=2**33,
        nvlink_received_kib=1,
        ecc=Ecc(volatile_corrected=4, volatile_uncorrected=5, aggregate_corrected=6, aggregate_uncorrected=7),
        remapped_rows=RemappedRows(corrected=8, uncorrected=9, pending=True, failed=False),
    )
    gpu = machine.gpus[1]
    expected = GpuTelemetry(
        gpu.uuid,
        gpu_utilization_percent=97,
        memory_utilization_percent=58,
        encoder_utilization_percent=1,
        decoder_utilization_percent=2,
        memory_total_bytes=gpu.memory_total,
        memory_used_bytes=7 * MIB,
        memory_free_bytes=gpu.memory_total - 507 * MIB,
        memory_reserved_bytes=500 * MIB,
        temperature_c=61,
        memory_temperature_c=72,
        power_usage_mw=118_344,
        power_limit_mw=300_000,
        energy_mj=2**40,
        sm_clock_mhz=1410,
        memory_clock_mhz=1215,
        clock_event_reasons=4,
        pcie_replays=3,
        ecc_corrected_volatile=4,
        ecc_uncorrected_volatile=5,
        ecc_corrected_aggregate=6,
        ecc_uncorrected_aggregate=7,
        remapped_rows_corrected=8,
        remapped_rows_uncorrected=9,
        remapped_rows_pending=1,
        remapped_rows_failure=0,
        nvlink_traffic_kib=2**33 + 1,
    )
    found = measure(tmp_path, machine)
    metrics = {name: found[1][name] for name in expected._fields if name not in NO_METRICS}
    assert metrics == {name: value for name, value in expected._asdict().items() if name not in NO_METRICS}
    assert [each["uuid"] for each in found] == [each.uuid for each in machine.gpus]


@pytest.mark.slow
def test_what_a_gpu_does_not_know_is_none_and_not_zero(tmp_path: Path) -> None:
    plain = replace(Ecc(), supported=False), replace(RemappedRows(), supported=False)
    machine = models.machine("a100-40gb", 1).with_gpu(0, ecc=plain[0], remapped_rows=plain[1], mig_enabled=True)
    (found,) = measure(tmp_path, machine)
    unknown = {
        name for name, value in found.items() if value is None and name.startswith(("ecc", "remapped", "gpu", "mem"))
    }
    assert unknown == {
        *(name for name in found if name.startswith(("ecc", "remapped"))),
        "gpu_utilization_percent",
        "memory_utilization_percent",
    }


@pytest.mark.slow
def test_a_driver_that_tells_a_size_of_zero_tells_none(tmp_path: Path) -> None:
    (found,) = measure(tmp_path, models.machine("a100-40gb", 1).with_gpu(0, memory_total=0, memory_reserved=0))
    assert {value for name, value in found.items() if name.startswith("memory_") and name.endswith("_bytes")} == {None}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "fields"),
    [
        pytest.param("nvmlDeviceGetPowerUsage", {"power_usage_mw"}, id="power"),
        pytest.param("nvmlDeviceGetMemoryInfo", {"memory_used_bytes", "memory_total_bytes"}, id="memory"),
        pytest.param("nvmlDeviceGetFieldValues", {"memory_temperature_c", "pcie_replays"}, id="every numbered field"),
    ],
)
def test_a_question_that_fails_takes_no_other_with_it(tmp_path: Path, function: str, fields: set[str]) -> None:
    (found,) = measure(tmp_path, models.machine("a100-40gb", 1).with_failure(function, 999))
    assert {found[name] for name in fields} == {None}
    assert found["sm_clock_mhz"] == 210


@pytest.mark.slow
def test_a_lost_gpu_is_left_out_and_the_others_are_measured(tmp_path: Path) -> None:
    machine = models.machine("a100-40gb", 3).with_gpu_lost(1)
    assert [each["uuid"] for each in measure(tmp_path, machine)] == [machine.gpus[0].uuid, machine.gpus[2].uuid]


@pytest.mark.parametrize(
    ("kind", "member", "status", "value"),
    [
        pytest.param(1, "uiVal", 0, 7, id="unsigned"),
        pytest.param(3, "ullVal", 0, 2**63, id="unsigned long long"),
        pytest.param(5, "siVal", 0, -1, id="signed"),
        pytest.param(0, "dVal", 0, None, id="a float is no whole number"),
        pytest.param(9, "uiVal", 0, None, id="a kind of later"),
        pytest.param(1, "uiVal", 3, None, id="not supported"),
    ],
)
def test_values_of_fields(kind: int, member: str, status: int, value: int | None) -> None:
    union = c_nvmlValue_t()
    setattr(union, member, value or 7)
    assert value_of(SimpleNamespace(valueType=c_uint(kind).value, nvmlReturn=status, value=union)) == value
