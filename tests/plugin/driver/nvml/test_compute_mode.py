"""Compute modes against the lab's C library; in a process of their own, as in `test_library`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.nvml import install, models, state

ROOT = Path(__file__).parents[4]
SCRIPT = """
import json, sys
from plugin.driver.nvml.changes.compute_mode import read_compute_mode, write_compute_mode
from plugin.driver.nvml.loading.library import NvmlSource
from plugin.base.errors import MpsError
source = NvmlSource()
source.open()
uuid, said = source.snapshot().gpus[1].uuid, []
for step in (lambda: read_compute_mode(uuid), lambda: write_compute_mode(uuid, 3), lambda: read_compute_mode(uuid),
             lambda: write_compute_mode(uuid, 9), lambda: read_compute_mode("GPU-of-nobody")):
    try:
        said.append(step())
    except MpsError as error:
        said.append(error.message)
print(json.dumps(said))
"""


@pytest.mark.slow
def test_a_mode_is_set_on_one_gpu_and_read_again(tmp_path: Path) -> None:
    library = install(tmp_path, "550.163.01", models.machine("a100-40gb", 2))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    before, nothing, after, wrong, unknown = json.loads(done.stdout)
    assert (before, nothing, after) == (0, None, 3)
    assert wrong == "its compute mode cannot be set: invalid argument"
    assert unknown == "its compute mode cannot be read: not found"
    assert [gpu.compute_mode for gpu in state.read(library).gpus] == [0, 3]
