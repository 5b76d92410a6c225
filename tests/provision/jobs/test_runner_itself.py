"""Runs as Jobs, on a real API server, with a kubelet that the test plays."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import threading
import time
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision.apply.runner import RunFinished, RunRequest, RunStatus, TaskDone, TaskOutcome, TaskStarted
from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.api.kubeconfig import read_kubeconfig
from provision.cluster.kubernetes.api.transport import Transport
from provision.controller.jobs import node_run
from provision.controller.jobs.seal import Seal
from provision.rollout.errors import UnreachableError
from tests.provision.cluster.fakes import Clock
from tests.provision.cluster.stage import wait_until
from tests.provision.jobs.kubelet import NAMESPACE, FakeKubelet, make_runner, told

if TYPE_CHECKING:
    from provision.apply.runner import Event
    from provision.cluster.kubernetes.api.exchange import ApiResponse, Stream
    from provision.cluster.kubernetes.api.exchange import Request as ApiRequest
    from provision.controller.jobs.runner import JobRunner
    from provision.controller.jobs.wire import Event as Told
    from tests.provision.cluster.stage import Stage
    from tests.provision.jobs.kubelet import Line

pytestmark = [pytest.mark.functional, pytest.mark.timeout(240)]
_NUMBERS = itertools.count(1)
DONE: list[Told] = [
    TaskStarted("n", "install"),
    TaskDone("n", "install", TaskOutcome.CHANGED, values={"facts": b'{"a":1}'}),
    RunFinished(RunStatus.SUCCESSFUL),
]


def lines(run: str = "r") -> list[Line]:
    return told(*DONE, run=run)


@pytest.fixture
def node() -> str:
    return f"worker-{next(_NUMBERS)}.example.com"


@pytest.fixture
def runner(stage: Stage) -> JobRunner:
    return make_runner(stage)


@pytest.fixture
def kubelet(stage: Stage, tmp_path: Path) -> FakeKubelet:
    return FakeKubelet(stage, tmp_path)


def request(*nodes: str) -> RunRequest:
    variables = {"grapnel_plan": {"secret": "of this node"}}
    keep = frozenset({"facts"})
    playbook = Path("/c/apply.yml")
    return RunRequest(playbook=playbook, inventory=(), nodes=nodes, extra_vars=variables, timeout_s=60, keep=keep)


def run(runner: JobRunner, node: str, cancel: threading.Event | None = None) -> list[Event]:
    return list(runner.run(request(node), cancel or threading.Event()))


def end(events: list[Event]) -> RunFinished:
    assert isinstance(events[-1], RunFinished)
    return events[-1]


def left(stage: Stage, node: str) -> list[str]:
    jobs = stage.read(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs")["items"]
    return [each["metadata"]["name"] for each in jobs if each["metadata"]["annotations"]["grapnel.dev/node"] == node]


def test_a_run_is_a_job_on_its_node_and_nothing_is_left_of_it(
    stage: Stage, runner: JobRunner, kubelet: FakeKubelet, node: str
) -> None:
    kubelet.log += [b"[WARNING]: some text", *lines()]
    with kubelet.running(node):
        events = run(runner, node)
        assert events[:2] == [replace(each, node=node) for each in DONE[:2]]  # type: ignore[type-var]  # of tasks
        assert end(events).status is RunStatus.SUCCESSFUL
        assert left(stage, node) == []
    (pod,) = kubelet.pods
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (pod["spec"]["nodeName"], pod["spec"]["automountServiceAccountToken"]) == (node, False)
    (secret,) = [each for each in kubelet.secrets if each["metadata"]["name"] == owner["name"]]
    handed = json.loads(gzip.decompress(base64.b64decode(secret["data"]["request.json.gz"])))
    assert (handed["node"], handed["playbook"]) == (node, "apply")
    assert secret["metadata"]["ownerReferences"][0]["uid"] == owner["uid"]


def test_a_log_that_breaks_off_is_gone_on_with(runner: JobRunner, kubelet: FakeKubelet, node: str) -> None:
    kubelet.log, kubelet.cut_after = lines(), 1
    with kubelet.running(node):
        events = run(runner, node)
    assert [type(event) for event in events] == [TaskStarted, TaskDone, RunFinished]
    assert kubelet.streams == 2


def test_a_container_that_is_restarted_tells_it_again(runner: JobRunner, kubelet: FakeKubelet, node: str) -> None:
    kubelet.log, kubelet.is_open = lines("before")[:1], False

    def reboot() -> None:
        wait_until(lambda: kubelet.closed > 0, "its log has been read")
        kubelet.log, kubelet.is_open = lines("after"), True

    with kubelet.running(node):
        threading.Thread(target=reboot, daemon=True).start()
        events = run(runner, node)
    assert end(events).status is RunStatus.SUCCESSFUL
    assert [type(event) for event in events] == [TaskStarted, TaskStarted, TaskDone, RunFinished]


def test_what_a_killed_controller_has_left_is_ended_first(
    stage: Stage, runner: JobRunner, kubelet: FakeKubelet, node: str
) -> None:
    cancel = threading.Event()
    with kubelet.running(node):
        killed = runner.run(request(node), cancel)
        reading = threading.Thread(target=lambda: next(killed, None), daemon=True)
        reading.start()
        wait_until(lambda: len(kubelet.pods) == 1 and kubelet.streams > 0, "the first Job runs")
        (former,) = left(stage, node)
        kubelet.log = lines()
        assert end(run(runner, node)).status is RunStatus.SUCCESSFUL
        assert former not in left(stage, node)
        cancel.set()
        reading.join(30)
    assert len(kubelet.pods) == 2


def test_a_run_that_is_canceled_ends_its_job(stage: Stage, runner: JobRunner, kubelet: FakeKubelet, node: str) -> None:
    cancel = threading.Event()
    kubelet.log = lines()[:1]
    with kubelet.running(node):
        threading.Thread(
            target=lambda: (wait_until(lambda: kubelet.streams > 0, "it runs"), cancel.set()), daemon=True
        ).start()
        events = run(runner, node, cancel)
        assert end(events).status is RunStatus.CANCELED
        assert left(stage, node) == []


def test_an_image_that_cannot_be_pulled_is_said(
    runner: JobRunner, kubelet: FakeKubelet, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_run, "REFUSED_S", 1.0)
    kubelet.waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "example.com/grapnel:1"'}
    with kubelet.running(node):
        events = run(runner, node)
    (done,) = [event for event in events if isinstance(event, TaskDone)]
    assert done.outcome is TaskOutcome.UNREACHABLE
    assert done.message == ('its pod does not start: ImagePullBackOff: Back-off pulling image "example.com/grapnel:1"')


def test_a_job_without_a_pod_says_what_the_cluster_says(
    stage: Stage, runner: JobRunner, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_run, "MADE_S", 5.0)
    stage.kubectl("create", "namespace", "restricted")
    stage.kubectl("label", "namespace", "restricted", "pod-security.kubernetes.io/enforce=restricted")
    elsewhere = replace(runner, kind=replace(runner.kind, namespace="restricted"))
    (done,) = [each for each in run(elsewhere, node) if isinstance(each, TaskDone)]
    assert done.outcome is TaskOutcome.UNREACHABLE
    assert "no pod was made for its Job within 5 s" in done.message
    assert 'violates PodSecurity "restricted:latest"' in done.message


def test_a_namespace_that_is_missing_is_said(runner: JobRunner, node: str) -> None:
    elsewhere = replace(runner, kind=replace(runner.kind, namespace="unheard-of"))
    (done,) = [each for each in run(elsewhere, node) if isinstance(each, TaskDone)]
    assert 'namespaces "unheard-of" not found' in done.message


def test_lines_that_are_lost_fail_the_node(runner: JobRunner, kubelet: FakeKubelet, node: str) -> None:
    kubelet.log = lines()[1:]
    with kubelet.running(node):
        found = end(run(runner, node))
    assert found.status is RunStatus.ERROR
    assert "the beginning of its log is lost" in found.message


def unsealed() -> Line:
    event = base64.b64encode(zlib.compress(b'{"type":"finished","status":"successful"}')).decode()
    return f"grapnel-run {'0' * 32} 0 . {event}".encode()


@pytest.mark.parametrize(
    "log",
    [
        pytest.param([unsealed()], id="an agent of before"),
        pytest.param([*lines()[:1], lambda _: lines()[1](Seal.fresh("another"))], id="another Job's"),  # type: ignore[operator]  # they are sealed
    ],
)
def test_an_end_that_the_agent_has_not_sealed_is_none(
    stage: Stage, runner: JobRunner, kubelet: FakeKubelet, node: str, log: list[Line]
) -> None:
    """Whoever could write into the log could say that a run had come to a good end."""
    kubelet.log = log
    with kubelet.running(node):
        found = end(run(runner, node))
    assert found.status is RunStatus.ERROR
    assert "is not sealed by its agent: the image is of another version than the controller" in found.message
    assert left(stage, node) == []


def test_several_nodes_are_run_beside_one_another(stage: Stage, runner: JobRunner, tmp_path: Path) -> None:
    names = [f"beside-{next(_NUMBERS)}" for _number in range(2)]
    kubelets = []
    for name in names:
        folder = tmp_path / name
        folder.mkdir()
        kubelets.append(FakeKubelet(stage, folder, log=lines()))
    with kubelets[0].running(names[0]), kubelets[1].running(names[1]):
        events = list(runner.run(request(*names), threading.Event()))
    assert end(events).status is RunStatus.SUCCESSFUL
    assert {event.node for event in events if isinstance(event, TaskDone)} == set(names)


def test_a_log_that_cannot_be_read_is_given_up_with_the_reason(
    runner: JobRunner, kubelet: FakeKubelet, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked for again for hours, and nobody was told why it could not be had."""
    monkeypatch.setattr(node_run, "UNHEARD_S", 2.0)
    kubelet.answers = 503
    with kubelet.running(node):
        (done,) = [each for each in run(runner, node) if isinstance(each, TaskDone)]
    assert done.outcome is TaskOutcome.UNREACHABLE
    assert done.message.startswith("the log of its Job could not be read for 2 s: ")
    assert "503" in done.message


