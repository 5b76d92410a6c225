"""A machine that changes while processes use it, and what goes wrong on request."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.nvml import install, install_cuda, models, state
from tests.lab.nvml.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lab.nvml.machine import Machine

UNINITIALIZED, NO_PERMISSION, NOT_LOADED, TIMEOUT, GPU_IS_LOST, MISMATCH, UNKNOWN = 1, 4, 9, 10, 15, 18, 999
REGISTER = "kept.update(set=nvmlEventSetCreate()), [nvmlDeviceRegisterEvents(gpu(i), 8, kept['set']) for i in {}]"
WAIT = "(lambda e: [nvmlDeviceGetIndex(e.device), e.eventType, e.eventData])(nvmlEventSetWait(kept['set'], {}))"


@pytest.mark.slow
def test_a_running_process_sees_the_change(nvml: Client, library: Path) -> None:
    state.update(library, lambda machine: machine.with_gpu(2, temperature=90))
    assert nvml("nvmlDeviceGetTemperature(gpu(2), 0)") == 90


# No GPU is visible, so that each call begins from the start: what it opens is closed again.
INITIALIZE = """
import ctypes, os, sys
cuda = ctypes.CDLL(sys.argv[1])
for _ in range(100000):
    assert cuda.cuInit(0) == 100
    os.closerange(3, 100)
