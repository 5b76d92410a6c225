"""Estimates for hosts without the node daemon: brand, compute capability, CUDA version."""

from __future__ import annotations

import pytest

from runtime_hook.host.gpumodels import brand, compute_capability, cuda_version


@pytest.mark.parametrize(
    ("device_id", "capability"),
    [
        pytest.param(0x1DB6, "7.0", id="V100"),
        pytest.param(0x1D01, "6.1", id="GT 1030, below Volta's block"),
        pytest.param(0x15F8, "6.0", id="P100"),
        pytest.param(0x1EB8, "7.5", id="T4"),
        pytest.param(0x20B0, "8.0", id="A100"),
        pytest.param(0x2236, "8.6", id="A10"),
        pytest.param(0x26B9, "8.9", id="L40S"),
        pytest.param(0x2330, "9.0", id="H100"),
        pytest.param(0x2901, "10.0", id="B200"),
        pytest.param(0x3182, "10.3", id="B300"),
        pytest.param(0x2B85, "12.0", id="GeForce RTX 5090"),
        pytest.param(0x0FFE, "", id="Kepler, which no driver of today knows"),
        pytest.param(-1, "", id="no PCI device"),
    ],
)
def test_compute_capability_follows_from_the_chip(device_id: int, capability: str) -> None:
    assert compute_capability(device_id) == capability


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA GeForce RTX 4090", "GeForceRTX"),
        ("NVIDIA GeForce GTX 1080", "GeForce"),
        ("Quadro RTX 8000", "QuadroRTX"),
        ("Quadro P4000", "Quadro"),
        ("NVIDIA TITAN RTX", "TitanRTX"),
        ("NVIDIA TITAN V", "Titan"),
        ("Tesla T4", "Tesla"),
        ("GRID V100-8Q", "GRID"),
        ("NVIDIA RTX A6000", "NvidiaRTX"),
        ("NVIDIA A100-SXM4-40GB", "Nvidia"),
        ("NVIDIA H100 80GB HBM3", "Nvidia"),
        ("Lab GPU", ""),
        ("", ""),
    ],
)
def test_the_brand_stands_in_the_name(model: str, name: str) -> None:
    assert brand(model) == name


@pytest.mark.parametrize(
    ("version", "cuda"),
    [
        ("535.309.01", "12.2"),
        ("550.163.01", "12.4"),
        ("570.86.15", "12.8"),
        ("580.65.06", "13.0"),
        ("999.1", ""),
        ("", ""),
    ],
)
def test_a_branch_of_the_driver_has_one_cuda_version(version: str, cuda: str) -> None:
    assert cuda_version(version) == cuda