def test_a_line_without_an_end_fails_the_node_that_writes_it(
    runner: JobRunner, kubelet: FakeKubelet, node: str
) -> None:
    """All of it was kept in the controller's memory."""
    kubelet.log = [b"x" * (1 << 20)]
    with kubelet.running(node):
        (done,) = [each for each in run(runner, node) if isinstance(each, TaskDone)]
    assert "sends a line of more than 65536 bytes" in done.message


@pytest.mark.parametrize(
    "log", [pytest.param([b"working"], id="writes on and on"), pytest.param([], id="never says a word")]
)
def test_a_node_that_comes_to_no_end_is_given_up(
    runner: JobRunner, kubelet: FakeKubelet, node: str, log: list[Line]
) -> None:
    """Only its own kubelet would have ended it."""
    kubelet.log = log
    hurried = replace(runner, clock=lambda: time.monotonic() + (10_000 if kubelet.streams else 0))
    with kubelet.running(node):
        (done,) = [each for each in run(hurried, node) if isinstance(each, TaskDone)]
    assert done.message == "its Job did not come to its end within 450 s"


def test_nothing_is_begun_beside_a_run_that_does_not_end(
    stage: Stage, runner: JobRunner, kubelet: FakeKubelet, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run was begun beside it after a while."""
    cancel = threading.Event()
    with kubelet.running(node):
        killed = runner.run(request(node), cancel)
        reading = threading.Thread(target=lambda: next(killed, None), daemon=True)
        reading.start()
        wait_until(lambda: kubelet.streams > 0, "the first Job runs")
        (former,) = left(stage, node)
        kubelet.keeps = True
        monkeypatch.setattr(node_run, "GONE_S", 2.0)
        (done,) = [each for each in run(runner, node) if isinstance(each, TaskDone)]
        assert done.message.startswith(f"Job {former} of a former run does not end within 2 s")
        assert len(kubelet.pods) == 1
        kubelet.keeps = False
        cancel.set()
        reading.join(30)


def test_what_became_of_a_node_is_known_although_its_job_cannot_be_deleted(
    stage: Stage, runner: JobRunner, kubelet: FakeKubelet, node: str
) -> None:
    """A change that had succeeded was taken for one that had failed, and undone."""
    kubelet.log = lines()
    inner = Transport(read_kubeconfig((stage.control_plane.kubeconfig,), None))
    clock = Clock()
    clumsy = replace(runner, api=Api(WithoutDeletes(inner), sleep=clock.sleep, clock=clock))
    with kubelet.running(node):
        assert end(run(clumsy, node)).status is RunStatus.SUCCESSFUL
        assert len(left(stage, node)) == 1
        assert end(run(runner, node)).status is RunStatus.SUCCESSFUL, "the next run ends what is left"
        assert left(stage, node) == []


@dataclass(frozen=True)
class WithoutDeletes:
    """An API server that is away whenever something is to be deleted."""

    inner: Transport

    @property
    def name(self) -> str:
        return self.inner.name

    def send(self, request: ApiRequest) -> ApiResponse:
        if request.method == "DELETE":
            raise UnreachableError("cluster x does not answer: connection refused")
        return self.inner.send(request)

    def stream(self, request: ApiRequest) -> Stream:
        return self.inner.stream(request)
