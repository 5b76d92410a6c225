"""What GPM measures, against the lab's C library; in processes of their own, as in `test_library`.

The reader's clock is the test's own. The library's is not, and tells nothing of two samples that are less than 100 ms
apart: `wait` lets both go on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.nvml import install, models
from lab.nvml.machine import Activity

if TYPE_CHECKING:
    from lab.nvml.machine import Machine

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[4]
VERSION = "550.163.01"
NOT_SUPPORTED, NO_PERMISSION, TIMEOUT, FUNCTION_NOT_FOUND, UNKNOWN = 3, 4, 10, 13, 999
PRELUDE = """
import json, sys, time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pynvml

from lab.nvml import install, models, state
from lab.nvml.machine import Activity
from plugin.driver.nvml.loading.library import NvmlSource
from plugin.driver.nvml.telemetry import TelemetryReader

FIELDS = ("graphics", "tensor", "dram"), ("pcie_sent_mib_s", "pcie_received_mib_s")
asked, done = Counter(), Counter()
now_s = 0.0

def watched(name):
    real = getattr(pynvml, name)
    def call(*arguments):
        asked[name] += 1
        answer = real(*arguments)
        done[name] += 1
        return answer
    setattr(pynvml, name, call)

for name in ("QueryDeviceSupport", "SampleAlloc", "SampleFree", "SampleGet", "MigSampleGet", "MetricsGet"):
    watched(f"nvmlGpm{name}")

def change(function):
    state.update(next(Path(sys.argv[1]).glob("libnvidia-ml.so.*.*")), function)

def wait(seconds):
    global now_s
    now_s += seconds
    time.sleep(min(seconds, 0.12))

def values(measured):
    busy = [getattr(measured, f"{name}_active_percent") for name in FIELDS[0]]
    return [*busy, *(getattr(measured, name) for name in FIELDS[1])]

def read():
    return [[values(gpu), *(values(each.measured) for each in gpu.instances)] for gpu in reader.read() or ()]

def lent():
    return done["nvmlGpmSampleAlloc"] - done["nvmlGpmSampleFree"]

reader = TelemetryReader(clock=lambda: now_s)
source = NvmlSource(follower=reader)
source.open()
said = []
"""
POSTLUDE = """
source.close()
said.append(lent())
print(json.dumps(said))
"""
NOTHING: list[float | None] = [None] * 5
BUSY = Activity(graphics=8750, tensor=6125, dram=4200)
SEEN = [87.5, 61.25, 42.0, 100.0, 0.5]


def h100(count: int = 1) -> Machine:
    machine = models.machine("h100-80gb", count)
    for index in range(count):
        machine = machine.with_gpu(index, activity=BUSY, pcie_sent_kib_s=100 * 1024, pcie_received_kib_s=512)
    return machine


def cut(activity: Activity, *more: Activity) -> Machine:
    """Return a machine whose second GPU is cut. The profiles are an A100's: their sizes do not matter here."""
    machine = models.with_mig(h100(2), 1, ["1g.5gb"] * (1 + len(more)))
    migs = zip(machine.gpus[1].migs, (activity, *more), strict=True)
    return machine.with_gpu(1, migs=tuple(replace(mig, activity=each) for mig, each in migs))


