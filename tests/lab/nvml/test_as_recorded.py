"""The simulated NVML beside the answers of a real one (`recorded/`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.nvml import install, models
from lab.nvml.machine import MIB

REPOSITORY = Path(__file__).parents[3]
RECORD = Path(__file__).with_name("recorded") / "h100-580.159.04.json"
# Records every function of pynvml before anything of the daemon imports it; what it calls itself does not count.
ASK = """
import json
import pynvml
calls, depth = [], []

def recorded(name, function):
    def call(*arguments):
        depth.append(name)
        code, answer = 0, None
        try:
            answer = function(*arguments)
            return answer
        except pynvml.NVMLError as error:
            code = error.value
            raise
        finally:
            depth.pop()
            if not depth:
                is_plain = isinstance(answer, (int, str, list, tuple)) and not hasattr(answer, "contents")
                plain = json.loads(json.dumps(answer, default=lambda _: None)) if is_plain else None
                calls.append([name, code, plain])
    return call

for name in dir(pynvml):
    function = getattr(pynvml, name)
    if name.startswith("nvml") and callable(function) and not isinstance(function, type):
        setattr(pynvml, name, recorded(name, function))

from plugin.driver.nvml import instances, links, telemetry
from plugin.driver.nvml.changes import compute_mode
from plugin.driver.nvml.changes import gpu_settings
from plugin.driver.nvml.changes import memory_limits
from plugin.driver.nvml.changes import mig_instances
from plugin.driver.nvml.loading.library import NvmlSource

now_s = [0.0]
source, reader, found = NvmlSource(), telemetry.TelemetryReader(lambda: now_s[0]), {}

def take(name, question):
    try:
        question()
    except Exception:
        pass
    found[name] = calls.copy()
    calls.clear()

take("open", source.open)
take("snapshot", source.snapshot)
take("read_health", source.read_health)
take("read_states", source.read_states)
take("listen", source.listen)
take("poll_events", source.poll_events)
take("telemetry", reader.read)
now_s[0] += 0.2  # NVML compares samples that are 0.1 s apart
take("telemetry_again", reader.read)
take("occupancy", instances.read_occupancy)
take("settable", gpu_settings.read_settable)
take("mig_gpus", mig_instances.read_gpus)
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
uuid = pynvml.nvmlDeviceGetUUID(handle)
calls.clear()
take("memory_limit_read", lambda: memory_limits.read_group(uuid, "/sys/fs/cgroup/none"))
take("nvlinks", lambda: links._nvlinks(handle, set()))
take("compute_mode", lambda: compute_mode.read_compute_mode(uuid))
take("close", source.close)
print(json.dumps(found))
"""
# Of (function, code of the real one, code of the simulated one), and why.
KNOWN_CODES = {
    ("nvmlSystemGetCudaDriverVersion_v2", 6, 0): "most tests have no libcuda, so that the lab answers without it",
    ("nvmlDeviceGetMemoryLimits_v1", 13, 3): "one simulated library plays all drivers, so it has all functions",
}
KNOWN_ANSWERS = {
    "nvmlDeviceGetEncoderUtilization": "another sample period",
    "nvmlDeviceGetDecoderUtilization": "another sample period",
}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[Any]]]:
    folder = tmp_path_factory.mktemp("nvml")
    machine = models.machine("h100-80gb", 1)
    assert machine.gpus[0].memory_total == 81_559 * MIB
    install(folder, "580.159.04", machine)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[list[Any]]] = json.loads(done.stdout)
    return found


REAL: dict[str, list[list[Any]]] = json.loads(RECORD.read_text())["calls"]


@pytest.mark.slow
@pytest.mark.parametrize("step", REAL)
def test_it_answers_what_a_real_one_answered(simulated: dict[str, list[list[Any]]], step: str) -> None:
    assert [call[0] for call in simulated[step]] == [call[0] for call in REAL[step]], "the daemon asks something else"
    for real, ours in zip(REAL[step], simulated[step], strict=True):
        name, code, *answer = real
        if ours[1] != code:
            assert (name, code, ours[1]) in KNOWN_CODES
        elif answer and name not in KNOWN_ANSWERS:
            assert [name, ours[2]] == [name, answer[0]]
