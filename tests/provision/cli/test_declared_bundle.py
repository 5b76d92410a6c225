"""`grapnel plan` for a fleet of which some nodes declare a bundle; Ansible is real, the nodes are stand-ins."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.attack.attacks import HONEST
from tests.attack.stand_ins import StandIns
from tests.journey.conftest import Controller
from tests.provision.apply.test_declared_bundles import write

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.functional

CARRIED = "535.309.01"
DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {version: "550.163.01", kernelModule: none}
  runtime: {enabled: false}
  plugin: {enabled: false}
"""


def declare_bundle(folder: Path, node: str, place: Path) -> None:
    """Have one node served from a bundle, which has another version than the one that is installed."""
    driver = {"version": CARRIED, "source": "bundle", "repository": {"folder": str(place)}}
    (folder / "host_vars").mkdir(exist_ok=True)
    (folder / f"host_vars/{node}.json").write_text(json.dumps({"grapnel_stack": {"driver": driver}}))


def test_each_node_is_planned_from_what_it_declares(tmp_path: Path) -> None:
    operator = Controller(tmp_path)
    fleet = StandIns(operator)
    fleet.prepare((), {}, {"carried": {}, "forgotten": {}})
    tmp_path.joinpath("grapnel.yaml").write_text(DECLARATION)
    declare_bundle(tmp_path, "carried", write(tmp_path / "bundle", CARRIED))
    declare_bundle(tmp_path, "forgotten", tmp_path / "away.bundle")

    done = operator.grapnel("plan", "--json", "--no-cluster")

    plans: dict[str, Any] = {plan["node"]: plan for plan in json.loads(done.stdout)["plans"]}
    problems = {node: [(one["code"], one["hint"]) for one in plan["problems"]] for node, plan in plans.items()}
    assert problems[HONEST] == []
    ((code, hint),) = problems["carried"]
    assert code in {"version-not-available", "driver-closure-incomplete"}, "of all packages it has one alone"
    assert f"the bundle has for debian-13: {CARRIED} (proprietary)" in hint
    assert [code for code, _ in problems["forgotten"]] == ["bundle-not-usable"]
    assert {node: refreshed(fleet, node) for node in plans} == {
        HONEST: [True],
        "carried": [False],
        "forgotten": [False],
    }


def refreshed(fleet: StandIns, node: str) -> list[bool]:
    """Return, for each time that facts were gathered, whether package lists were to be refreshed."""
    asked: list[Any] = [given for module, given in fleet.asked(node) if module == "facts"]
    return [given["ANSIBLE_MODULE_ARGS"]["refresh"] for given in asked]
