"""Jobs, pods and agents are ended by others in the middle of a swap: what the node's own program comes to counts.

`make test` ends one at one step of the program's journal; `make crashes` at every step (``CRASHES=all``).
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e import controller_image, test_controller
from tests.e2e.fleet import DRIVER, driver_state, look, other_version
from tests.e2e.test_controller import POOL, STACK, controller
from tests.e2e.test_controller_upgrade import END_S, declare, is_done, phase_of, status, version_of
from tests.e2e.test_upgrade import CUDA_OUT_OF_MEMORY
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lab.cluster import Cluster
    from tests.e2e.operator import Operator
    from tests.e2e.stage import LabNode, Stage
    from tests.e2e.test_controller import Running

ALL = os.environ.get("CRASHES") == "all"
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(7200 if ALL else 1800)]

cluster = test_controller.cluster
UNIT = "grapnel-driver.service"
NAMESPACE, LABEL = "grapnel-system", "grapnel.dev/node-job"
SWAP, BACK = "swap", "back"
STEPS = [
    *("repair", "check", "mark", "stop-services", "unload", "packages", "files", "hold", "load", "device-nodes", "mig"),
    *("start-services", "inventory", "verify", "adopt", "finish"),
]
POD, DRAIN, JOB, AGENT = "pod", "drain", "job", "agent"
SHARE = [(BACK, "packages", JOB)]  # of a swap, `make test` does the same on an API server alone
WALK = [
    *((SWAP, step, POD) for step in STEPS),
    *((BACK, step, POD) for step in STEPS),
    *((verb, "packages", way) for verb in (SWAP, BACK) for way in (DRAIN, JOB, AGENT)),
]


@pytest.fixture
def node(lab_nodes: tuple[LabNode, ...], stage: Stage, cluster: Cluster, operator: Operator) -> Iterator[LabNode]:
    """A node with the image, in a pool of its own; what is done to it is undone by the operator."""
    node = lab_nodes[0]
    controller_image.load(node)
    cluster.kubectl(["label", "node", node.name, f"{POOL}=a"])
    yield node
    cluster.kubectl(["label", "node", node.name, f"{POOL}-"])
    cluster.kubectl(["annotate", "node", node.name, "grapnel.dev/as-declared-", "grapnel.dev/failed-"])
    version = version_of(stage, lab_nodes[1:])
    node.node.install_module(version)
    operator.declare(version)
    operator.converge(node)
    stage.wait_until_settled(node)


@dataclass(frozen=True)
class Scene:
    """A node that a controller changes, and what helps to see why something did not happen."""

    stage: Stage
    cluster: Cluster
    node: LabNode
    run: Running

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for something while the controller runs."""
        wait_for(what, lambda: self.run.is_there() and condition(), timeout_s=END_S, evidence=self.evidence)

    def evidence(self) -> str:
        shown = self.node.node.run(["/usr/lib/grapnel/driver/grapnel-driver", "status"], check=False).stdout
        told = json.dumps(status(self.cluster), indent=1)
        return "\n".join([told, shown, self.run.log.read_text(), self.stage.evidence(self.node.name)])

    def journals(self) -> set[str]:
        """Return the journals of the runs of the node's program."""
        return {path.name for path in self._folder.glob("*.jsonl")}

    def exchanges(self, before: set[str]) -> list[set[str]]:
        """Return which steps of later runs have exchanged packages; one that finds it done skips them."""
        found = [_steps(self._folder / name, "done") for name in sorted(self.journals() - before)]
        return [packages for steps in found if (packages := {step for step in steps if step.endswith("packages")})]

    @property
    def _folder(self) -> Path:
        return self.node.node.root.joinpath(DRIVER, "journal")

    @contextmanager
    def held_at(self, verb: str, step: str, before: set[str]) -> Iterator[None]:
        """Hold the program of a new run of the verb while inside, from the step on."""

        def is_there() -> bool:
            return (
                any(step in _steps(self._folder / name) for name in self.journals() - before) and self._verb() == verb
            )

        deadline = time.monotonic() + END_S
        while not is_there():  # steps may take milliseconds
            assert time.monotonic() < deadline, f"no {verb} came to its step {step}\n{self.evidence()}"
            self.run.is_there()
            time.sleep(0.005)
        self.node.node.run(["systemctl", "freeze", UNIT], check=False)  # unless it has come to its end
        try:
            yield
        finally:
            self.node.node.run(["systemctl", "thaw", UNIT], check=False)

    def _verb(self) -> str:
        return str(json.loads(self.node.node.root.joinpath(DRIVER, "run.json").read_text())["verb"])

    def cut_off(self, way: str) -> str:
        """End what carries the change out on the node; return the name of its Job."""
        kubectl = self.cluster.kubectl
        (pod,) = [each for each in self._pods() if each["status"]["phase"] == "Running"]
        name = str(pod["metadata"]["name"])
        if way == POD:
            kubectl(["delete", "pod", name, "-n", NAMESPACE])
        elif way == DRAIN:
            options = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=100s"]
            kubectl(["drain", self.node.name, *options])
        elif way == JOB:
            kubectl(["delete", "job", "-l", LABEL, "-n", NAMESPACE])
        else:
            pids = self.node.node.run(["pgrep", "--full", "grapnel agent --request"]).stdout.split()
            self.node.node.run(["kill", f"-{int(signal.SIGKILL)}", *pids])
        return str(pod["metadata"]["ownerReferences"][0]["name"])

    def _pods(self) -> list[dict[str, Any]]:
        found = self.cluster.kubectl(["get", "pods", "-n", NAMESPACE, "-l", LABEL, "-o", "json"])
        pods: list[dict[str, Any]] = json.loads(found)["items"]
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    def told_of(self, job: str) -> bool:
        """Tell whether an Event of the Node names the Job that was ended."""
        events = json.loads(self.cluster.kubectl(["get", "events", "-n", "default", "-o", "json"]))["items"]
        told = [each for each in events if each["reason"] == "GrapnelJobCutOff" and job in each["message"]]
        return any(each["involvedObject"]["name"] == self.node.name for each in told)


