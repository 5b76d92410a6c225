"""NVML's answers that cannot be true: they cost the GPU that they are given of, never another one or the daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.nvml import install, models
from plugin.driver.nvml.loading.trust import without_doubles
from plugin.driver.snapshot import GpuFacts, LostGpu
from tests.plugin.driver.nvml.test_library import LOOK, VERSION, run
from tests.plugin.fakes import gpu, gpus

if TYPE_CHECKING:
    from lab.nvml.machine import Machine

REPOSITORY = Path(__file__).parents[4]
PLAIN = models.machine("a100-40gb", 3)
FIRST = PLAIN.gpus[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_answer_of_the_driver_ends_the_daemon_or_damages_what_it_remembers(tmp_path: Path, seed: int) -> None:
    machine = models.machine("h100-80gb", 3)  # which has GPM; sizes of instances do not matter
    install(tmp_path, VERSION, models.with_mig(machine, 2, ["3g.20gb", "1g.5gb"]))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(tmp_path)}
    command = [sys.executable, "-P", "-m", "tests.plugin.driver.nvml.liar", str(tmp_path), str(seed), "200"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    count, _, uuids = done.stdout.strip().partition(" functions, ")
    assert uuids.split() == sorted(each.uuid for each in PLAIN.gpus), done.stdout
    assert int(count) > 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "said"),
    [
        pytest.param(PLAIN.with_gpu(1, uuid="GPU-x y"), "lost|1|'GPU-x y' is not the uuid of a gpu", id="an odd uuid"),
        pytest.param(PLAIN.with_gpu(1, uuid=""), "lost|1|'' is not the uuid of a gpu", id="no uuid"),
        pytest.param(PLAIN.with_gpu(1, uuid=FIRST.uuid), "lost|1|it has the uuid of gpu 0", id="a uuid twice"),
        pytest.param(
            PLAIN.with_gpu(1, minor_number=0), "lost|1|it has the minor number of gpu 0", id="one node for two"
        ),
        pytest.param(PLAIN.with_failure("nvmlDeviceGetMinorNumber", 999, 1), "lost|1|unknown error", id="no minor"),
    ],
)
def test_a_gpu_of_which_something_impossible_is_said_is_lost_alone(tmp_path: Path, machine: Machine, said: str) -> None:
    install(tmp_path, VERSION, machine)
    lines = run(tmp_path, LOOK)
    assert lines[-1] == said
    assert [line.partition("|")[0] for line in lines[1:-1]] == ["0", "2"]


COUNT = """
import pynvml
pynvml.nvmlDeviceGetCount = lambda: 2**32 - 1
source = NvmlSource()
source.open()
try:
    source.snapshot()
except DriverNotReady as error:
    print(error.message)
source.watch_events(lambda: None)
try:
    source.take_events()
except DriverNotReady as error:
    print(error.message)
source.close()
"""


@pytest.mark.slow
def test_a_count_that_no_machine_has_is_a_driver_that_does_not_answer(tmp_path: Path) -> None:
    install(tmp_path, VERSION, PLAIN)
    said = run(tmp_path, COUNT)
    assert said == [
        "nvml does not answer: it counts 4294967295 gpus",
        "nvml has no events: it counts 4294967295 gpus",
    ]


@pytest.mark.slow
def test_a_driver_of_no_version_does_not_answer(tmp_path: Path) -> None:
    install(tmp_path, VERSION, PLAIN)
    script = """
import pynvml
pynvml.nvmlSystemGetDriverVersion = lambda: "550\\n"
source = NvmlSource()
source.open()
try:
    source.snapshot()
except DriverNotReady as error:
    print(error.message)
source.close()
"""
    assert run(tmp_path, script) == ["nvml does not answer: '550\\n' is not the version of a driver"]


def test_of_gpus_that_claim_to_be_one_the_first_is_kept() -> None:
    answers: list[GpuFacts | LostGpu] = [*gpus(2), LostGpu(2, None, "gpu is lost"), gpu(3, minor=1), gpu(4)]
    kept = without_doubles(answers)
    assert kept == [
        *gpus(2),
        LostGpu(2, None, "gpu is lost"),
        LostGpu(3, gpu(3).uuid, "it has the minor number of gpu 1"),
        gpu(4),
    ]


TURNED_DOWN = """
from lab.nvml import state
from pathlib import Path
from lab.nvml.machine import Link
import dataclasses
library = next(Path(sys.argv[1]).glob("libnvidia-ml.so.5*"))
def turn_down(machine):
    links = machine.gpus[0].links
    return machine.with_gpu(0, links=tuple(dataclasses.replace(link, active=False) for link in links))
looks = []
source = NvmlSource()
source.open()
source.watch_events(lambda: looks.append(1))
def links():
    return [len(gpu.nvlinks) for gpu in source.snapshot().links.gpus]
print(links()); source.read_health()
looks.clear()
state.update(library, turn_down)
print(links())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "happens",
    [
        pytest.param("source.read_health()\nassert looks", id="a reading that has another number"),
        pytest.param(
            "state.update(library, lambda machine: machine.with_xid(1, 74))\nimport time\n"
            "while not looks: time.sleep(0.01)\nprint(source.take_events())",
            id="an error of a link",
        ),
    ],
)
def test_a_link_that_goes_down_is_seen_by_the_next_look_at_the_topology(tmp_path: Path, happens: str) -> None:
    install(tmp_path, VERSION, models.machine("h100-80gb", 2))
    said = run(tmp_path, f"{TURNED_DOWN}\n{happens}\nprint(links())\nsource.close()")
    up = int(said[0].strip("[]").split(", ")[0])
    assert up > 0
    assert (said[1], said[-1]) == (said[0], f"[0, {up}]")
