"""The NVML seam against the lab's C library: a driver that answers, fails, and is replaced.

Each case runs in a process of its own, as the loader's search path is fixed when a process starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.nvml import install, models
from lab.nvml.machine import Ecc
from plugin.driver.nvml.links import sysfs_address

if TYPE_CHECKING:
    from lab.nvml.machine import Machine

REPOSITORY = Path(__file__).parents[4]
VERSION = "550.163.01"


def run(folder: Path, script: str) -> list[str]:
    preamble = (
        "import sys\nfrom plugin.driver.nvml.loading.library import NvmlSource\n"
        "from plugin.base.errors import DriverNotReady\n"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(folder)}
    command = [sys.executable, "-W", "error", "-c", preamble + script, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


LOOK = """
source = NvmlSource()
source.open()
snapshot = source.snapshot()
source.close()
print(snapshot.driver_version)
for gpu in snapshot.gpus:
    print(gpu.index, gpu.uuid, gpu.minor, gpu.pci_address, gpu.memory_bytes, gpu.model, sep="|")
for lost in snapshot.lost:
    print("lost", lost.index, lost.reason, sep="|")
"""


@pytest.mark.slow
def test_a_snapshot_has_every_gpu(tmp_path: Path) -> None:
    machine = models.machine("a100-40gb", 2)
    install(tmp_path, VERSION, machine)
    expected = [
        f"{index}|{gpu.uuid}|{gpu.minor_number}|{gpu.pci_address}|{gpu.memory_total}|{gpu.name}"
        for index, gpu in enumerate(machine.gpus)
    ]
    assert run(tmp_path, LOOK) == [VERSION, *expected]


DETAILS = """
source = NvmlSource()
source.open()
snapshot = source.snapshot()
source.close()
print(snapshot.cuda_version)
for gpu in snapshot.gpus:
    mig = [f"{device.index}:{device.gpu_instance}:{device.compute_instance}:{device.uuid}" for device in gpu.mig]
    print(gpu.brand, gpu.compute_capability, *mig)
for lost in snapshot.lost:
    print("lost", lost.index)
"""


@pytest.mark.slow
def test_a_snapshot_says_what_the_hook_cannot_read_from_files(tmp_path: Path) -> None:
    machine = models.with_mig(models.machine("a100-40gb", 2), 0, ["3g.20gb", "1g.5gb"])
    install(tmp_path, VERSION, machine)
    named = [f"{mig.index}:{mig.gpu_instance}:{mig.compute_instance}:{mig.uuid}" for mig in machine.gpus[0].migs]
    assert len(named) == 2
    assert run(tmp_path, DETAILS) == ["12.4", f"Nvidia 8.0 {' '.join(named)}", "Nvidia 8.0"]


LABELLED = """
source = NvmlSource()
source.open()
snapshot = source.snapshot()
source.close()
for gpu in snapshot.gpus:
    print(gpu.is_cut, *(f"{mig.profile}:{mig.size and tuple(vars(mig.size).values())}" for mig in gpu.mig), sep="|")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        pytest.param(models.machine("t4", 1), "None", id="without MIG"),
        pytest.param(models.machine("a100-40gb", 1), "False", id="not in MIG mode"),
        pytest.param(models.machine("a100-40gb", 1).with_gpu(0, mig_enabled=True), "True", id="in MIG mode, not cut"),
        pytest.param(
            models.with_mig(models.machine("a100-40gb", 1), 0, ["2g.10gb"]),
            "True|2g.10gb:(9856, 28, 2, 2, 2, 1, 0, 0, 0)",
            id="cut",
        ),
        pytest.param(
            models.with_mig(models.machine("a100-40gb", 1), 0, ["2g.10gb"]).with_failure(
                "nvmlDeviceGetAttributes", 999
            ),
            "True|2g.10gb:None",
            id="cut, of a driver that does not say the size",
        ),
    ],
)
def test_a_snapshot_says_how_a_gpu_is_cut(tmp_path: Path, machine: Machine, expected: str) -> None:
    install(tmp_path, VERSION, machine)
    assert run(tmp_path, LABELLED) == [expected]