def _steps(journal: Path, state: str = "") -> set[str]:
    """Return the steps that a journal names, with ``state`` those that came to it."""
    lines = [json.loads(line) for line in journal.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return {str(line["step"]) for line in lines if state in ("", line["state"])}


def test_what_the_nodes_program_comes_to_counts_whoever_ends_its_job(
    stage: Stage, cluster: Cluster, node: LabNode, tmp_path: Path
) -> None:
    """A pod was deleted in the middle of a good swap, and the node was left in quarantine, without GPUs."""
    declare(cluster, node.module_version())
    with controller(cluster, tmp_path) as run:
        scene = Scene(stage, cluster, node, run)
        scene.wait("the node is as declared", lambda: is_done(cluster, STACK))
        for verb, step, way in WALK if ALL else SHARE:
            (swap_cut_off if verb == SWAP else way_back_cut_off)(scene, step, way)


def swap_cut_off(scene: Scene, step: str, way: str) -> None:
    """Have a driver exchanged, end its Job at a step, and hold the node to the new driver."""
    version, before = begin(scene)
    with scene.held_at(SWAP, step, before):
        job = scene.cut_off(way)
    scene.wait(f"the swap that was cut off ({way}) at {step} is done", lambda: is_done(scene.cluster, STACK))
    state = look(scene.stage, scene.node)
    assert (state.module, state.package, state.phase, state.is_cordoned) == (version, version, "done", False)
    assert scene.exchanges(before) == [{"packages"}], f"it is done once, and not undone\n{scene.evidence()}"
    assert driver_state(scene.node) == "done"
    if way != AGENT:  # its pod goes on, as after a reboot
        scene.wait("people are told of it", lambda: scene.told_of(job))


def way_back_cut_off(scene: Scene, step: str, way: str) -> None:
    """Have a driver fail its verification, end the Job of the way back at a step, and hold the node to its return."""
    former = scene.node.module_version()
    with no_memory(scene.node):
        version, before = begin(scene)
        scene.wait("it goes back", lambda: phase_of(scene.stage, scene.node) == "rollback")
        scene.node.node.install_module(former)  # which is not grapnel's task
    with scene.held_at(BACK, step, before):
        job = scene.cut_off(way)
    scene.wait(f"the way back that was cut off ({way}) at {step} is done", lambda: is_returned(scene))
    state = look(scene.stage, scene.node)
    assert (state.module, state.package, state.is_cordoned) == (former, former, False), scene.evidence()
    assert len(scene.exchanges(before)) == 2, f"one swap, one way back\n{scene.evidence()}"
    if way != AGENT:
        scene.wait("people are told of it", lambda: scene.told_of(job))
    declare(scene.cluster, former)
    scene.wait("it is as declared again", lambda: is_done(scene.cluster, STACK))
    assert version != former


def is_returned(scene: Scene) -> bool:
    phase = phase_of(scene.stage, scene.node)
    assert phase != "failed", scene.evidence()
    return phase == "returned"


def begin(scene: Scene) -> tuple[str, set[str]]:
    """Declare another driver; return it, and the journals of the runs before."""
    version, before = other_version(scene.stage, [scene.node]), scene.journals()
    scene.node.node.install_module(version)
    declare(scene.cluster, version)
    return version, before


@contextmanager
def no_memory(node: LabNode) -> Iterator[None]:
    """Let no memory of the last GPU be had, so that a driver does not pass its verification."""
    last = len(node.uuids) - 1
    node.change_gpus(lambda machine: machine.with_failure("cuMemAlloc", CUDA_OUT_OF_MEMORY, last))
    try:
        yield
    finally:
        node.change_gpus(lambda machine: machine.without_failures())
