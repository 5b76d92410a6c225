"""Plays what a control plane without nodes lacks: a kubelet, whose logs are read.

The log of a pod comes from its kubelet. The API server asks it at the Node's address and port, so there is one here: an
HTTPS server on loopback that answers for one container.
"""

from __future__ import annotations

import base64
import contextlib
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeAlias

from lab.machine.errors import LabError
from provision.cluster.connect import open_api
from provision.controller.jobs.manifest import JobKind
from provision.controller.jobs.runner import JobRunner
from provision.controller.jobs.seal import JOB_UID, SEAL_KEY, Seal
from provision.controller.jobs.wire import LineWriter
from tests.provision.cluster.stage import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from provision.controller.jobs.wire import Event
    from tests.provision.cluster.stage import Stage

NAMESPACE = "grapnel-system"
Line: TypeAlias = "bytes | Callable[[Seal], bytes]"  # text, or what an agent tells, sealed as its Job's Secret says


def told(*events: Event, run: str = "r") -> list[Line]:
    """Return the lines of an agent that tells these events."""

    def written(seal: Seal) -> list[bytes]:
        writer = LineWriter(seal, run)
        return [line.encode() for event in events for line in writer.lines(event)]

    def line(index: int) -> Line:
        return lambda seal: written(seal)[index]

    return [line(index) for index in range(len(written(Seal.fresh("none"))))]


def seal_in(secret: dict[str, Any]) -> Seal:
    """Return what is in the Secret of a Job."""
    data = secret["data"]
    return Seal(base64.b64decode(data[SEAL_KEY]), base64.b64decode(data[JOB_UID]).decode())


@dataclass
class FakeKubelet:
    """A Node whose pods run, or are ``waiting``, and have the log that the test writes.

    ``answers`` is the code with which it answers who asks for a log; while it ``keeps`` pods, none of them ends.
    """

    stage: Stage
    folder: Path
    log: list[Line] = field(default_factory=list)
    is_open: bool = True
    begins: bool = True
    answers: int = 200
    keeps: bool = False
    waiting: dict[str, str] = field(default_factory=dict)
    pods: list[dict[str, Any]] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    secrets: list[dict[str, Any]] = field(default_factory=list)
    streams: int = 0
    closed: int = 0  # streams that have ended
    cut_after: int = 0
    ended: dict[str, list[Line]] = field(default_factory=dict)  # logs of pods whose containers have ended, by name
    next_log: list[Line] = field(default_factory=list)  # of the pod after one that has ended
    seals: dict[str, Seal] = field(default_factory=dict)  # what a pod has mounted, by its name
    shown: list[bytes] = field(default_factory=list)  # all that who reads its logs has seen
    _over: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def running(self, node: str) -> Iterator[None]:
        """Be a Node of that name while inside."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*_certificate(self.folder))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self._make_node(node, server.server_address[1])
        threads = [
            threading.Thread(target=server.serve_forever, daemon=True),
            threading.Thread(target=self._play, args=(node,), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            server.shutdown()
            server.server_close()
            for thread in threads:
                thread.join(10)

    def _make_node(self, name: str, port: int) -> None:
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            },
        }
        self.stage.create(node)

    def _play(self, node: str) -> None:
        """Start every pod that the Job controller has bound to the node, and let those go that are deleted."""
        while not self._over.wait(0.2):
            with contextlib.suppress(LabError):
                for pod in self._list("pods"):
                    if pod["spec"].get("nodeName") == node:
                        self._look(pod)

    def _look(self, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            if self.keeps:
                return
            self.end(metadata["name"])
            self.stage.kubectl("delete", "pod", metadata["name"], "-n", NAMESPACE, "--force", "--ignore-not-found")
        elif self.begins and metadata["uid"] not in self.started:
            self.started.append(metadata["uid"])
            self.pods.append(pod)
            self.secrets += self._list("secrets")
            state: dict[str, Any] = {"waiting": self.waiting} if self.waiting else {"running": {}}
            status = {"phase": "Pending" if self.waiting else "Running", "containerStatuses": [_container(state)]}
            self._say(metadata["name"], status)

    def end(self, pod: str, code: int = 143, **status: str) -> None:
        """End the container of a pod that has begun, with what a kubelet says of the pod then."""
        if pod in self.ended:
            return
        self.ended[pod] = self.log
        self.log = self.next_log or self.log
        ended = _container({"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}})
        phase = "Succeeded" if code == 0 else "Failed"
        with contextlib.suppress(LabError):  # it may be gone already
            self._say(pod, {"phase": phase, "containerStatuses": [ended], **status})

    def _say(self, pod: str, status: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/status"
        self.stage.control_plane.api.merge(path, {"status": status})

    def _list(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.stage.read(f"/api/v1/namespaces/{NAMESPACE}/{kind}")["items"]
        return found

    def _seal(self, pod: str) -> Seal:
        """Return what a Job's pod has mounted; a kubelet starts it no earlier."""
        job = pod.rpartition("-")[0]

        def look() -> bool:
            for secret in self._list("secrets"):
                if secret["metadata"]["name"] == job:
                    self.seals[pod] = seal_in(secret)
            return pod in self.seals

        if pod not in self.seals:
            wait_until(look, f"Job {job} has its Secret")
        return self.seals[pod]

    def write(self, connection: Callable[[bytes], object], pod: str) -> None:
        """Answer a log that is followed, as long as the pod has not ended."""
        seal = self._seal(pod)
        self.streams += 1
        try:
            self._follow(connection, pod, seal)
        finally:
            self.closed += 1

    def _follow(self, connection: Callable[[bytes], object], pod: str, seal: Seal) -> None:
        sent = 0
        while not self._over.is_set():
            log = self.ended.get(pod, self.log)
            while sent < len(log):
                said = log[sent]
                line = said if isinstance(said, bytes) else said(seal)
                self.shown.append(line)
                connection(line + b"\n")
                sent += 1
                if self.cut_after and self.streams == 1 and sent >= self.cut_after:
                    return
            if not self.is_open or pod in self.ended:
                return
            time.sleep(0.05)


def _container(state: dict[str, Any]) -> dict[str, Any]:
    return {"name": "agent", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": state}


def _handler(kubelet: FakeKubelet) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(kubelet.answers)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            if kubelet.answers != HTTPStatus.OK:
                return
            with contextlib.suppress(OSError):

                def send(data: bytes) -> None:
                    self.wfile.write(data)
                    self.wfile.flush()

                kubelet.write(send, self.path.split("/")[3])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
            pass

    return Handler


def make_runner(stage: Stage, **kind: Any) -> JobRunner:
    """Return a runner of Jobs in a namespace that is there."""
    stage.control_plane.ensure_namespace(NAMESPACE)
    api = open_api(stage.control_plane.kubeconfig, None, {})
    assert api is not None
    return JobRunner(api, JobKind(image="example.com/grapnel:1", namespace=NAMESPACE), **kind)


def _certificate(folder: Path) -> tuple[str, str]:
    key, certificate = folder / "kubelet.key", folder / "kubelet.crt"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=kubelet"),
        ],
        check=True,
        capture_output=True,
    )
    return str(certificate), str(key)
