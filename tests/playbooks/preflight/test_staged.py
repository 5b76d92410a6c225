"""Staged driver changes and the last run, as facts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.preflight.staged import read_driver_state

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

ID, HALF = "0123456789ab", "ba9876543210"
FOLDER = "/var/lib/grapnel/driver"


def test_staged_changes_the_current_one_and_the_last_run_are_told(machine: Machine) -> None:
    machine.write("/etc/os-release", "ID=debian\n")
    machine.write("/usr/bin/apt-get", mode=0o755)
    machine.write(f"{FOLDER}/staged/{ID}/change.json", json.dumps({"version": "550.163.01"}))
    machine.write(f"{FOLDER}/staged/{ID}/cost.json", json.dumps({"download_s": 3.5, "bytes": 95, "cpu_s": -1, "x": 2}))
    machine.write(f"{FOLDER}/staged/{ID}/complete", "{}")
    machine.write(f"{FOLDER}/staged/{HALF}/change.json", "{")
    machine.write(f"{FOLDER}/staged/.new/change.json", "{}")
    (machine.root / FOLDER.lstrip("/") / "current").symlink_to(f"staged/{ID}")
    machine.write(
        f"{FOLDER}/run.json",
        json.dumps(
            {"run": "r1", "change": ID, "verb": "swap", "state": "returned", "step": "verify", "reason": "a\nb"}
        ),
    )

    assert read_driver_state(machine.host) == {
        "staged": [
            {"id": ID, "version": "550.163.01", "complete": True, "cost": {"download_s": 3.5, "bytes": 95}},
            {"id": HALF, "version": None, "complete": False, "cost": {}},
        ],
        "current": ID,
        "run": {
            "run": "r1",
            "change": ID,
            "verb": "swap",
            "unit": "",
            "step": "verify",
            "state": "returned",
            "reason": "a\\nb",
            "reboot": "",
            "reboot_due": False,
            "out_of_service_s": None,
        },
        "back": None,
        "managed": False,
    }


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"state": "flying"}', '{"state": ["done"]}', '"done"', '{"state": "done", "out_of_service_s": NaN}'],
)
def test_what_is_no_record_of_a_run_does_not_spoil_the_facts(text: str, machine: Machine) -> None:
    machine.write(f"{FOLDER}/run.json", text)

    run = read_driver_state(machine.host)["run"]

    assert run is None or run["out_of_service_s"] is None


def test_a_node_that_the_program_never_ran_on_has_no_state(machine: Machine) -> None:
    assert read_driver_state(machine.host) == {
        "staged": [],
        "current": None,
        "run": None,
        "back": None,
        "managed": False,
    }
