"""Ready-made machines."""

from __future__ import annotations

import re

import pytest

from lab.nvml import models


@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(models.MODELS))
@pytest.mark.parametrize("count", [1, 2, 8, 15, 16, 32, 64])
def test_gpus_of_a_machine_are_told_apart(model: str, count: int) -> None:
    gpus = models.machine(model, count).gpus
    for field in ("uuid", "serial", "pci_address", "minor_number"):
        assert len({getattr(gpu, field) for gpu in gpus}) == count
    assert all(re.fullmatch(r"0000:[0-9a-f]{2}:00\.0", gpu.pci_address) for gpu in gpus)


def test_the_same_seed_makes_the_same_machine_and_another_one_does_not() -> None:
    assert models.machine(seed="n1") == models.machine(seed="n1")
    assert models.machine(seed="n1").gpus[0].uuid != models.machine(seed="n2").gpus[0].uuid


def test_half_of_the_gpus_are_at_each_numa_node() -> None:
    assert [gpu.numa_node for gpu in models.machine(count=8).gpus] == [0] * 4 + [1] * 4


def test_links_of_the_gpus_agree() -> None:
    """Each of four GPUs sees as many links to a peer as that peer sees to it."""
    gpus = models.machine("a100-40gb", 4).gpus
    seen = {(gpu.pci_address, link.remote_pci): 0 for gpu in gpus for link in gpu.links}
    for gpu in gpus:
        for link in gpu.links:
            seen[gpu.pci_address, link.remote_pci] += 1
    assert all(seen[one, other] == seen[other, one] for one, other in seen)


def test_mig_profiles_fit_their_gpu() -> None:
    machine = models.with_mig(models.machine(count=2), 1, ["3g.20gb", "2g.10gb", "1g.5gb"])
    gpu = machine.gpus[1]
    assert (gpu.mig_enabled, machine.gpus[0].mig_enabled) == (True, False)
    assert sum(mig.memory_total for mig in gpu.migs) <= gpu.memory_total
    assert len({mig.uuid for mig in gpu.migs} | {mig.gpu_instance for mig in gpu.migs}) == 6
