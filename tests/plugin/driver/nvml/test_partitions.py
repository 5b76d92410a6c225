"""MIG devices for claims against the lab's C library, in a process of its own: each has what was published of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.nvml import capabilities, install, models, state

ROOT = Path(__file__).parents[4]
SCRIPT = """
import json, sys
from pathlib import Path
from plugin.base.errors import MigError
from plugin.devices.inventory import Device, HostTree, Inventory
from plugin.dra.devices import mig_capacity
from plugin.dra.gpus.instances import Partitioner
from plugin.dra.partitions import find_partitions
from plugin.driver.nvml.changes import mig_instances
from plugin.driver.nvml.loading.library import NvmlSource

folder = Path(sys.argv[1])
source = NvmlSource()
source.open()
partitioner = Partitioner(folder / "state", mig_instances, HostTree(folder / "dev", folder / "sys", folder / "proc"))
(gpu, *_), facts = mig_instances.read_gpus(), source.snapshot().gpus[0]
offered = find_partitions(Device(facts, "/dev/nvidia0"), Inventory(), gpu, (), {})
different = []
for each in offered:
    uuid = partitioner.make([each.name])[each.name]
    (made,) = source.snapshot().gpus[0].mig
    if made.uuid != uuid or mig_capacity(made.size) != each.capacity:
        different.append([each.name, uuid, str(made.size), str(each.capacity)])
    partitioner.destroy([each.name])
left = len(source.snapshot().gpus[0].mig)
by_hand = mig_instances.create(gpu.uuid, 9, 4, 4)
try:
    partitioner.make([next(each.name for each in offered if each.name.endswith("-9-4"))])
    refused = ""
except MigError as error:
    refused = error.message
first = next(each.name for each in offered if each.name.endswith("-9-0"))
partitioner.make([first])
nodes = sorted(each.name for each in (folder / "dev/nvidia-caps").iterdir())
print(json.dumps({"offered": len(offered), "different": different, "left": left, "refused": refused, "nodes": nodes}))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are root's")
@pytest.mark.parametrize("model", ["a100-40gb", "h100-80gb"])
def test_each_partition_is_made_as_it_was_published_and_what_others_made_stays(tmp_path: Path, model: str) -> None:
    machine = models.machine(model, 1).with_gpu(0, mig_enabled=True, mig_pending=True)
    library = install(tmp_path, "550.163.01", machine)
    capabilities.write(tmp_path / "proc", 1, major=4)
    (tmp_path / "dev").mkdir()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["offered"], said["different"], said["left"]) == (25, [], 0)
    assert "somebody else has made" in said["refused"]
    assert len(said["nodes"]) >= 2
    places = sorted((each.profile, each.placement_start) for each in state.read(library).gpus[0].migs)
    assert [start for _, start in places] == [0, 4]
