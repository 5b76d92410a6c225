"""Another driver version is declared: `grapnel apply` takes the nodes there one by one, and no work is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from bench.stage.runs import read_runs
from tests.e2e.api import is_ready
from tests.e2e.fleet import (
    NodeState,
    declare,
    driver_state,
    driver_step,
    look,
    look_at_all,
    other_version,
    staged_at,
)
from tests.e2e.manifests import TEST, container, deployment, disruption_budget
from tests.e2e.operator import PERSON
from tests.e2e.replicas import watched
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.e2e.operator import Operator
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

# Seven of twelve GPUs: what is evicted from one node finds room on the others.
WORK = {"wide": (3, 1, 2), "deep": (2, 2, 1)}  # replicas, GPUs of each, replicas that the budget wants
DRIVER_VERSION = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
CUDA_OUT_OF_MEMORY = 2
GPU_LIST = "etc/gpusim/gpus"
WHY = "the first node is looked at"


@pytest.fixture
def person(operator: Operator, lab_nodes: tuple[LabNode, ...]) -> Iterator[Operator]:
    """Who asks something of an upgrade; the next test finds none of it."""
    yield operator
    operator.tell("resume")
    operator.tell("skip", "--undo", *(node.name for node in lab_nodes))


def test_deployments_live_through_an_upgrade(
    room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...], person: Operator, tmp_path: Path
) -> None:
    """It is paused meanwhile, a node is skipped, and it is resumed, by other processes."""
    first, skipped, *others = lab_nodes
    start_work(room)
    before, version = look_at_all(stage, lab_nodes), other_version(stage, lab_nodes)
    declare(stage, lab_nodes, version)
    artifacts, output = tmp_path / "artifacts", tmp_path / "output"

    with watched(room) as ledger:
        with person.applying(output, "--keep-artifacts", str(artifacts)) as apply:
            pause_in_the_middle(person, stage, first, apply)
            assert_untouched(stage, (skipped, *others), before)
            assert f"{skipped.name}: is skipped: no upgrade begins on it" in person.tell("skip", skipped.name)
            assert f"go on; they were paused by {PERSON}@" in person.tell("resume")
            wait_for("apply has ended", lambda: apply.poll() is not None, timeout_s=240, evidence=room.evidence)
        assert apply.returncode == 0, output.read_text()
        assert re.search(rf"^{skipped.name} +skipped ", output.read_text(), re.MULTILINE), output.read_text()
        assert states(person, code=0) == {node.name: "skipped" if node is skipped else "done" for node in lab_nodes}
        assert_untouched(stage, (skipped,), before)
        person.tell("skip", "--undo", skipped.name)
        done = person.apply("--keep-artifacts", str(artifacts))

    assert done.returncode == 0, done.stdout
    assert {app: ledger.least[app] >= WORK[app][2] for app in WORK} == dict.fromkeys(WORK, True), ledger.least
    assert sum(len(names) for names in ledger.seen.values()) > sum(replicas for replicas, _, _ in WORK.values())
    for node in lab_nodes:
        assert_in_service(stage, node, version)
        assert look(stage, node).boot == before[node.name].boot
    for name in wait_for_work(room):
        assert set(room.api.run_in(room.name, name, "main", DRIVER_VERSION).split()) == {version}
    assert max(map(staged_at, lab_nodes)) < min(out_of_service_since(stage, node) for node in lab_nodes)
    runs = read_runs(artifacts)
    for node in lab_nodes:  # the driver is verified in the run that swaps it
        out = [run.playbook for run in runs if run.node == node.name and run.playbook != "stage"]
        assert out == ["release", "apply", "resume"]


@pytest.mark.long
def test_a_rollout_that_was_killed_goes_on_and_stops_at_each_node_that_fails(
    room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...], operator: Operator
) -> None:
    first, second, third, *others = lab_nodes
    before, version = look_at_all(stage, lab_nodes), other_version(stage, lab_nodes)
    declare(stage, lab_nodes, version)

    kill_apply(operator, stage, first)
    wait_for("the swap ends by itself", lambda: driver_state(first) == "done", evidence=lambda: driver_step(first))
    killed = look(stage, first)
    assert (killed.phase, killed.is_cordoned, killed.package) == ("swap", True, version)
    assert_untouched(stage, (second, third, *others), before)

    start_work(room)
    with no_memory_on_the_last_gpu(second):
        stopped = operator.apply()
    assert stopped.returncode == 1, stopped.stdout
    assert_in_service(stage, first, version)
    failed = look(stage, second)
    assert (failed.phase, failed.is_cordoned) == ("failed", True)
    assert '"failedIn":"rollback"' in failed.record.replace(" ", "")  # the former module is no longer on its disk
    assert "verify failed: " in failed.record
    assert second.name in stopped.stdout
    assert second.uuids[-1] in failed.record, failed.record
    assert states(operator, code=1) == {
        first.name: "done",
        second.name: "failed-in-rollback",
        third.name: "not-begun",
    } | {node.name: "not-begun" for node in others}
    assert_untouched(stage, (third, *others), before)

    with one_gpu_less_after_the_next_load(third):
        stopped = operator.apply()
    assert stopped.returncode == 1, stopped.stdout
    assert_in_service(stage, second, version)
    assert look(stage, second).boot == before[second.name].boot
    failed = look(stage, third)
    assert (failed.phase, failed.is_cordoned) == ("failed", True)
    assert '"failedIn":"rollback"' in failed.record.replace(" ", "")
    assert "swap failed: " in failed.record
    assert "nvidia-smi lists 3 GPUs, 4 are on the PCI bus" in failed.record
    assert (failed.module, failed.package) == (version, version)  # the former module is no longer on its disk
    assert third.name in stopped.stdout
    assert_untouched(stage, others, before)

    third.node.reboot()  # with the GPU in its place again
    stage.wait_until_booted(third)
    finished = operator.apply()
    assert finished.returncode == 0, finished.stdout
    for node in lab_nodes:
        assert_in_service(stage, node, version)


def pause_in_the_middle(operator: Operator, stage: Stage, node: LabNode, apply: subprocess.Popen[str]) -> None:
    """Pause while a node is out of service; return when it is back, and all others wait for the end of the pause."""

    def is_out() -> bool:
        assert apply.poll() is None, f"apply has ended with {apply.returncode}"
        return bool(stage.api.node(node.name).spec.unschedulable)

    wait_for(f"{node.name} is out of service", is_out, timeout_s=120, evidence=lambda: stage.evidence(node.name))
    assert f"are paused by {PERSON}@" in operator.tell("pause", "--reason", WHY)

    def told() -> dict[str, tuple[str, str]]:
        nodes = json.loads(operator.status("--json").stdout)["nodes"]
        return {each["name"]: (each["state"], each["reason"]) for each in nodes}

    def waits_for_resume(state: str, reason: str) -> bool:
        return state == "waiting" and reason.startswith(f"paused by {PERSON}@")

    def are_held() -> bool:
        others = told()
        return others.pop(node.name)[0] == "done" and all(waits_for_resume(*each) for each in others.values())

    wait_for("all others wait for the end of the pause", are_held, timeout_s=120, evidence=lambda: str(told()))
    shown = operator.status()
    assert shown.returncode == 1
    words = " ".join(shown.stdout.split())
    assert f"paused by {PERSON}@" in words
    assert f"UTC: {WHY}; `grapnel resume" in words


def states(operator: Operator, *, code: int) -> dict[str, str]:
    """Return what `grapnel status` says of each node, and hold it to an exit code."""
    told = operator.status("--json")
    assert told.returncode == code, told.stdout
    document = json.loads(told.stdout)
    assert document["engine"] is None, "the lease was given back"
    return {node["name"]: node["state"] for node in document["nodes"]}


def start_work(room: Room) -> None:
    """Start deployments that hold their GPUs, with a budget each, and wait until all of it is in service."""
    for name, (replicas, gpus, wanted) in WORK.items():
        hold = container(image=TEST, command=["gpu-test", "hold"], gpus=gpus)
        room.start(deployment(name, replicas, hold), disruption_budget(name, min_available=wanted))
    wait_for_work(room)


def wait_for_work(room: Room) -> list[str]:
    """Wait until every replica is in service; return the pods' names."""

    def ready() -> list[str] | None:
        names = [pod.metadata.name for pod in room.api.pods(room.name) if is_ready(pod)]
        return names if len(names) == sum(replicas for replicas, _, _ in WORK.values()) else None

    return wait_for("the deployments are complete", ready, evidence=room.evidence)