"""


@pytest.mark.slow
def test_cuda_initialises_while_the_machine_changes_all_the_time(library: Path) -> None:
    cuda = install_cuda(library.parent, "550.163.01").parent / "libcuda.so.1"
    command = [sys.executable, "-c", INITIALIZE, str(cuda)]
    with subprocess.Popen(command, env={"CUDA_VISIBLE_DEVICES": "GPU-none"}) as process:
        temperature = 0
        while process.poll() is None:
            temperature = (temperature + 1) % 90
            state.update(library, lambda machine: machine.with_gpu(0, temperature=temperature))  # noqa: B023 - at once
    assert process.returncode == 0


@pytest.mark.slow
def test_a_hard_link_carries_the_same_machine_as_another_version(library: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "libnvidia-ml.so.535.309.01"
    other.parent.mkdir()
    other.hardlink_to(library)
    (other.parent / "libnvidia-ml.so.1").symlink_to(other.name)
    with Client(other) as nvml:
        nvml("nvmlInit()")
        state.update(library, lambda machine: machine.with_gpu(0, utilization=55))
        assert nvml("nvmlSystemGetDriverVersion()") == "535.309.01"
        assert nvml("nvmlDeviceGetUtilizationRates(gpu(0)).gpu") == 55


@pytest.mark.slow
def test_a_state_file_goes_before_the_library_s_own_machine(library: Path, tmp_path: Path) -> None:
    state.write(tmp_path / "state", models.machine("t4", 1))
    with Client(library, state=tmp_path / "state") as nvml:
        nvml("nvmlInit()")
        assert nvml("nvmlDeviceGetName(gpu(0))") == "Tesla T4"


@pytest.mark.slow
def test_a_library_without_a_machine_does_not_initialise(library: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"")
    with Client(library, state=tmp_path / "state") as nvml:
        assert nvml.error("nvmlInit()") == UNKNOWN
        assert nvml.error("nvmlDeviceGetCount()") == UNINITIALIZED


@pytest.mark.slow
def test_a_gpu_that_left_the_machine_is_lost_and_the_others_stay(nvml: Client, library: Path) -> None:
    nvml("kept.update(handles=[gpu(i) for i in range(4)])")
    state.update(library, lambda machine: replace(machine, gpus=machine.gpus[:1] + machine.gpus[2:]))
    assert nvml.error("nvmlDeviceGetUUID(kept['handles'][1])") == GPU_IS_LOST
    assert nvml("nvmlDeviceGetIndex(kept['handles'][2])") == 2


@pytest.mark.slow
def test_a_lost_gpu_fails_every_call_about_it(nvml: Client, library: Path) -> None:
    nvml("kept.update(handle=gpu(1))")
    state.update(library, lambda machine: machine.with_gpu_lost(1))
    assert nvml.error("nvmlDeviceGetMemoryInfo(kept['handle'])") == GPU_IS_LOST
    assert nvml.error("gpu(1)") == GPU_IS_LOST
    assert nvml("nvmlDeviceGetMemoryInfo(gpu(0)).total") > 0


@pytest.mark.slow
def test_a_function_fails_on_request_in_all_its_versions(nvml: Client, library: Path) -> None:
    state.update(library, lambda machine: machine.with_failure("nvmlDeviceGetMemoryInfo", UNKNOWN))
    assert nvml.error("nvmlDeviceGetMemoryInfo(gpu(0))") == UNKNOWN
    assert nvml.error("nvmlDeviceGetMemoryInfo(gpu(0), version=nvmlMemory_v2)") == UNKNOWN
    assert nvml("nvmlDeviceGetUtilizationRates(gpu(0)).gpu") == 0


@pytest.mark.slow
def test_initialising_fails_on_request(put: Callable[[Machine], Path]) -> None:
    with Client(put(models.machine().with_failure("nvmlInit", UNKNOWN))) as nvml:
        assert nvml.error("nvmlInit()") == UNKNOWN


@pytest.mark.slow
def test_an_xid_error_wakes_a_waiting_process(nvml: Client, library: Path) -> None:
    nvml(REGISTER.format("(0, 3)"))
    nvml.send(WAIT.format(30_000))
    state.update(library, lambda machine: machine.with_xid(gpu=3, xid=79))
    assert nvml.receive() == {"value": [3, 8, 79]}


@pytest.mark.slow
def test_events_arrive_once_in_order_and_only_for_registered_gpus(nvml: Client, library: Path) -> None:
    state.update(library, lambda machine: machine.with_xid(gpu=0, xid=13))
    nvml(REGISTER.format("(0, 1)"))
    for gpu, xid in ((0, 31), (2, 48), (1, 63)):
        state.update(library, lambda machine, gpu=gpu, xid=xid: machine.with_xid(gpu, xid))  # type: ignore[misc] # defaults bind the loop's values
    assert [nvml(WAIT.format(1000))[2] for _ in range(2)] == [31, 63]
    assert nvml.error(WAIT.format(1)) == TIMEOUT


@pytest.mark.slow
def test_other_threads_work_while_one_waits(nvml: Client, library: Path) -> None:
    nvml(REGISTER.format("(1,)"))
    nvml("kept.update(pool=__import__('concurrent.futures').futures.ThreadPoolExecutor(1))")
    nvml("kept.update(waiting=kept['pool'].submit(nvmlEventSetWait, kept['set'], 30000))")
    assert nvml("nvmlDeviceGetCount()") == 4
    assert not nvml("kept['waiting'].done()")
    state.update(library, lambda machine: machine.with_xid(gpu=1, xid=48))
    assert nvml("kept['waiting'].result(20).eventData") == 48


@pytest.mark.slow
def test_a_waiting_process_notices_that_waiting_fails(nvml: Client, library: Path) -> None:
    nvml(REGISTER.format("(0,)"))
    nvml.send(WAIT.format(30_000))
    state.update(library, lambda machine: machine.with_failure("nvmlEventSetWait", GPU_IS_LOST))
    assert nvml.receive() == {"error": GPU_IS_LOST}


def _modules(root: Path, version: str | None) -> None:
    """Make what a node has in place of /sys; without a version, no module is loaded."""
    (root / "module").mkdir(parents=True)
    if version:
        (root / "module/nvidia").mkdir()
        (root / "module/nvidia/version").write_text(f"{version}\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loaded", "code"),
    [
        pytest.param(None, NOT_LOADED, id="no module is loaded"),
        pytest.param("535.309.01", MISMATCH, id="another version is loaded"),
    ],
)
def test_initialising_needs_the_right_module(
    loaded: str | None, code: int, tmp_path: Path, put: Callable[[Machine], Path]
) -> None:
    _modules(tmp_path / "sys", loaded)
    with Client(put(replace(models.machine(), module="check", sys_root=str(tmp_path / "sys")))) as nvml:
        assert nvml.error("nvmlInit()") == code


@pytest.mark.slow
def test_initialising_works_with_the_module_of_its_own_version(tmp_path: Path, start: Callable[[Path], Client]) -> None:
    _modules(tmp_path / "sys", "535.309.01")
    machine = replace(models.machine(), module="check", sys_root=str(tmp_path / "sys"))
    assert start(install(tmp_path / "lib", "535.309.01", machine))("nvmlDeviceGetCount()") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module_version", "code"),
    [
        pytest.param("none", NOT_LOADED, id="no module is loaded"),
        pytest.param("535.309.01", MISMATCH, id="another version is loaded"),
    ],
)
def test_where_the_real_sysfs_is_mounted_the_machine_says_what_is_loaded(
    module_version: str, code: int, put: Callable[[Machine], Path]
) -> None:
    """A container of a node mounts its own sysfs, and sees the modules of the real kernel."""
    with Client(put(replace(models.machine(), module="check", module_version=module_version))) as nvml:
        assert nvml.error("nvmlInit()") == code


@pytest.mark.slow
def test_a_module_that_nobody_spoke_of_fits(put: Callable[[Machine], Path], start: Callable[[Path], Client]) -> None:
    assert start(put(replace(models.machine(), module="check")))("nvmlDeviceGetCount()") == 1


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    folder = tmp_path / "dev"
    folder.mkdir()
    return folder


def _checked(dev: Path) -> Machine:
    return replace(models.machine("l4", 4), devices="check", dev_root=str(dev))


@pytest.mark.slow
def test_only_gpus_whose_node_opens_are_there(
    dev: Path, put: Callable[[Machine], Path], start: Callable[[Path], Client]
) -> None:
    machine = _checked(dev)
    for name in ("nvidiactl", "nvidia1", "nvidia3"):
        (dev / name).touch()
    nvml = start(put(machine))
    assert nvml("[nvmlDeviceGetUUID(gpu(i)) for i in range(nvmlDeviceGetCount())]") == [
        machine.gpus[1].uuid,
        machine.gpus[3].uuid,
    ]
    assert nvml("[nvmlDeviceGetMinorNumber(gpu(i)) for i in range(2)]") == [1, 3]


@pytest.mark.slow
def test_nodes_stay_open_from_init_to_shutdown(
    dev: Path, put: Callable[[Machine], Path], start: Callable[[Path], Client]
) -> None:
    for name in ("nvidiactl", "nvidia0"):
        (dev / name).touch()
    nvml = start(put(_checked(dev)))
    nvml("kept.update(glob=__import__('glob').glob)")
    held = f"sorted(p for p in map(os.path.realpath, kept['glob']('/proc/self/fd/*')) if p.startswith('{dev}'))"
    assert nvml(held) == [str(dev / "nvidia0"), str(dev / "nvidiactl")]
    nvml("nvmlShutdown()")
    assert nvml(held) == []


@pytest.mark.slow
def test_without_a_control_node_the_driver_is_not_there(dev: Path, put: Callable[[Machine], Path]) -> None:
    with Client(put(_checked(dev))) as nvml:
        assert nvml.error("nvmlInit()") == NOT_LOADED


@pytest.mark.slow
def test_each_init_needs_its_shutdown(nvml: Client) -> None:
    nvml("nvmlInit(), nvmlShutdown()")
    assert nvml("nvmlDeviceGetCount()") == 4
    nvml("nvmlShutdown()")
    assert nvml.error("nvmlDeviceGetCount()") == UNINITIALIZED