def run(folder: Path, machine: Machine, script: str) -> list[Any]:
    """Run a script that appends to `said`; what it lent of the library is all back at the end of the session."""
    install(folder, VERSION, machine)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(folder)}
    command = [sys.executable, "-W", "error", "-c", PRELUDE + script + POSTLUDE, str(folder)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
    *said, lent = json.loads(ended.stdout)
    assert lent == 0, "samples are left at the end of the session"
    return list(said)


def test_the_second_question_is_answered_with_what_was_done_since_the_first(tmp_path: Path) -> None:
    said = run(tmp_path, h100(2), "said.append(read()); wait(15); said.append(read())")
    assert said == [[[NOTHING], [NOTHING]], [[SEEN], [SEEN]]]


def test_one_sample_of_each_gpu_is_kept_and_no_more(tmp_path: Path) -> None:
    said = run(tmp_path, h100(2), "for _ in range(4):\n    read(); wait(15); said.append(lent())")
    assert said == [2, 2, 2, 2]


def test_a_question_too_soon_has_the_answer_of_the_last_one_and_costs_no_sample(tmp_path: Path) -> None:
    script = """
read(); wait(15); read()
change(lambda machine: machine.with_gpu(0, activity=Activity(1, 2, 3)))
wait(0.09)
said += [read(), done["nvmlGpmSampleGet"]]
wait(0.2)
said += [read()[0][0][:3], done["nvmlGpmSampleGet"]]
"""
    assert run(tmp_path, h100(), script) == [[[SEEN]], 2, [0.01, 0.02, 0.03], 3]


def test_what_nobody_asked_about_for_long_is_measured_from_now_on(tmp_path: Path) -> None:
    said = run(tmp_path, h100(), "read(); wait(601); said.append(read()); wait(60); said.append(read())")
    assert said == [[[NOTHING]], [[SEEN]]]


def test_nothing_is_sampled_before_somebody_asks(tmp_path: Path) -> None:
    script = (
        'source.snapshot(); source.close(); source.open(); source.snapshot(); said.append(asked["nvmlGpmSampleGet"])'
    )
    assert run(tmp_path, h100(), script) == [0]


def test_an_older_gpu_is_asked_once_in_a_session(tmp_path: Path) -> None:
    script = """
for _ in range(3):
    said.append(read()); wait(15)
said.append([asked["nvmlGpmQueryDeviceSupport"], asked["nvmlGpmSampleGet"], asked["nvmlGpmSampleAlloc"]])
wait(3600)
source.close(); source.open(); read(); read()
said.append(asked["nvmlGpmQueryDeviceSupport"])
"""
    *measured, calls, of_both = run(tmp_path, models.machine("a100-40gb"), script)
    assert measured == [[[NOTHING]]] * 3
    assert (calls, of_both) == ([1, 0, 0], 2)


@pytest.mark.parametrize(
    ("function", "code", "times"),
    [
        pytest.param("nvmlGpmQueryDeviceSupport", FUNCTION_NOT_FOUND, 1, id="a driver before GPM"),
        pytest.param("nvmlGpmQueryDeviceSupport", NOT_SUPPORTED, 1, id="a gpu before GPM"),
        pytest.param("nvmlGpmQueryDeviceSupport", TIMEOUT, 3, id="no answer is no refusal"),
        pytest.param("nvmlGpmSampleGet", NOT_SUPPORTED, 1, id="no samples of the whole gpu"),
        pytest.param("nvmlGpmSampleGet", NO_PERMISSION, 1, id="counters are forbidden"),
        pytest.param("nvmlGpmSampleGet", UNKNOWN, 3, id="a sample that failed"),
        pytest.param("nvmlGpmSampleAlloc", UNKNOWN, 3, id="no memory for a sample"),
    ],
)
def test_what_is_refused_is_not_asked_again(tmp_path: Path, function: str, code: int, times: int) -> None:
    script = f"for _ in range(3):\n    said.append(read()); wait(15)\nsaid.append(asked[{function!r}])"
    gpu = -1 if function == "nvmlGpmSampleAlloc" else 0
    *measured, asked = run(tmp_path, h100().with_failure(function, code, gpu), script)
    assert (measured, asked) == ([[[NOTHING]]] * 3, times)


def test_what_failed_once_is_measured_over_the_longer_time(tmp_path: Path) -> None:
    script = """
read(); wait(15)
change(lambda machine: machine.with_failure("nvmlGpmSampleGet", 999, 0))
said.append(read()); wait(15)
change(lambda machine: machine.without_failures())
said += [read(), done["nvmlGpmMetricsGet"]]
"""
    assert run(tmp_path, h100(), script) == [[[NOTHING]], [[SEEN]], 1]


def test_instances_have_values_of_their_own_and_no_traffic_of_the_bus(tmp_path: Path) -> None:
    said = run(tmp_path, cut(BUSY, Activity(100, 50, 25)), "read(); wait(15); said.append(read())")
    assert said == [[[SEEN], [SEEN, [*SEEN[:3], None, None], [1.0, 0.5, 0.25, None, None]]]]


def test_an_instance_with_other_mig_devices_is_not_compared_with_the_old_one(tmp_path: Path) -> None:
    script = """
read(); wait(15)
def again(machine):
    old = machine.gpus[1].migs[0]
    return machine.with_gpu(1, migs=(replace(old, uuid=old.uuid[:-4] + "0000"),))
change(again)
said += [read()[1][1], lent()]
wait(15)
said.append(read()[1][1])
wait(590)
read()
said.append(lent())
"""
    first, lent_to_both, second, lent_at_last = run(tmp_path, cut(BUSY), script)
    assert (first, second) == (NOTHING, [*SEEN[:3], None, None])
    assert (lent_to_both, lent_at_last) == (4, 3), "the sample of an instance that is gone is given back in time"


def test_a_gpu_that_falls_off_the_bus_takes_no_other_with_it(tmp_path: Path) -> None:
    script = """
read(); wait(15)
change(lambda machine: machine.with_gpu_lost(0))
said.append(read()); wait(15)
change(lambda machine: machine.without_failures())
said.append(read())
"""
    assert run(tmp_path, h100(2), script) == [[[SEEN]], [[SEEN], [SEEN]]]


def test_a_session_that_begins_between_two_questions_leaves_no_gap(tmp_path: Path) -> None:
    """A missing GPU makes the observer begin a session every few seconds, whatever the others do."""
    script = """
said.append(read()); wait(14)
source.close(); said.append(lent()); source.open()
wait(1); said.append(read())
"""
    assert run(tmp_path, h100(), script) == [[[NOTHING]], 0, [[SEEN]]]


def test_another_driver_is_asked_with_samples_of_its_own(tmp_path: Path) -> None:
    script = """
read(); wait(15); said.append(read())
machine = state.read(next(Path(sys.argv[1]).glob("libnvidia-ml.so.*.*")))
source.close()
install(Path(sys.argv[1]), "570.86.15", machine)
source.open()
said.append(source.snapshot().driver_version)
wait(15); said.append(read())
"""
    assert run(tmp_path, h100(), script) == [[[SEEN]], "570.86.15", [[SEEN]]]


def test_a_driver_that_goes_away_keeps_its_samples_and_the_next_session_works(tmp_path: Path) -> None:
    script = """
read(); wait(15)
change(lambda machine: machine.with_failure("*", 9))
said += [reader.read(), lent()]
source.close()
change(lambda machine: machine.without_failures())
lost = lent()
source.open(); wait(15); said.append(read())
done["nvmlGpmSampleFree"] += lost
"""
    assert run(tmp_path, h100(), script) == [None, 1, [[SEEN]]]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param('float("nan")', id="not a number"),
        pytest.param('float("inf")', id="no end"),
        pytest.param("-0.5", id="less than nothing"),
        pytest.param("1.8e15", id="counters that began again"),
    ],
)
def test_a_number_that_cannot_be_is_none(tmp_path: Path, value: str) -> None:
    script = f"""
real = pynvml.nvmlGpmMetricsGet
def lie(question):
    answer = real(question)
    answer.metrics[1].value = answer.metrics[3].value = {value}
    return answer
pynvml.nvmlGpmMetricsGet = lie
read(); wait(15); said.append(read())
"""
    assert run(tmp_path, h100(), script) == [[[[87.5, None, 42.0, None, 0.5]]]]


def test_a_number_that_fails_takes_no_other_with_it(tmp_path: Path) -> None:
    script = """
real = pynvml.nvmlGpmMetricsGet
def fail(question):
    answer = real(question)
    answer.metrics[0].nvmlReturn = 3
    return answer
pynvml.nvmlGpmMetricsGet = fail
read(); wait(15); said.append(read())
"""
    assert run(tmp_path, h100(), script) == [[[[None, *SEEN[1:]]]]]


def test_a_comparison_that_fails_begins_with_the_newer_sample(tmp_path: Path) -> None:
    script = """
read(); wait(15)
change(lambda machine: machine.with_failure("nvmlGpmMetricsGet", 999))
said += [read(), lent()]
change(lambda machine: machine.without_failures())
wait(15)
said += [read(), lent()]
"""
    assert run(tmp_path, h100(), script) == [[[NOTHING]], 1, [[SEEN]], 1]