@pytest.mark.slow
@pytest.mark.parametrize(
    "question", ["nvmlDeviceGetBrand", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetMigMode"]
)
def test_a_detail_that_cannot_be_had_is_no_loss(tmp_path: Path, question: str) -> None:
    install(tmp_path, VERSION, models.machine("a100-40gb", 1).with_failure(question, 999))
    assert "lost" not in run(tmp_path, DETAILS)[1]


@pytest.mark.slow
def test_a_gpu_that_is_lost_does_not_hide_the_others(tmp_path: Path) -> None:
    install(tmp_path, VERSION, models.machine("a100-40gb", 3).with_gpu_lost(1))
    lines = run(tmp_path, LOOK)
    assert [line.split("|")[0] for line in lines[1:]] == ["0", "2", "lost"]
    assert lines[-1] == "lost|1|gpu is lost"


@pytest.mark.slow
def test_a_question_that_a_gpu_does_not_know_is_no_loss(tmp_path: Path) -> None:
    machine = models.machine("a100-40gb", 1).with_failure("nvmlDeviceGetMemoryInfo", 3)
    install(tmp_path, VERSION, machine)
    assert run(tmp_path, LOOK)[1].split("|")[4] == "None"


REFUSED = """
try:
    NvmlSource().open()
except DriverNotReady as error:
    print(error.message, error.hint, sep="\\n")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        pytest.param(9, "driver not loaded", "modprobe nvidia", id="no module"),
        pytest.param(18, "nvml/rm version mismatch", "reload the module or reboot", id="another module"),
    ],
)
def test_a_driver_that_refuses_is_named_with_a_hint(tmp_path: Path, code: int, message: str, hint: str) -> None:
    machine = models.machine("a100-40gb", 1).with_failure("nvmlInitWithFlags", code).with_failure("nvmlInit", code)
    install(tmp_path, VERSION, machine)
    said = run(tmp_path, REFUSED)
    assert message in said[0]
    assert hint in said[1]


@pytest.mark.slow
@pytest.mark.skipif(find_library("nvidia-ml") is not None, reason="this machine has a libnvidia-ml of its own")
def test_a_library_that_is_not_there_is_named(tmp_path: Path) -> None:
    said = run(tmp_path, REFUSED)
    assert said[0].startswith("nvml does not answer: nvml shared library not found")


@pytest.mark.slow
def test_a_replaced_library_is_the_one_of_the_next_session(tmp_path: Path) -> None:
    install(tmp_path, VERSION, models.machine("a100-40gb", 1))
    script = """
from pathlib import Path
from lab.nvml import install, models
from lab.nvml.machine import Ecc
source = NvmlSource()
for version in ("550.163.01", "560.35.05"):
    install(Path(sys.argv[1]), version, models.machine("a100-40gb", 1))
    source.open()
    print(source.snapshot().driver_version)
    source.close()
source.close()
"""
    assert run(tmp_path, script) == ["550.163.01", "560.35.05"]


@pytest.mark.parametrize(
    ("bus_id", "address"),
    [
        pytest.param("00000000:10:00.0", "0000:10:00.0", id="eight digits of domain"),
        pytest.param("0000:AF:00.0", "0000:af:00.0", id="capitals"),
        pytest.param("00010000:3B:00.0", "10000:3b:00.0", id="a domain of five digits"),
    ],
)
def test_addresses_are_written_as_in_sysfs(bus_id: str, address: str) -> None:
    assert sysfs_address(bus_id) == address


ECC_MODE = """
source = NvmlSource()
source.open()
print(*(gpu.has_ecc for gpu in source.snapshot().gpus))
source.close()
"""


@pytest.mark.slow
def test_a_snapshot_says_whether_ecc_is_on(tmp_path: Path) -> None:
    machine = models.machine("a100-40gb", 3).with_gpu(1, ecc=Ecc(enabled=False)).with_gpu(2, ecc=Ecc(supported=False))
    install(tmp_path, VERSION, machine)
    assert run(tmp_path, ECC_MODE) == ["True False None"]
