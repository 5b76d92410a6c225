"""Plays the kubelets of a fleet without machines: KWOK keeps Nodes and pods going, an HTTPS server has their logs.

KWOK writes what a kubelet writes: the status of a Node every five minutes where nothing has changed, pods that run, end
and go. Leases of Nodes are left out: two cores cannot renew 5,000 of them every ten seconds, and no controller that
is measured here reads them. Logs of Jobs are written when they are asked for, by what the Secret of the Job asks for.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import ssl
import subprocess
import threading
import uuid
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from lab import golang
from provision.apply.runner import CutOff, TaskDone
from provision.cluster.kubernetes.api.exchange import Request
from provision.controller.jobs.manifest import REQUEST
from provision.controller.jobs.seal import JOB_UID, SEAL_KEY, Seal
from provision.controller.jobs.wire import JobRequest, LineWriter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from bench.fleets.machines import Machines
    from provision.cluster.kubernetes.api.client import Api
    from provision.controller.jobs.wire import Event

HEARTBEAT_MS: Final = (
    300_000  # a kubelet's nodeStatusReportFrequency, on average: so that they are spread from the start
)
JOB_MS: Final = 200  # from the start of a Job's pod to its end
END_S: Final = 20.0

_HEARTBEAT: Final = """\
conditions:
{{ range .status.conditions }}
- {type: {{ .type }}, status: {{ .status | Quote }}, reason: Kubelet, lastHeartbeatTime: {{ Now | Quote }}}
{{ end }}
"""
_RUNNING: Final = """\
phase: Running
hostIP: 127.0.0.1
podIP: 127.0.0.1
startTime: {{ Now | Quote }}
conditions:
- {type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name }}
  image: {{ .image | Quote }}
  imageID: {{ .image | Quote }}
  containerID: containerd://0
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ Now | Quote }}}}
{{ end }}
"""
_ENDED: Final = """\
phase: Succeeded
conditions:
- {type: Ready, status: "False", reason: PodCompleted, lastTransitionTime: {{ Now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name }}
  image: {{ .image | Quote }}
  imageID: {{ .image | Quote }}
  containerID: containerd://0
  ready: false
  started: false
  restartCount: 0
  state: {terminated: {exitCode: 0, reason: Completed, finishedAt: {{ Now | Quote }}}}
{{ end }}
"""


def _is(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def _stage(name: str, kind: str, *where: dict[str, Any], **spec: object) -> dict[str, Any]:
    resource = {"apiGroup": "v1", "kind": kind}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {"resourceRef": resource, "selector": {"matchExpressions": list(where)}, **spec},
    }


def stages() -> list[dict[str, Any]]:
    """Return what KWOK does about Nodes and pods. Pure."""
    lives = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
    job = _is(".metadata.ownerReferences.[].kind", "Job")
    delay = {"durationMilliseconds": 1000, "jitterDurationMilliseconds": 2 * HEARTBEAT_MS}
    return [
        _stage(
            *("heartbeat", "Node", _is(".status.phase", "Running")),
            delay=delay,
            next={"statusTemplate": _HEARTBEAT},
            immediateNextStage=True,
        ),
        _stage("run", "Pod", lives, _is(".status.phase", "Pending"), next={"statusTemplate": _RUNNING}),
        _stage(
            *("end", "Pod", lives, _is(".status.phase", "Running"), job),
            delay={"durationMilliseconds": JOB_MS},
            next={"statusTemplate": _ENDED},
        ),
        _stage("go", "Pod", lives | {"operator": "Exists"}, next={"delete": True}),
    ]


@contextlib.contextmanager
def kwok(kubeconfig: Path, folder: Path) -> Iterator[int]:
    """Run KWOK for all Nodes while inside; yield the number of its process. What it says is in its folder's log."""
    program = golang.kwok() / "kwok"
    config = folder / "stages.yaml"
    config.write_text("---\n".join(yaml.safe_dump(each) for each in stages()))
    command = [
        *(str(program), f"--kubeconfig={kubeconfig}", f"--config={config}", "--manage-all-nodes=true"),
        *("--node-lease-duration-seconds=0", "--node-ip=127.0.0.1", "--cidr=127.1.0.0/16"),
    ]
    with (
        (folder / "kwok.log").open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process,
    ):
        try:
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()


@dataclass(frozen=True, slots=True)
class Agents:
    """What runs in the pods of Jobs: their logs say what the machines answer."""

    api: Api
    machines: Machines

    @contextlib.contextmanager
    def serving(self, folder: Path) -> Iterator[int]:
        """Be the port of all kubelets while inside; yield its number."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*_certificate(folder))
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            server.server_close()
            thread.join(END_S)

    def log(self, namespace: str, pod: str) -> Iterator[bytes]:
        """Yield the lines of a Job's pod; a kubelet has its Secret mounted, and reads it for that."""
        job, seal = self._job(namespace, pod)
        writer = LineWriter(seal, uuid.uuid4().hex)
        for event in self.machines.answer(job.playbook, job.node, job.variables):
            if isinstance(event, CutOff):  # a Job does not say it of itself
                continue
            for line in writer.lines(_kept(event, job.keep)):
                yield line.encode() + b"\n"

    def _job(self, namespace: str, pod: str) -> tuple[JobRequest, Seal]:
        name = pod.rpartition("-")[0]
        path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        secret = self.api.call(Request(method="GET", path=path), _Secret)
        data = {key: base64.b64decode(value) for key, value in secret.data.items()}
        job = msgspec.json.decode(gzip.decompress(data[REQUEST]), type=JobRequest)
        return job, Seal(data[SEAL_KEY], data[JOB_UID].decode())


class _Secret(msgspec.Struct, frozen=True):
    data: dict[str, str]


def _handler(agents: Agents) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            words = self.path.partition("?")[0].split("/")  # /containerLogs/NAMESPACE/POD/CONTAINER
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            with contextlib.suppress(OSError):
                for line in agents.log(words[2], words[3]):
                    self.wfile.write(line)

        def log_message(self, *_arguments: object) -> None:
            pass

    return Handler


def _kept(event: Event, keep: Collection[str]) -> Event:
    """Return what the agent keeps of an event."""
    if not isinstance(event, TaskDone):
        return event
    return replace(event, values={key: value for key, value in event.values.items() if key in keep})


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
