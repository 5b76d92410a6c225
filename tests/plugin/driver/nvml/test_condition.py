"""Readings and events against the lab's C library. Each case runs in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.nvml import install, models
from lab.nvml.machine import Ecc, Link, Machine, Process, RecoveryAction, RemappedRows
from tests.plugin.driver.nvml.test_library import VERSION, run

if TYPE_CHECKING:
    from pathlib import Path

READ = """
source = NvmlSource()
source.open()
for index, reading in enumerate(source.read_health().values()):
    print(index, reading)
source.close()
"""
PLAIN = models.machine("a100-40gb", 2)


def read(folder: Path, machine: Machine) -> list[str]:
    install(folder, VERSION, machine)
    return run(folder, READ)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"energy_mj": 12}, "energy_mj=12", id="energy"),
        pytest.param({"ecc": Ecc(volatile_corrected=3)}, "volatile_corrected=3", id="corrected errors"),
        pytest.param({"ecc": Ecc(volatile_uncorrected=4)}, "volatile_uncorrected=4", id="uncorrected errors"),
        pytest.param({"ecc": Ecc(aggregate_uncorrected=5)}, "aggregate_uncorrected=5", id="errors of its life"),
        pytest.param({"ecc": Ecc(pending=False)}, "ecc_mode_pending=True", id="another ECC mode"),
        pytest.param({"ecc": Ecc(supported=False)}, "volatile_uncorrected=None", id="no ECC"),
        pytest.param({"remapped_rows": RemappedRows(pending=True)}, "rows_pending=True", id="a pending row"),
        pytest.param({"remapped_rows": RemappedRows(failed=True)}, "rows_failed=True", id="a failed row"),
        pytest.param({"remapped_rows": RemappedRows(supported=False)}, "rows_pending=None", id="no remapping"),
        pytest.param({"links": (Link(), Link(active=False), Link())}, "links_active=2", id="a link that is down"),
        pytest.param({"links": ()}, "links_active=None", id="no NVLink"),
        pytest.param({"mig_enabled": True}, "links_active=None", id="links in MIG mode"),
        pytest.param({"clock_event_reasons": 0x44}, "('power cap', 'thermal slowdown by hardware')", id="slowdowns"),
        pytest.param({"recovery_action": RecoveryAction.DRAIN_AND_RESET}, "recovery_action=4", id="a recovery action"),
        pytest.param({"processes": (Process(1), Process(2, graphics=1))}, "processes=2", id="processes"),
    ],
)
def test_a_reading_has_what_the_gpu_says(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    first, second = read(tmp_path, PLAIN.with_gpu(0, **changes))
    assert said in first
    assert said not in second


@pytest.mark.slow
def test_a_gpu_that_does_not_answer_has_no_reading_and_the_others_have_theirs(tmp_path: Path) -> None:
    assert len(read(tmp_path, PLAIN.with_gpu_lost(0))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("code", [3, 4, 13], ids=["not supported", "no permission", "function not found"])
def test_a_question_that_is_not_answered_is_unknown_and_who_uses_the_gpu_is_not_nobody(
    tmp_path: Path, code: int
) -> None:
    machine = PLAIN.with_failure("nvmlDeviceGetComputeRunningProcesses", code, 0)
    assert "processes=None" in read(tmp_path, machine)[0]


LISTEN = """
import pathlib, threading
from lab.nvml import state
library = pathlib.Path(sys.argv[1]) / "libnvidia-ml.so.550.163.01"
happened = threading.Semaphore(0)
def happen(*xids):
    for gpu, xid in xids:
        state.update(library, lambda machine: machine.with_xid(gpu, xid))
def heard():
    assert happened.acquire(timeout=20)
    print(*((event.device, event.xid) for event in source.take_events()))
happen((0, 13))
source = NvmlSource()
source.open()
source.watch_events(happened.release)
print(source.take_events())
happen((0, 79))
heard()
state.update(library, lambda machine: machine.with_failure("nvmlDeviceGetUUID", 15, 1))
happen((1, 48))
heard()
source.close()
happen((1, 31))
print(source.take_events(), threading.active_count())
"""


@pytest.mark.slow
def test_events_are_heard_from_the_watch_on_each_once_and_also_of_a_gpu_that_has_lost_its_name(tmp_path: Path) -> None:
    install(tmp_path, VERSION, PLAIN)
    first, second = (gpu.uuid for gpu in PLAIN.gpus)
    assert run(tmp_path, LISTEN) == ["()", f"('{first}', 79)", f"('{second}', 48)", "() 1"]


WATCH = """
import threading
listeners = []
class Listener(threading.Thread):
    def start(self):
        listeners.append(self.name)
        super().start()
threading.Thread = Listener
happened = threading.Event()
source = NvmlSource()
source.open()
source.watch_events(happened.set)
print(*listeners)
try:
    if listeners:
        happened.wait(1)
    print(source.take_events())
except DriverNotReady as error:
    print(error.message)
source.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "said"),
    [
        pytest.param(PLAIN.with_gpu_lost(0), ["nvml-events", "()"], id="a lost GPU: the other one is heard"),
        pytest.param(PLAIN.with_failure("nvmlEventSetCreate", 3), ["", "()"], id="a driver without events"),
        pytest.param(
            replace(PLAIN, gpus=PLAIN.gpus[:1]).with_failure("nvmlDeviceRegisterEvents", 3, 0),
            ["", "()"],
            id="a GPU without events",
        ),
        pytest.param(
            PLAIN.with_failure("nvmlEventSetWait", 15),
            ["nvml-events", "nvml has no events: gpu is lost"],
            id="a wait that breaks",
        ),
    ],
)
def test_nobody_waits_where_no_event_can_come_and_a_wait_that_breaks_is_told(
    tmp_path: Path, machine: Machine, said: list[str]
) -> None:
    install(tmp_path, VERSION, machine)
    assert run(tmp_path, WATCH) == said
