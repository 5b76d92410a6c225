"""The node daemon's program sets GPUs; what it refuses is a failure with reasons."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from ansible_collections.grapnel.node.plugins.module_utils.daemon.gpu_settings import (
    GpuSettingsError,
    read_gpu_settings,
    set_gpus,
)
from ansible_collections.grapnel.node.plugins.module_utils.daemon.program import LAUNCHER

from provision.declaration.fleet.facts.mig import GpuSettingsState

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

PLAN = f"{LAUNCHER} gpu-settings plan --json"
APPLY = f"{LAUNCHER} gpu-settings apply --json --timeout 120"


@pytest.fixture
def node(machine: Machine) -> Machine:
    machine.write(LAUNCHER)
    machine.write("/sys/module/nvidia/version", "580.95.05\n")
    return machine


def test_what_was_set_is_told_line_by_line(node: Machine) -> None:
    changed = [{"uuid": "GPU-0a", "step": "powerLimitWatts: 300 W"}]
    node.teach(APPLY, json.dumps({"changed": changed, "problems": []}))
    assert set_gpus(node.host, 120) == ["GPU-0a: powerLimitWatts: 300 W"]


def test_where_no_driver_is_loaded_nothing_is_asked(machine: Machine) -> None:
    assert set_gpus(machine.host, 120) == []


@pytest.mark.parametrize(
    ("return_code", "stdout", "stderr", "words"),
    [
        pytest.param(
            3,
            json.dumps({"changed": [], "problems": ["GPU-0a: powerLimitWatts: it can have 100 W to 400 W"]}),
            "",
            "not set as declared: GPU-0a: powerLimitWatts: it can have 100 W to 400 W",
            id="a value that the gpu cannot have",
        ),
        pytest.param(1, "", "grapnel-node: nvml does not answer", "nvml does not answer", id="a driver that is silent"),
        pytest.param(2, "", "invalid choice: 'gpu-settings'", "too old for settings of GPUs", id="an older daemon"),
        pytest.param(1, "[1]", "so it is", "so it is", id="an answer of another kind"),
    ],
)
def test_a_refusal_is_a_failure_with_its_reason(
    node: Machine, return_code: int, stdout: str, stderr: str, words: str
) -> None:
    node.teach(APPLY, stdout, stderr=stderr, return_code=return_code)
    with pytest.raises(GpuSettingsError, match=words):
        set_gpus(node.host, 120)


# Facts


@pytest.mark.parametrize(
    ("return_code", "stdout", "facts"),
    [
        pytest.param(0, json.dumps({"gpus": [], "missing": []}), {"changes": [], "refusals": []}, id="as declared"),
        pytest.param(
            1,
            json.dumps(
                {
                    "gpus": [
                        {
                            "index": 1,
                            "changes": ["computeMode: DEFAULT"],
                            "refusals": {"powerLimitWatts": "too much"},
                            "problem": "",
                        },
                        {"index": 2, "changes": [], "refusals": {}, "problem": "lost"},
                    ],
                    "missing": [7],
                }
            ),
            {
                "changes": ["GPU 1: computeMode: DEFAULT"],
                "refusals": [
                    "there is no GPU 7",
                    "GPU 1: powerLimitWatts: too much",
                    "GPU 2 does not answer: lost",
                ],
            },
            id="of every kind",
        ),
        pytest.param(1, "", {"error": "nvml hangs"}, id="a driver that is silent"),
        pytest.param(2, "", None, id="an older daemon"),
        pytest.param(
            0,
            json.dumps({"gpus": [1], "missing": []}),
            {"error": "the answer of `grapnel-node gpu-settings plan --json` cannot be read"},
            id="an answer of another kind",
        ),
    ],
)
def test_facts_say_what_is_not_as_declared(node: Machine, return_code: int, stdout: str, facts: object) -> None:
    node.write("/etc/grapnel/gpu-settings.json", "{}")
    node.teach(PLAN, stdout, return_code=return_code, stderr="nvml hangs")
    read = read_gpu_settings(node.host)
    assert read == facts
    if read is not None:
        msgspec.convert(read, GpuSettingsState)


def test_a_node_without_the_file_is_not_asked(node: Machine) -> None:
    assert read_gpu_settings(node.host) is None
