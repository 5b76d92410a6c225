"""Debian's real nvidia-smi on the simulated library."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab import bundle
from lab.nvml import install, models, state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lab.nvml.machine import Machine


@pytest.fixture(scope="module", params=["550.163.01", "535.309.01"])
def version(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="module")
def program(version: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack nvidia-smi of a driver version."""
    packages = bundle.ensure("trixie").packages()
    (deb,) = (one.path for one in packages if one.name == "nvidia-smi" and one.upstream_version == version)
    folder = tmp_path_factory.mktemp(version)
    subprocess.run(["dpkg-deb", "-x", str(deb), str(folder)], check=True)
    (program,) = folder.glob("usr/lib/nvidia/*/nvidia-smi")
    return program


@pytest.fixture
def smi(program: Path, version: str, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs nvidia-smi on a machine."""

    def run(machine: Machine, *arguments: str) -> subprocess.CompletedProcess[str]:
        library = install(tmp_path, version, machine)
        env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(library.parent)}
        return subprocess.run([program, *arguments], check=False, capture_output=True, text=True, timeout=30, env=env)

    return run


@pytest.mark.slow
def test_gpus_and_mig_devices_are_listed(smi: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    machine = models.with_mig(models.machine("a100-40gb", 2), 1, ["3g.20gb", "1g.5gb"])
    first, second = machine.gpus
    assert smi(machine, "-L").stdout.splitlines() == [
        f"GPU 0: NVIDIA A100-SXM4-40GB (UUID: {first.uuid})",
        f"GPU 1: NVIDIA A100-SXM4-40GB (UUID: {second.uuid})",
        f"  MIG 3g.20gb     Device  0: (UUID: {second.migs[0].uuid})",
        f"  MIG 1g.5gb      Device  1: (UUID: {second.migs[1].uuid})",
    ]


def test_the_table_has_no_gaps(smi: Callable[..., subprocess.CompletedProcess[str]], version: str) -> None:
    machine = models.machine("h100-80gb", 2).with_gpu(1, temperature=66, utilization=87, power_usage_mw=512_000)
    done = smi(machine)
    assert done.returncode == 0
    assert "ERR" not in done.stdout
    assert f"NVIDIA-SMI {version}" in done.stdout
    assert f"Driver Version: {version}" in done.stdout
    cells = set(done.stdout.split())
    assert {"66C", "87%", "512W", "81559MiB", "00000000:20:00.0"} <= cells


def test_mig_devices_have_their_table(smi: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    table = smi(models.with_mig(models.machine("a100-40gb"), 0, ["7g.40gb"])).stdout
    assert "0MiB / 40192MiB" in table
    assert "No MIG devices found" not in table


def test_values_are_queried_as_csv(smi: Callable[..., subprocess.CompletedProcess[str]], version: str) -> None:
    machine = models.machine("l4")
    fields = "index,uuid,name,memory.total,driver_version,ecc.errors.uncorrected.volatile.total,serial,pci.bus_id"
    gpu = machine.gpus[0]
    assert smi(machine, f"--query-gpu={fields}", "--format=csv,noheader").stdout.strip().split(", ") == [
        *("0", gpu.uuid, "NVIDIA L4", "24576 MiB", version, "0", gpu.serial, "00000000:10:00.0")
    ]


def test_the_full_report_has_no_gaps(smi: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    report = smi(models.machine("a100-40gb", 2), "-q", "-x")
    assert report.returncode == 0
    assert not {"ERR!", "Function Not Found", "Unknown Error"} & set(re.findall(r">([^<]*)</", report.stdout))


def test_nvlink_ends_are_shown(smi: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    links = smi(models.machine("a100-40gb", 2), "nvlink", "-p", "-i", "0").stdout
    assert links.count(": 00000000:20:00.0") == 12


def test_a_lost_gpu_is_reported(smi: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert "GPU is lost" in smi(models.machine(count=2).with_gpu_lost(1), "-L").stdout


@pytest.mark.parametrize(
    ("loaded", "words"),
    [
        pytest.param(
            "none", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver", id="no module"
        ),
        pytest.param("999.1", "Failed to initialize NVML: Driver/library version mismatch", id="other module"),
    ],
)
def test_a_module_that_does_not_fit_is_reported(
    loaded: str, words: str, smi: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = smi(replace(models.machine(), module="check", module_version=loaded), "-L")
    assert words in done.stdout
    assert done.returncode != 0


def test_the_machine_stays_readable_for_the_lab(
    smi: Callable[..., subprocess.CompletedProcess[str]], version: str, tmp_path: Path
) -> None:
    machine = models.machine("t4")
    smi(machine, "-L")
    assert state.read(tmp_path / f"libnvidia-ml.so.{version}") == machine
