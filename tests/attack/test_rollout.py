"""An ordinary user's names in the middle of a rollout: who holds a GPU goes on holding it."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.attack.attacks import HONEST, forged
from tests.attack.stand_ins import CONTROLS, StandIns, recorded
from tests.journey.conftest import Controller

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.functional

APPLY = ["grapnel", "apply", "-i", "inventory.yaml", "--yes", "--no-cluster"]
ENDS = ("waits: a GPU is held by", "swap: ")


def answers(*staged: str) -> dict[str, object]:
    """Return what modules say of a node whose driver is to be exchanged, while a unit of an odd name holds its GPU.

    ``staged`` are ids of driver changes that are ready on the node.
    """
    facts = recorded(HONEST)
    facts["facts"]["module"]["version"] = "535.309.01"
    facts["facts"]["driver"] = {"staged": [{"id": change, "complete": True} for change in staged]}
    released = forged(host=HONEST, daemon={"released": True, "holders": []})
    unit = f"{released}.service"
    line = f"job (pid 7, {unit}) has /dev/nvidia0 open"
    daemon = {"released": True, "holders": [{"pid": 7, "command": "job\x1b[2J", "unit": unit}]}
    said = {"changed": True, "installed": True, "taken": True, "daemon": daemon, "held_by": [line]}
    return {"facts": facts, "daemon": said | {"warnings": [f"a GPU is still held: {line}"]}}


def test_a_unit_s_name_does_not_make_a_held_gpu_a_released_one(tmp_path: Path) -> None:
    controller = Controller(tmp_path)
    controller.declare()
    fleet = StandIns(controller)
    fleet.prepare((), answers())
    [change] = [item["to"] for item in controller.plan_items(HONEST) if item["action"] == "stage"]
    fleet.answers(answers(change))
    fleet.asked(HONEST)

    with subprocess.Popen(
        APPLY,
        cwd=tmp_path,
        env=controller.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        seen = ""
        for line in process.stdout:
            seen += line
            if any(words in line for words in ENDS):
                process.send_signal(signal.SIGINT)
                break
        seen += process.stdout.read()

    assert "waits: a GPU is held by job" in seen
    assert "swap: " not in seen
    assert CONTROLS.findall(seen) == []
    assert [module for module, _ in fleet.asked(HONEST)] == ["facts", "run_lock", "daemon", "run_lock"]
