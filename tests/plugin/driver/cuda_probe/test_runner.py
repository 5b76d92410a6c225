"""An allocation through libcuda, against the lab's: it works, it fails, it hangs, it lies."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.nvml import install, install_cuda, models
from lab.nvml.machine import CUDA_HANGS, CUDA_WRONG_DATA, Check
from plugin.driver.cuda_probe.runner import PROBE
from tests.plugin.fakes import make_dev
from tests.waiting import wait_until

if TYPE_CHECKING:
    from lab.nvml.machine import Machine

REPOSITORY = Path(__file__).parents[4]
VERSION = "550.163.01"
MACHINE = models.machine("a100-40gb", 3)
UUIDS = [gpu.uuid for gpu in MACHINE.gpus]
# In a process of its own, as the loader's search path is fixed when a process starts.
SCRIPT = """
import json, sys, time
from pathlib import Path
from plugin.driver.cuda_probe.runner import find_libcuda, try_devices
devices, timeout_s, root = json.loads(sys.argv[1])
library = find_libcuda(Path(root))
print(json.dumps(None if library is None else try_devices(devices, library, timeout_s)))
"""


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(folder)}


def try_on(folder: Path, devices: list[str], timeout_s: float = 60.0, root: str = "/") -> Any:
    command = [sys.executable, "-W", "error", "-c", SCRIPT, json.dumps([devices, timeout_s, root])]
    done = subprocess.run(command, env=environment(folder), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def put(folder: Path, machine: Machine) -> None:
    install(folder, VERSION, machine)
    install_cuda(folder, VERSION)


@pytest.mark.slow
def test_memory_of_every_gpu_can_be_used(tmp_path: Path) -> None:
    put(tmp_path, MACHINE)
    assert try_on(tmp_path, UUIDS) == dict.fromkeys(UUIDS, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "code", "problem"),
    [
        pytest.param(
            "cuMemAlloc",
            2,
            "cuMemAlloc fails with CUDA_ERROR_OUT_OF_MEMORY (2): who holds its memory? nvidia-smi",
            id="no memory",
        ),
        pytest.param("cuCtxCreate", 719, "cuCtxCreate fails with an unknown error (719)", id="no context"),
        pytest.param("cuMemcpyHtoD", 999, "cuMemcpyHtoD fails with CUDA_ERROR_UNKNOWN (999)", id="a write that fails"),
        pytest.param("cuMemFree", 999, "cuMemFree fails with CUDA_ERROR_UNKNOWN (999)", id="memory that is not freed"),
        pytest.param(
            "cuMemcpyDtoH",
            CUDA_WRONG_DATA,
            "memory reads back as something else than was written",
            id="memory that lies",
        ),
        pytest.param(
            "*", 15, "cuInit fails with CUDA_ERROR_NO_DEVICE (100): cuda sees no such gpu", id="a gpu that is lost"
        ),
    ],
)
def test_a_gpu_that_fails_is_named_and_the_others_are_not(
    tmp_path: Path, function: str, code: int, problem: str
) -> None:
    put(tmp_path, MACHINE.with_failure(function, code, 1))
    assert try_on(tmp_path, UUIDS) == {UUIDS[0]: "", UUIDS[1]: problem, UUIDS[2]: ""}


@pytest.mark.slow
@pytest.mark.parametrize("function", ["cuInit", "cuMemcpyDtoH"])
def test_a_gpu_that_hangs_is_killed_and_named(tmp_path: Path, function: str) -> None:
    gpu = -1 if function == "cuInit" else 1
    put(tmp_path, MACHINE.with_failure(function, CUDA_HANGS, gpu))
    hangs = "hangs: memory could not be used within 5 s"
    others = hangs if function == "cuInit" else ""
    assert try_on(tmp_path, UUIDS, timeout_s=5) == {UUIDS[0]: others, UUIDS[1]: hangs, UUIDS[2]: others}
    assert processes_of(tmp_path) == []


@pytest.mark.slow
def test_mig_devices_are_tried_each(tmp_path: Path) -> None:
    machine = models.with_mig(MACHINE, 0, ["3g.20gb", "1g.5gb"])
    put(tmp_path, machine)
    devices = [mig.uuid for mig in machine.gpus[0].migs]
    assert try_on(tmp_path, [*devices, UUIDS[0]]) == {
        **dict.fromkeys(devices, ""),
        UUIDS[0]: "cuInit fails with CUDA_ERROR_NO_DEVICE (100): cuda sees no such gpu",
    }


@pytest.mark.slow
def test_a_node_without_libcuda_is_told_from_one_that_fails(tmp_path: Path) -> None:
    install(tmp_path, VERSION, MACHINE)
    assert try_on(tmp_path, UUIDS) is None


@pytest.mark.slow
def test_the_library_below_another_root_is_the_one_that_is_used(tmp_path: Path) -> None:
    put(tmp_path / "usr/lib64", MACHINE)
    assert try_on(tmp_path, UUIDS[:1]) is None
    assert try_on(tmp_path, UUIDS[:1], root=str(tmp_path)) == {UUIDS[0]: ""}


@pytest.mark.slow
def test_a_library_that_is_none_is_a_problem_of_the_gpu(tmp_path: Path) -> None:
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64/libcuda.so.1").write_text("not a library")
    problem = try_on(tmp_path, UUIDS[:1], root=str(tmp_path))[UUIDS[0]]
    assert problem.endswith("/libcuda.so.1: file too short")


@pytest.mark.slow
def test_a_library_of_another_version_than_the_module_is_named(tmp_path: Path) -> None:
    sys_root = tmp_path / "sys"
    (sys_root / "module/nvidia").mkdir(parents=True)
    (sys_root / "module/nvidia/version").write_text("535.309.01\n")
    put(tmp_path, replace(MACHINE, module=Check.CHECK, sys_root=str(sys_root)))
    problem = try_on(tmp_path, UUIDS[:1])[UUIDS[0]]
    assert problem.startswith(
        "cuInit fails with CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): the loaded kernel module is of"
    )


def processes_of(folder: Path) -> list[int]:
    """Return the processes that have the library of a folder mapped."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_mine = str(folder / "libcuda.so") in (process / "maps").read_text()
        except OSError:
            continue  # it ended, or is not ours
        if is_mine:
            found.append(int(process.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
def test_nothing_is_left_of_a_process_that_was_killed_with_its_gpu_open(tmp_path: Path) -> None:
    make_dev(tmp_path / "dev", 3)
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0"):
        (tmp_path / "dev" / name).unlink(missing_ok=True)
        os.mknod(tmp_path / "dev" / name, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    machine = replace(MACHINE, devices=Check.CHECK, dev_root=str(tmp_path / "dev"))
    put(tmp_path, machine.with_failure("cuMemcpyDtoH", CUDA_HANGS, 0))
    command = [sys.executable, "-c", SCRIPT, json.dumps([UUIDS[:1], 60, "/"])]
    with subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.DEVNULL) as verb:

        def holds() -> bool:
            others = [pid for pid in processes_of(tmp_path) if pid != verb.pid]
            return any(
                link.resolve() == tmp_path / "dev/nvidia0"  # a link that is gone meanwhile is no error
                for pid in others
                for link in Path(f"/proc/{pid}").glob("fd/*")
            )

        wait_until(holds, lambda: "no process has the gpu open")
        verb.kill()
    wait_until(lambda: not processes_of(tmp_path), lambda: f"still there: {processes_of(tmp_path)}")


def test_a_process_whose_parent_is_gone_does_nothing(tmp_path: Path) -> None:
    put(tmp_path, MACHINE)
    command = [sys.executable, "-I", "-S", str(PROBE), "libcuda.so.1", "1"]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