def assert_in_service(stage: Stage, node: LabNode, version: str) -> None:
    """Hold a node to being upgraded and back in service."""
    stage.wait_until_settled(node)
    state = look(stage, node)
    assert (state.module, state.package) == (version, version)
    assert (state.phase, state.is_cordoned) == ("done", False)


def assert_untouched(stage: Stage, nodes: Sequence[LabNode], before: dict[str, NodeState]) -> None:
    """Hold nodes to being as they were, record and cordon included."""
    assert look_at_all(stage, nodes) == {node.name: before[node.name] for node in nodes}


def out_of_service_since(stage: Stage, node: LabNode) -> datetime:
    """Return when a node's upgrade has begun."""
    return datetime.fromisoformat(json.loads(look(stage, node).record)["began"])


def kill_apply(operator: Operator, stage: Stage, node: LabNode) -> None:
    """Start an apply, and kill it without a warning in the middle of a node's exchange."""
    with subprocess.Popen(
        operator.apply_command(),
        cwd=operator.folder,
        env=operator.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as apply:
        try:
            wait_for(
                f"packages are exchanged on {node.name}",
                lambda: driver_step(node) == "packages",
                timeout_s=120,
                evidence=lambda: stage.evidence(node.name),
            )
        finally:
            os.kill(apply.pid, signal.SIGKILL)


@contextmanager
def no_memory_on_the_last_gpu(node: LabNode) -> Iterator[None]:
    """Let a GPU of a node be there and be of no use: it is found, and no memory of it can be had."""
    last = len(node.uuids) - 1
    node.change_gpus(lambda machine: machine.with_failure("cuMemAlloc", CUDA_OUT_OF_MEMORY, last))
    try:
        yield
    finally:
        node.change_gpus(lambda machine: replace(machine, failures=()))


@contextmanager
def one_gpu_less_after_the_next_load(node: LabNode) -> Iterator[None]:
    """Let the module find one GPU less when it is loaded next, as after a bad contact."""
    path = node.node.root / GPU_LIST
    whole = path.read_text()
    path.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    try:
        yield
    finally:
        path.write_text(whole)
