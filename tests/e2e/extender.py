"""The gpushare extender beside the stage's kube-scheduler: a process that may be killed, with its role and no more."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

import yaml

from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster.control_plane import ControlPlane

FOLDER = Path(__file__).parents[2] / "deploy/gpushare"
ACCOUNT = "grapnel-gpushare"
NAMESPACE = "kube-system"
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

    def inspect(self, *arguments: str) -> str:
        """Return what `grapnel-node inspect` prints."""
        command = [*COMMAND, "inspect", *arguments, "--kubeconfig", str(self.kubeconfig)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=END_S).stdout

    def said(self) -> str:
        """Return its log."""
        return self._log.read_text()

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"http://{self._address}/healthz", timeout=1) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


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
            control_plane.kubectl(["delete", f"clusterrole/{ACCOUNT}", f"clusterrolebinding/{ACCOUNT}"])
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
