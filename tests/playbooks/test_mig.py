"""The node daemon's program tells how GPUs are divided, and divides them; what it refuses is a failure with reasons."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from ansible_collections.grapnel.node.plugins.module_utils.daemon.mig import Division, MigError, divide, read_mig
from ansible_collections.grapnel.node.plugins.module_utils.daemon.program import LAUNCHER

from provision.declaration.fleet.facts.mig import MigState

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

SHOW = f"{LAUNCHER} mig show --json"
APPLY = f"{LAUNCHER} mig apply --json --timeout 300"
PLAN = f"{LAUNCHER} mig plan --json --timeout 300"
INSTANCES = [
    {"profile": "1g.10gb", "start": 0, "size": 1, "compute": [1], "holders": []},
    {"profile": "1g.10gb", "start": 1, "size": 1, "compute": [1], "holders": ["pod a/b"]},
    {"profile": "3g.40gb", "start": 4, "size": 4, "compute": [2, 1], "holders": []},
]
GPUS = [
    {"index": 0, "uuid": "GPU-0a", "model": "H100", "migEnabled": True, "migPending": True, "instances": INSTANCES},
    {"index": 1, "uuid": "GPU-1b", "model": "T4", "migEnabled": None, "migPending": None, "instances": []},
]


@pytest.fixture
def node(machine: Machine) -> Machine:
    machine.write(LAUNCHER)
    machine.write("/sys/module/nvidia/version", "580.95.05\n")
    return machine


def answer(*gpus: dict[str, Any]) -> str:
    return json.dumps({"gpus": gpus, "problems": []})


def test_gpus_are_told_by_the_devices_that_they_are_divided_into(node: Machine) -> None:
    node.teach(SHOW, answer(*GPUS))

    facts = read_mig(node.host)

    assert facts == {
        "gpus": [
            {
                "index": 0,
                "uuid": "GPU-0a",
                "device_id": "",
                "subsystem_id": "",
                "enabled": True,
                "devices": {"1g.10gb": 2, "2c.3g.40gb": 1, "1c.3g.40gb": 1},
            },
            {"index": 1, "uuid": "GPU-1b", "device_id": "", "subsystem_id": "", "enabled": None, "devices": {}},
        ]
    }
    assert msgspec.convert(facts, MigState).gpus[0].devices["1g.10gb"] == 2


def test_pci_ids_are_told_where_the_program_does(node: Machine) -> None:
    node.teach(SHOW, answer({**GPUS[1], "pciDeviceId": "0x233010DE", "pciSubsystemId": "0x16C110DE"}))

    found = (read_mig(node.host) or {})["gpus"][0]

    assert (found["device_id"], found["subsystem_id"]) == ("233010de", "16c110de")


@pytest.mark.parametrize("missing", [LAUNCHER, "/sys/module/nvidia/version"])
def test_without_a_program_or_a_driver_nothing_is_told(node: Machine, missing: str) -> None:
    (node.root / missing.lstrip("/")).unlink()

    assert read_mig(node.host) is None
    assert node.calls == []


def test_a_daemon_that_is_older_tells_nothing(node: Machine) -> None:
    node.teach(SHOW, return_code=2, stderr="grapnel-node: error: invalid choice: 'mig'")

    assert read_mig(node.host) is None


SILENT = [
    pytest.param(("", 1, "NVML does not answer"), "NVML does not answer", id="no driver that answers"),
    pytest.param(("{}", 0, ""), "cannot be read", id="no GPUs"),
    pytest.param(("no json", 0, ""), "cannot be read", id="no JSON"),
    pytest.param((answer({"index": 0}), 0, ""), "cannot be read", id="half a GPU"),
    pytest.param(("[]", 0, ""), "cannot be read", id="a list"),
]


@pytest.mark.parametrize(("said", "error"), SILENT)
def test_what_cannot_be_had_or_read_is_an_error_and_no_layout(
    node: Machine, said: tuple[str, int, str], error: str
) -> None:
    node.teach(SHOW, said[0], return_code=said[1], stderr=said[2])

    facts = read_mig(node.host)

    assert facts is not None
    assert error in facts["error"]
    assert "gpus" not in facts


def test_what_was_done_is_told_line_by_line(node: Machine) -> None:
    done = [{"uuid": "GPU-0a", "step": "turn mig mode on"}, {"uuid": "GPU-0a", "step": "create 1g.10gb at 0:1"}]
    left = {"index": 0, "uuid": "GPU-0a", "steps": []}
    node.teach(APPLY, json.dumps({"changed": done, "waiting": {}, "gpus": [left], "notes": []}))

    assert divide(node.host, "apply", 300) == Division(["GPU-0a: turn mig mode on", "GPU-0a: create 1g.10gb at 0:1"])


@pytest.mark.parametrize(("notes", "told"), [(["no node\x1b"], ["no node\\x1b"]), (None, []), ("text", [])])
def test_what_was_noticed_is_told_although_nothing_was_to_do(node: Machine, notes: object, told: list[str]) -> None:
    node.teach(APPLY, json.dumps({"changed": [], "waiting": {}, "gpus": [], "notes": notes}))

    assert divide(node.host, "apply", 300) == Division([], told)


def test_in_check_mode_what_would_be_done_is_told_and_no_failure(node: Machine) -> None:
    node.teach(PLAN, answer({"index": 0, "uuid": "GPU-0a", "steps": ["turn mig mode on"]}), return_code=3)

    assert divide(node.host, "plan", 300).steps == ["GPU-0a: turn mig mode on"]


def test_in_check_mode_a_node_without_the_program_is_no_failure(machine: Machine) -> None:
    assert divide(machine.host, "plan", 300) == Division()


def test_a_gpu_in_use_is_a_failure_that_names_who_uses_it(node: Machine) -> None:
    why = "1g.10gb at 1:1 is used by pod a/b"
    refused = {"index": 3, "uuid": "GPU-3d", "steps": [], "refusal": why, "hint": "drain the node"}
    told = {"changed": [], "waiting": {"GPU-3d": why}, "gpus": [refused], "notes": []}
    node.teach(APPLY, json.dumps(told), return_code=3)

    with pytest.raises(MigError, match=r"GPU-3d: 1g.10gb at 1:1 is used by pod a/b \(drain the node\)"):
        divide(node.host, "apply", 300)


FAILURES = [
    pytest.param(("", 1, "mig-layout.json: version must be 1"), "version must be 1", id="a layout that it refuses"),
    pytest.param(("", 2, "invalid choice: 'mig'"), "too old for MIG layouts", id="an older daemon"),
    pytest.param(("", 124, "took longer than 330 s"), "took longer", id="a driver that hangs"),
    pytest.param(('{"gpus": 3, "waiting": []}', 3, "something"), "something", id="an answer that is none"),
]


@pytest.mark.parametrize(("said", "message"), FAILURES)
def test_each_failure_says_why(node: Machine, said: tuple[str, int, str], message: str) -> None:
    node.teach(APPLY, said[0], return_code=said[1], stderr=said[2])

    with pytest.raises(MigError, match=message):
        divide(node.host, "apply", 300)


def test_without_the_program_it_is_said_what_installs_it(machine: Machine) -> None:
    with pytest.raises(MigError, match=r"site\.yml installs it"):
        divide(machine.host, "apply", 300)
