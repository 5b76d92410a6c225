"""Jobs, pods and agents that somebody ends, on a real API server: none of it is the end of a run on a node."""

from __future__ import annotations

import itertools
import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from provision.apply.runner import CutOff, RunFinished, RunStatus, TaskDone, TaskOutcome
from provision.controller.jobs import node_run
from provision.controller.jobs.manifest import label_of
from tests.provision.cluster.stage import wait_until
from tests.provision.jobs import kubelet as kubelets
from tests.provision.jobs.kubelet import NAMESPACE, FakeKubelet, make_runner
from tests.provision.jobs.test_runner_itself import DONE, lines, request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from provision.apply.runner import Event
    from provision.controller.jobs.runner import JobRunner
    from tests.provision.cluster.stage import Stage

pytestmark = [pytest.mark.functional, pytest.mark.timeout(300)]
_NUMBERS = itertools.count(1)
JOB = "grapnel-0123456789abcdef"


@pytest.fixture
def node() -> str:
    return f"cut-{next(_NUMBERS)}.example.com"


@pytest.fixture
def runner(stage: Stage) -> JobRunner:
    return make_runner(stage, new_name=lambda: JOB)


@pytest.fixture
def kubelet(stage: Stage, tmp_path: Path) -> FakeKubelet:
    """A node on which a first agent has told the beginning of its run."""
    return FakeKubelet(stage, tmp_path, log=lines("first")[:1], next_log=lines("second"))


@contextmanager
def at_work(runner: JobRunner, kubelet: FakeKubelet, node: str) -> Iterator[list[Event]]:
    """Have a run at work while inside; afterwards it has come to its end. Yields what it has told."""
    events: list[Event] = []
    run = threading.Thread(target=lambda: events.extend(runner.run(request(node), threading.Event())), daemon=True)
    with kubelet.running(node):
        run.start()
        wait_until(lambda: kubelet.streams > 0, "its log is read")
        yield events
        run.join(100)
        assert not run.is_alive()


def pod_of(kubelet: FakeKubelet) -> str:
    return str(kubelet.pods[-1]["metadata"]["name"])


def told(events: list[Event]) -> tuple[RunStatus, list[str]]:
    """Return how a run ended, and what people were told of what was cut off."""
    (end,) = [each for each in events if isinstance(each, RunFinished)]
    return end.status, [each.message for each in events if isinstance(each, CutOff)]


def unreachable(events: list[Event]) -> str:
    (done,) = [each for each in events if isinstance(each, TaskDone)]
    assert done.outcome is TaskOutcome.UNREACHABLE, "it is tried again, and taken for no failure"
    return done.message


def cut_off(why: str, after: str = "and the Job's next pod waits for it") -> str:
    return f"Job {JOB} was cut off ({why}): what it had begun on the node goes on there, {after}"


def test_a_pod_that_is_deleted_is_followed_by_another_one(
    stage: Stage, runner: JobRunner, kubelet: FakeKubelet, node: str
) -> None:
    """The agent told that its run was canceled, and that was taken for its end: a good swap was rolled back."""
    with at_work(runner, kubelet, node) as events:
        stage.kubectl("delete", "pod", pod_of(kubelet), "-n", NAMESPACE, "--wait=false")
    assert told(events) == (RunStatus.SUCCESSFUL, [cut_off("its pod was deleted")])
    assert len(kubelet.pods) == 2


def test_a_pod_that_is_evicted_is_followed_by_another_one(
    stage: Stage, runner: JobRunner, kubelet: FakeKubelet, node: str
) -> None:
    """An administrator drained the node in the middle of its swap."""
    kubelet.keeps = True  # so that its condition can be seen
    with at_work(runner, kubelet, node) as events:
        name = pod_of(kubelet)
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": NAMESPACE},
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
        stage.kubectl("create", "--raw", path, "-f", "-", data=eviction)
        kubelet.end(name)  # not before: who looks then would see that it has ended, and not why
        kubelet.keeps = False
    status, words = told(events)
    assert status is RunStatus.SUCCESSFUL
    assert len(words) == 1
    assert words[0].startswith(f"Job {JOB} was cut off (its pod was ")


def test_a_pod_that_its_node_has_shut_down_is_followed_by_another_one(
    runner: JobRunner, kubelet: FakeKubelet, node: str
) -> None:
    with at_work(runner, kubelet, node) as events:
        kubelet.end(
            pod_of(kubelet), reason="Terminated", message="Pod was terminated in response to imminent node shutdown."
        )
    why = "its pod was ended: Pod was terminated in response to imminent node shutdown."
    assert told(events) == (RunStatus.SUCCESSFUL, [cut_off(why)])


