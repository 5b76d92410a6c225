"""What the kubelet of another node may write beside a Job, on a real API server: none of it is believed."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from provision.apply.runner import RunFinished, RunStatus, TaskDone, TaskOutcome
from provision.controller.jobs import node_run
from provision.controller.jobs.manifest import label_of
from tests.provision.cluster.stage import wait_until
from tests.provision.jobs.kubelet import NAMESPACE, FakeKubelet, make_runner, told
from tests.provision.jobs.test_runner_itself import DONE, lines, request

if TYPE_CHECKING:
    from pathlib import Path

    from provision.apply.runner import Event
    from provision.controller.jobs.runner import JobRunner
    from tests.provision.cluster.stage import Stage

pytestmark = [pytest.mark.functional, pytest.mark.timeout(300)]
_NUMBERS = itertools.count(1)
JOB = "grapnel-fedcba9876543210"


@pytest.fixture
def victim() -> str:
    return f"victim-{next(_NUMBERS)}.example.com"


@pytest.fixture
def other() -> str:
    return f"other-{next(_NUMBERS)}.example.com"


@pytest.fixture
def runner(stage: Stage) -> JobRunner:
    return make_runner(stage, new_name=lambda: JOB)


def create_as_kubelet(stage: Stage, node: str, document: object) -> None:
    """Make an object with the identity of a node's kubelet, which is what root of the node has."""
    stage.kubectl("create", "-f", "-", f"--as=system:node:{node}", "--as-group=system:nodes", data=document)


def mirror_pod(stage: Stage, node: str, job: str, of: str) -> dict[str, object]:
    """Return the mirror of a static pod that calls itself the pod of another node's Job."""
    uid = stage.get("node", node)["metadata"]["uid"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job}-zzzzz",
            "namespace": NAMESPACE,
            "labels": {"job-name": job, "batch.kubernetes.io/job-name": job, "grapnel.dev/node-job": label_of(of)},
            "annotations": {"kubernetes.io/config.mirror": "0123456789abcdef"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "agent", "image": "x"}]},
    }


def test_a_mirror_pod_of_another_node_does_not_speak_for_a_job(
    stage: Stage, runner: JobRunner, tmp_path: Path, victim: str, other: str
) -> None:
    """Its log said that the victim was as declared, and that was believed of the victim."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "other").mkdir()
    honest = FakeKubelet(
        stage, tmp_path / "victim", log=lines("honest")[:1], cut_after=2
    )  # then the pod is looked up again
    forger = FakeKubelet(stage, tmp_path / "other", log=lines("forged"))
    failed = told(*DONE[:2], RunFinished(RunStatus.FAILED, message="what is true"), run="honest")
    events: list[Event] = []
    run = threading.Thread(target=lambda: events.extend(runner.run(request(victim), threading.Event())), daemon=True)
    with honest.running(victim), forger.running(other):
        run.start()
        wait_until(lambda: honest.streams > 0, "the log of the Job's own pod is read")
        create_as_kubelet(stage, other, mirror_pod(stage, other, JOB, victim))
        wait_until(lambda: bool(forger.pods), "the mirror pod runs")
        honest.log = failed
        run.join(100)
    stage.kubectl("delete", "pod", f"{JOB}-zzzzz", "-n", NAMESPACE, "--force")
    assert not run.is_alive()
    (end,) = [each for each in events if isinstance(each, RunFinished)]
    assert (end.status, end.message) == (RunStatus.FAILED, "what is true")
    assert forger.streams == 0


def test_events_that_another_node_writes_about_a_job_of_that_name_are_not_shown(
    stage: Stage, runner: JobRunner, victim: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root of any node could have put words into the row of any other one."""
    monkeypatch.setattr(node_run, "MADE_S", 5.0)
    namespace = f"restricted-{next(_NUMBERS)}"
    stage.kubectl("create", "namespace", namespace)
    stage.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{JOB}.zzz", "namespace": namespace},
        "involvedObject": {"apiVersion": "batch/v1", "kind": "Job", "name": JOB, "namespace": namespace},
        "type": "Warning",
        "reason": "FailedCreate",
        "message": "run this as root: curl example.com",
    }
    create_as_kubelet(stage, other, event)
    elsewhere = replace(runner, kind=replace(runner.kind, namespace=namespace))
    (done,) = [each for each in elsewhere.run(request(victim), threading.Event()) if isinstance(each, TaskDone)]
    assert done.outcome is TaskOutcome.UNREACHABLE
    assert "example.com" not in done.message
    assert 'violates PodSecurity "restricted:latest"' in done.message
