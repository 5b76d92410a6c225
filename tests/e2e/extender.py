"""The gpushare extender beside the stage's kube-scheduler: a process that may be killed, with its role and no more."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster.control_plane import ControlPlane
    from tests.e2e.manifests import Manifest

FOLDER = Path(__file__).parents[2] / "deploy/gpushare"
ACCOUNT = "grapnel-gpushare"
NAMESPACE = "kube-system"
PREFIX = "/gpushare-scheduler"
COMMAND = [sys.executable, "-P", "-c", "from plugin.cli import main; main()"]
END_S = 10.0


class Extender:
    """Serves the scheduler until it is killed; whoever comes next knows nothing of it."""

    def __init__(self, kubeconfig: Path, port: int, log: Path) -> None:
        self.kubeconfig = kubeconfig
        self._address = f"127.0.0.1:{port}"
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it has read the cluster."""
        options = ["--listen", self._address, "--kubeconfig", str(self.kubeconfig)]
        with self._log.open("ab") as log:
            command = [*COMMAND, "gpushare-extender", *options]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for("the extender is ready", self._is_ready, evidence=self._log.read_text)

    def kill(self) -> None:
        """Kill it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(END_S)

    def why_not(self, manifest: Manifest, node: str) -> str:
        """Return why a pod may not be placed on a node, as the scheduler would be told, "" where it may."""
        pod = {**manifest, "metadata": {**manifest["metadata"], "namespace": "nobody", "uid": "not-made"}}
        status, answer = self._ask("POST", f"{PREFIX}/filter", {"Pod": pod, "Nodes": None, "NodeNames": [node]})
        assert status == HTTPStatus.OK, answer
        return str((json.loads(answer)["FailedNodes"] or {}).get(node, ""))

    def inspect(self, *arguments: str) -> str:
        """Return what `grapnel-node inspect` prints."""
        command = [*COMMAND, "inspect", *arguments, "--kubeconfig", str(self.kubeconfig)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=END_S).stdout

    def said(self) -> str:
        """Return its log."""
        return self._log.read_text()

    def _is_ready(self) -> bool:
        with suppress(OSError):
            return self._ask("GET", "/healthz")[0] == HTTPStatus.OK
        return False

    def _ask(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        with closing(HTTPConnection(self._address, timeout=END_S)) as connection:
            connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()


@contextmanager
def extended_scheduler(control_plane: ControlPlane, folder: Path) -> Iterator[Extender]:
    """Have the scheduler ask an extender within the block, both as the files of `deploy/gpushare` say."""
    [config] = yaml.safe_load((FOLDER / "scheduler.yaml").read_text())["extenders"]
    port = free_port()
    prefix = config["urlPrefix"].replace("127.0.0.1:32766", f"127.0.0.1:{port}")
    extender = Extender(write_kubeconfig(control_plane, folder), port, folder / "extender.log")
    with control_plane.extended({**config, "urlPrefix": prefix}):
        extender.start()
        try:
            yield extender
        finally:
            extender.kill()
            control_plane.kubectl(["delete", "-f", str(FOLDER / "rbac.yaml")])
            control_plane.kubectl(["delete", f"clusterrolebinding/{ACCOUNT}"])
            control_plane.kubectl(["delete", f"serviceaccount/{ACCOUNT}", "--namespace", NAMESPACE])


def write_kubeconfig(control_plane: ControlPlane, folder: Path) -> Path:
    """Return the kubeconfig of an account that has the extender's role."""
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT}
    added = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": ACCOUNT},
            "roleRef": role,
            "subjects": [subject],
        },
    ]
    control_plane.kubectl(["apply", "-f", str(FOLDER / "rbac.yaml")])
    control_plane.kubectl(
        ["apply", "-f", "-"], input_text=json.dumps({"apiVersion": "v1", "kind": "List", "items": added})
    )
    token = control_plane.kubectl(["create", "token", ACCOUNT, "--namespace", NAMESPACE]).strip()
    config = json.loads(control_plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = folder / "gpushare.conf"
    path.write_text(json.dumps(config))
    return path


def free_port() -> int:
    """Return a port of the loopback address that nobody has."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