def test_that_an_agent_was_canceled_is_not_the_end_of_a_run_that_nobody_canceled(
    runner: JobRunner, kubelet: FakeKubelet, node: str
) -> None:
    """A pod that ends with 0 completes its Job: there is no other one."""
    canceled = RunFinished(RunStatus.CANCELED, message="canceled")
    kubelet.log = kubelet.next_log = kubelets.told(DONE[0], canceled, run="first")
    with at_work(runner, kubelet, node) as events:
        kubelet.end(pod_of(kubelet), code=0)
    message = "its Job ended without a word of what became of the run: is the image grapnel's?"
    assert unreachable(events) == message
    assert told(events) == (RunStatus.FAILED, [cut_off(message, "and is looked at by the next Job")])


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_a_job_that_is_deleted_is_followed_by_the_next_job(
    stage: Stage, runner: JobRunner, kubelet: FakeKubelet, node: str, cascade: str
) -> None:
    with at_work(runner, kubelet, node) as events:
        stage.kubectl("delete", "job", JOB, "-n", NAMESPACE, f"--cascade={cascade}", "--wait=false")
    message = "its Job was deleted by somebody while it ran"
    assert unreachable(events) == message
    assert told(events) == (RunStatus.FAILED, [cut_off(message, "and is looked at by the next Job")])


def test_a_pod_whose_job_is_gone_is_followed_to_its_end_and_nothing_begins_beside_it(
    stage: Stage, runner: JobRunner, kubelet: FakeKubelet, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_run, "GONE_S", 3.0)
    with at_work(runner, kubelet, node) as events:
        stage.kubectl("delete", "job", JOB, "-n", NAMESPACE, "--cascade=orphan", "--wait=false")
        another = replace(runner, new_name=lambda: "grapnel-another")
        left = list(another.run(request(node), threading.Event()))
        assert unreachable(left).startswith(f"pod {pod_of(kubelet)} of a former run does not end within 3 s")
        kubelet.log = lines("first")
    assert told(events) == (RunStatus.SUCCESSFUL, [])
    stage.kubectl("delete", "pod", pod_of(kubelet), "-n", NAMESPACE, "--force")
    stage.kubectl("delete", "secret", JOB, "-n", NAMESPACE)  # which nobody owns any more, as people had it


def test_a_second_pod_that_does_not_start_is_said(
    runner: JobRunner, kubelet: FakeKubelet, node: str, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_run, "REFUSED_S", 1.0)
    with at_work(runner, kubelet, node) as events:
        kubelet.waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
        stage.kubectl("delete", "pod", pod_of(kubelet), "-n", NAMESPACE, "--wait=false")
    message = "its pod does not start: ImagePullBackOff: Back-off pulling image"
    assert unreachable(events) == message
    assert told(events)[1] == [
        cut_off("its pod was deleted"),
        cut_off(message, "and is looked at by the next Job"),
    ]


def test_a_job_that_makes_no_other_pod_is_given_up(
    runner: JobRunner, kubelet: FakeKubelet, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Job controller may be away as well: Jobs are ended, and nothing follows."""
    monkeypatch.setattr(node_run, "AGAIN_S", 1.0)
    with at_work(runner, kubelet, node) as events:
        kubelet.end(pod_of(kubelet))
    assert unreachable(events).startswith("no other pod was made for its Job within 1 s")


def test_a_pod_that_another_node_calls_the_jobs_is_not_read(
    stage: Stage, runner: JobRunner, kubelet: FakeKubelet, node: str
) -> None:
    """What was written into its log was taken for the end of the run."""
    container = {"name": "agent", "image": "x"}
    labels = {"job-name": JOB, "grapnel.dev/node-job": label_of(node)}
    forged: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{JOB}-zzzzz", "namespace": NAMESPACE, "labels": labels},
        "spec": {"nodeName": "another", "containers": [container]},
    }
    status = {"phase": "Running", "containerStatuses": [{**container, "state": {"running": {}}, "ready": True}]}
    with at_work(runner, kubelet, node) as events:
        stage.kubectl("create", "-f", "-", data=forged)
        stage.kubectl(
            *("patch", "pod", f"{JOB}-zzzzz", "-n", NAMESPACE, "--subresource=status", "--type=merge"),
            *("-p", json.dumps({"status": status})),
        )
        kubelet.cut_after = 1
        kubelet.log = lines("first")
    stage.kubectl("delete", "pod", f"{JOB}-zzzzz", "-n", NAMESPACE, "--force")
    assert told(events) == (RunStatus.SUCCESSFUL, [])
