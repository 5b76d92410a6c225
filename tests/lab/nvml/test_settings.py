"""Settings of GPUs through the simulated NVML: their limits, what has none, and what a reload of the module forgets."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.nvml import install, models, state
from tests.lab.nvml.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nvml.machine import Gpu

INVALID_ARGUMENT, NOT_SUPPORTED = 2, 3
SET = (
    "nvmlDeviceSetPersistenceMode(gpu(0), 1)",
    "nvmlDeviceSetComputeMode(gpu(0), 3)",
    "nvmlDeviceSetPowerManagementLimit(gpu(0), 300000)",
    "nvmlDeviceSetGpuLockedClocks(gpu(0), 900, 1200)",
    "nvmlDeviceSetMemoryLockedClocks(gpu(0), 1215, 1215)",
)


def settings(gpu: Gpu) -> tuple[int, ...]:
    return (
        *(int(gpu.persistence_mode), gpu.compute_mode, gpu.power_limit_mw),
        *(gpu.clock_sm_locked_min, gpu.clock_sm_locked_max),
        *(gpu.clock_memory_locked_min, gpu.clock_memory_locked_max),
    )


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return install(tmp_path / "lib", "550.163.01", models.machine("a100-40gb", 2))


@pytest.fixture
def client(library: Path) -> Iterator[Client]:
    with Client(library) as child:
        child("nvmlInit()")
        yield child


def test_what_is_set_of_one_gpu_is_told_again_and_others_keep_theirs(library: Path, client: Client) -> None:
    before = settings(state.read(library).gpus[1])
    for call in SET:
        client(call)
    assert client("nvmlDeviceGetPowerManagementLimit(gpu(0))") == 300_000
    assert client("nvmlDeviceGetComputeMode(gpu(0))") == 3
    first, second = state.read(library).gpus
    assert settings(first) == (1, 3, 300_000, 900, 1200, 1215, 1215)
    assert settings(second) == before


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("nvmlDeviceSetPowerManagementLimit(gpu(0), 99999)", id="power below the least"),
        pytest.param("nvmlDeviceSetPowerManagementLimit(gpu(0), 400001)", id="power above the most"),
        pytest.param("nvmlDeviceSetGpuLockedClocks(gpu(0), 1200, 900)", id="clocks the wrong way round"),
        pytest.param("nvmlDeviceSetGpuLockedClocks(gpu(0), 900, 9000)", id="a clock that the gpu has not"),
        pytest.param("nvmlDeviceSetMemoryLockedClocks(gpu(0), 1, 9000)", id="a memory clock that it has not"),
        pytest.param("nvmlDeviceSetComputeMode(gpu(0), 4)", id="a compute mode that there is not"),
    ],
)
def test_what_the_gpu_cannot_have_is_an_invalid_argument(client: Client, call: str) -> None:
    assert client.error(call) == INVALID_ARGUMENT


def test_clocks_go_back_to_what_they_were(library: Path, client: Client) -> None:
    for call in SET:
        client(call)
    client("nvmlDeviceResetGpuLockedClocks(gpu(0))")
    client("nvmlDeviceResetMemoryLockedClocks(gpu(0))")
    assert settings(state.read(library).gpus[0])[3:] == (0, 0, 0, 0)


def test_older_gpus_lock_no_clocks(tmp_path: Path) -> None:
    library = install(tmp_path / "lib", "550.163.01", models.machine("t4"))
    with Client(library) as client:
        client("nvmlInit()")
        client("nvmlDeviceSetGpuLockedClocks(gpu(0), 300, 600)")
        assert client.error("nvmlDeviceSetMemoryLockedClocks(gpu(0), 405, 5001)") == NOT_SUPPORTED


def test_a_gpu_in_mig_mode_is_not_exclusive_to_a_process(client: Client) -> None:
    client("nvmlDeviceSetMigMode(gpu(0), 1)")
    assert client.error("nvmlDeviceSetComputeMode(gpu(0), 3)") == NOT_SUPPORTED


def test_a_reload_forgets_the_settings_of_all_gpus(tmp_path: Path, library: Path) -> None:
    module = tmp_path / "sys/module/nvidia"
    module.mkdir(parents=True)
    (module / "version").write_text("550.163.01\n")
    state.update(library, lambda machine: replace(machine, sys_root=str(tmp_path / "sys")))
    with Client(library) as client:
        client("nvmlInit()")
        for call in SET:
            client(call)
            client(call.replace("gpu(0)", "gpu(1)"))
    os.utime(module / "version", ns=(1, 1))
    with Client(library) as client:
        client("nvmlInit()")
        assert client("nvmlDeviceGetPowerManagementLimit(gpu(1))") == 400_000
        client(SET[2])
        assert client("nvmlDeviceGetPowerManagementLimit(gpu(0))") == 300_000
    first, second = state.read(library).gpus
    assert settings(first) == (0, 0, 300_000, 0, 0, 0, 0)
    assert settings(second) == (0, 0, 400_000, 0, 0, 0, 0), "what was forgotten does not come back"
