"""A driver of real packages moves through three nodes: a canary, then two that are one domain, of which one fails."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from lab import modules
from lab.nodes import NodeSpec
from lab.nvml import state as nvml_state
from tests.journey.conftest import OLD_VERSION, VERSION, Controller
from tests.journey.dkms import TRIM, stage_item
from tests.journey.test_driver_swap import works_with

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nodes import Node, Site
    from lab.nvml.machine import Machine

# Nine driver changes of DKMS packages on two cores.
pytestmark = [pytest.mark.nodes, pytest.mark.timeout(1500)]

TIMEOUT_S = 900  # of a command: a first installation unpacks a lot, on three nodes at once
CANARY, LEFT, RIGHT = NAMES = ("r1", "r2", "r3")
RACK = """\
rack:
  hosts: {r2: {}, r3: {}}
"""
DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {{version: "{version}", companions: []}}
  runtime: {{enabled: false}}
  rollout:
    maxParallel: 2
    maxUnavailable: 2
    maxFailures: 2
    domains: {{groups: [rack]}}
    waves:
      - {{name: canary, hosts: [r1]}}
      - {{}}
"""
CUDA_OUT_OF_MEMORY = 2


class Fleet:
    """Three nodes and who operates them, from a folder with a declaration."""

    def __init__(self, nodes: dict[str, Node], controller: Controller) -> None:
        self.nodes = nodes
        self.controller = controller

    def declare(self, version: str) -> None:
        """Declare a version, and hand its modules over, so that no node compiles."""
        self.controller.folder.joinpath("grapnel.yaml").write_text(DECLARATION.format(version=version))
        done = self.grapnel("plan", "--json", "--no-cluster")
        assert done.returncode == 0, done.stdout + done.stderr
        for plan in json.loads(done.stdout)["plans"]:
            if any(item["action"] == "stage" for item in plan["items"]):
                node = self.nodes[plan["node"]]
                archive = modules.archive(version, "proprietary", node.kernel_release)
                modules.hand_over(node, stage_item(plan), archive)

    def grapnel(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.controller.run("grapnel", verb, "-i", "inventory.yaml", "-i", "racks.yaml", *words)

    def change(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.grapnel(verb, "--yes", "--no-cluster", *words)

    def records(self) -> dict[str, dict[str, Any]]:
        (path,) = (self.controller.folder / "state" / "grapnel").glob("node-state-*.json")
        return {name: entry["record"] for name, entry in json.loads(path.read_text())["nodes"].items()}

    def assert_has(self, **versions: str) -> None:
        for name, version in versions.items():
            assert works_with(self.nodes[name], version), name


@pytest.fixture(scope="module")
def fleet(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three Debian 13 nodes, brought up side by side, with the older driver."""
    folder: Path = tmp_path_factory.mktemp("rollout")
    nodes = {name: site.up(NodeSpec(name, suite="trixie", gpus=2, builder=True)) for name in NAMES}
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: node.run(["sh", "-e", "-c", TRIM]), nodes.values()))
    folder.joinpath("inventory.yaml").symlink_to(site.inventory_path)
    folder.joinpath("racks.yaml").write_text(RACK)
    made = Fleet(nodes, Controller(folder, timeout_s=TIMEOUT_S))
    made.declare(OLD_VERSION)
    done = made.change("apply")
    assert done.returncode == 0, done.stdout + done.stderr
    yield made
    for name in NAMES:
        site.remove(name)


def fail_with(version: str, machine: Machine) -> Machine:
    """Return a machine whose last GPU is of no use to one version of the driver."""
    return machine.with_failure("cuMemAlloc", CUDA_OUT_OF_MEMORY, len(machine.gpus) - 1, version)


def test_a_domain_of_which_one_node_fails_goes_back_as_one_and_the_canary_stays(fleet: Fleet) -> None:
    fleet.declare(VERSION)
    nvml_state.update(fleet.nodes[RIGHT].nvml_library, lambda machine: fail_with(VERSION, machine))

    done = fleet.change("apply")

    said = " ".join(done.stdout.split())
    assert done.returncode == 1, done.stdout + done.stderr
    records = fleet.records()
    assert {name: one["phase"] for name, one in records.items()} == {
        CANARY: "done",
        LEFT: "returned",
        RIGHT: "returned",
    }, said
    assert records[RIGHT]["failedIn"] in ("swap", "verify")
    assert "memory" in records[RIGHT]["reason"]
    assert records[CANARY]["since"] < min(records[LEFT]["began"], records[RIGHT]["began"])
    fleet.assert_has(r1=VERSION, r2=OLD_VERSION, r3=OLD_VERSION)


def test_when_its_cause_is_gone_the_domain_follows(fleet: Fleet) -> None:
    nvml_state.update(fleet.nodes[RIGHT].nvml_library, lambda machine: machine.without_failures())

    done = fleet.change("apply")

    assert done.returncode == 0, done.stdout + done.stderr
    records = fleet.records()
    assert {one["phase"] for one in records.values()} == {"done"}
    fleet.assert_has(r1=VERSION, r2=VERSION, r3=VERSION)


def test_the_fleet_goes_back_wave_by_wave(fleet: Fleet) -> None:
    done = fleet.change("rollback")

    assert done.returncode == 0, done.stdout + done.stderr
    records = fleet.records()
    assert records[CANARY]["since"] < min(records[LEFT]["began"], records[RIGHT]["began"])
    fleet.assert_has(r1=OLD_VERSION, r2=OLD_VERSION, r3=OLD_VERSION)
