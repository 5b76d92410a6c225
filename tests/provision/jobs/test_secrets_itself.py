"""A registry's password in an engine's file on the host: a Job brings it to the controller, and nobody else learns it.

Everything is real but the kubelet: the API server, `grapnel agent` as a process with the Job's Secret, Ansible, the
module that reads the host, and a host in namespaces of its own.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision.apply.runner import RunFinished, RunRequest, RunStatus, TaskDone
from provision.cluster.connect import open_api
from provision.controller.jobs.manifest import JobKind
from provision.controller.jobs.runner import JobRunner
from tests.provision.jobs.kubelet import NAMESPACE, FakeKubelet
from tests.provision.jobs.leaks import leaks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from provision.apply.runner import Event
    from tests.provision.cluster.stage import Stage

pytestmark = [pytest.mark.functional, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[3]
PASSWORD = "hunter2hunter2"  # noqa: S105 - what must not be seen
NODE = "secretive.example.com"
CONFIG = f"""version = 2
[plugins."io.containerd.grpc.v1.cri".registry.configs."registry.example".auth]
password = "{PASSWORD}"
"""
AGENT = "import sys; from provision.cli import main; sys.exit(main())"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[int]:
    """A host whose engine knows a password: the number of its first process."""
    etc = tmp_path / "etc"
    script = (
        f"cp -a /etc {etc} && mkdir -p {etc}/containerd && cat > {etc}/containerd/config.toml"
        f" && chmod 600 {etc}/containerd/config.toml && mount --bind {etc} /etc && echo ready && exec sleep 600"
    )
    command = ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(CONFIG)
        process.stdin.close()
        assert process.stdout.readline() == "ready\n"
        yield process.pid
        process.kill()


class RealAgent(FakeKubelet):
    """A node on which the agent really runs, on a host."""

    host_pid = 0

    def write(self, connection: Callable[[bytes], object], pod: str) -> None:
        """Start the container with what its pod has mounted, and have all that it prints for a log."""
        self._seal(pod)
        (secret,) = [each for each in self._list("secrets") if each["metadata"]["name"] == pod.rpartition("-")[0]]
        mounted = self.folder / "run"
        mounted.mkdir()
        for name, value in secret["data"].items():
            (mounted / name).write_bytes(base64.b64decode(value))
        container = self.pods[0]["spec"]["containers"][0]
        request = mounted / Path(container["command"][-1]).name
        command = [
            sys.executable,
            "-P",
            "-c",
            AGENT,
            "agent",
            "--request",
            str(request),
            "--host-pid",
            str(self.host_pid),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, check=False)
        self.shown += done.stdout.splitlines()
        connection(done.stdout)


def test_a_password_reaches_the_controller_and_no_log(
    stage: Stage, host: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.control_plane.ensure_namespace(NAMESPACE)
    api = open_api(stage.control_plane.kubeconfig, None, {})
    assert api is not None
    runner = JobRunner(api, JobKind(image="example.com/grapnel:1", namespace=NAMESPACE))
    kubelet = RealAgent(stage, tmp_path)
    kubelet.host_pid = host
    request = RunRequest(
        playbook=Path("/c/facts.yml"), inventory=(), nodes=(NODE,), timeout_s=200, keep=frozenset({"facts"})
    )
    events: list[Event] = []
    objects: list[str] = []
    with kubelet.running(NODE):
        for event in runner.run(request, threading.Event()):
            events.append(event)
            objects.append(stage.kubectl("get", "jobs,pods,events", "-n", NAMESPACE, "-o", "json"))

    end = events[-1]
    assert isinstance(end, RunFinished)
    assert end.status is RunStatus.SUCCESSFUL, kubelet.shown
    (facts,) = [each.values["facts"] for each in events if isinstance(each, TaskDone) and "facts" in each.values]
    assert PASSWORD in facts.decode(), "the controller plans with it"
    assert b"Gather facts" in kubelet.shown, "people see what it does"
    (seal,) = kubelet.seals.values()
    key = base64.b64encode(seal.key)
    for lines in (kubelet.shown, *(text.encode().splitlines() for text in (*objects, "".join(capfd.readouterr())))):
        assert leaks(lines, PASSWORD) == []
        assert key not in b"".join(lines), "it is in the Secret alone"
