"""Who works on which GPU, against the lab's C library; in processes of their own, as in `test_library`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.nvml import models
from lab.nvml.machine import MIB, Machine, Process
from tests.plugin.driver.nvml.test_library import install, run
from tests.plugin.fakes import VERSION

if TYPE_CHECKING:
    from pathlib import Path

LOOK = """
from plugin.driver.nvml.instances import read_occupancy
def told(processes):
    return processes and [(each.pid, each.memory_used_bytes) for each in processes]
print(read_occupancy())
source = NvmlSource()
source.open()
found = read_occupancy()
source.close()
for gpu in found:
    print(gpu.uuid, told(gpu.processes), gpu.asked_at_s > 0)
    for instance in gpu.instances:
        print(*instance.device_uuids, told(instance.measured.processes))
"""


@pytest.mark.slow
def test_every_gpu_tells_its_processes_and_one_that_is_cut_those_of_its_parts(tmp_path: Path) -> None:
    machine: Machine = models.with_mig(models.machine("a100-40gb", 2), 1, ["1g.5gb"])
    machine = machine.with_gpu(0, processes=(Process(7, 600 * MIB),))
    install(tmp_path, VERSION, machine)
    first, second = machine.gpus
    assert run(tmp_path, LOOK) == [
        "None",
        f"{first.uuid} [(7, {600 * MIB})] True",
        f"{second.uuid} None True",
        f"{second.migs[0].uuid} ()",
    ]
