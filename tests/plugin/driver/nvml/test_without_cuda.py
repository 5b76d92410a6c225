"""NVML's sessions and CUDA's library, which the lab's NVML loads and keeps as NVIDIA's does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.nvml import install, install_cuda, models, state
from plugin.driver.nvml.loading.without_cuda import empty_library

REPOSITORY = Path(__file__).parents[4]
NOT_FOUND = 6  # what NVML of driver 580.159.04 answers without a libcuda
MACHINE = models.machine("h100-80gb", 1)
# In a process of its own: what is mapped is a process's, and the loader's search path is fixed when it starts.
SCRIPT = """
import ctypes, json, os, sys
from pathlib import Path
from plugin.driver.nvml.loading.library import NvmlSource
versions, descriptors = [], []
source = NvmlSource()
for step in range(int(sys.argv[1])):
    for name in sys.argv[2:] if step == 1 else ():
        for link in ("libnvidia-ml.so.1", "libcuda.so.1"):
            path = Path(os.environ["LD_LIBRARY_PATH"], link)
            path.unlink()
            path.symlink_to(link.removesuffix("1") + name)
    source.open()
    versions.append(source.snapshot().cuda_version)
    source.close()
    descriptors.append(len(os.listdir("/proc/self/fd")))
maps = Path("/proc/self/maps").read_text()
print(json.dumps([versions, descriptors, [name for name in ("libcuda.so", "libnvidia-ml.so") if name in maps]]))
"""


def sessions(folder: Path, count: int, *versions: str) -> Any:
    """Open so many sessions; before the second one, change to another driver."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(folder)}
    command = [sys.executable, "-c", SCRIPT, str(count), *versions]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_sessions_leave_neither_cuda_nor_descriptors(tmp_path: Path) -> None:
    """Each session left an eventfd: a daemon that waits for a lost GPU ran out of descriptors within a day."""
    install(tmp_path, "580.159.04", MACHINE)
    install_cuda(tmp_path, "580.159.04")
    versions, descriptors, mapped = sessions(tmp_path, 4)
    assert versions == ["13.0"] * 4
    assert len(set(descriptors)) == 1
    assert mapped == []


@pytest.mark.slow
def test_the_cuda_version_is_that_of_the_driver_that_came(tmp_path: Path) -> None:
    """The old libcuda stayed mapped, and told the next driver's NVML its own version."""
    for version in ("580.159.04", "550.163.01"):
        install(tmp_path, version, MACHINE)
        install_cuda(tmp_path, version)
    assert sessions(tmp_path, 2, "580.159.04")[0] == ["12.4", "13.0"]


@pytest.mark.slow
def test_the_cuda_version_comes_from_another_process_where_nvml_does_not_know_it(tmp_path: Path) -> None:
    library = install(tmp_path, "580.159.04", MACHINE)
    install_cuda(tmp_path, "580.159.04")
    state.update(library, lambda machine: machine.with_failure("nvmlSystemGetCudaDriverVersion", NOT_FOUND))
    assert sessions(tmp_path, 1)[0] == ["13.0"]


@pytest.mark.slow
def test_a_driver_without_cuda_has_no_cuda_version(tmp_path: Path) -> None:
    library = install(tmp_path, "580.159.04", MACHINE)
    state.update(library, lambda machine: machine.with_failure("nvmlSystemGetCudaDriverVersion", NOT_FOUND))
    assert sessions(tmp_path, 1)[0] == [""]


@pytest.mark.parametrize("machine", [pytest.param(62, id="x86_64"), pytest.param(183, id="aarch64")])
def test_the_empty_library_is_what_readelf_takes_for_one(tmp_path: Path, machine: int) -> None:
    path = tmp_path / "empty.so"
    path.write_bytes(empty_library(machine))
    shown = subprocess.run(
        ["readelf", "--dynamic", "--program-headers", "--dyn-syms", str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
    )
    assert "Library soname: [libcuda.so.1]" in shown.stdout
    assert "GNU_STACK" in shown.stdout
    assert shown.stderr == ""
