"""Capabilities of MIG devices have the numbers that the driver gives them."""

from __future__ import annotations

import pytest

from lab.nodes.mig import capabilities
from lab.nvml.machine import Mig


@pytest.mark.parametrize(
    ("gpu", "mig", "numbers"),
    [
        pytest.param(0, Mig(gpu_instance=0, compute_instance=0), (3, 4), id="the first"),
        pytest.param(0, Mig(gpu_instance=1, compute_instance=2), (12, 15), id="another compute instance"),
        pytest.param(1, Mig(gpu_instance=0, compute_instance=0), (138, 139), id="another gpu"),
    ],
)
def test_every_instance_that_there_can_be_has_a_number(gpu: int, mig: Mig, numbers: tuple[int, int]) -> None:
    instance = f"gpu{gpu}/gi{mig.gpu_instance}"
    names = (f"{instance}/access", f"{instance}/ci{mig.compute_instance}/access")
    assert capabilities(gpu, mig) == dict(zip(names, numbers, strict=True))
