"""Runs a control plane on this machine: etcd, API server, controller manager and scheduler, with or without nodes.

    with ControlPlane(folder).running() as control_plane:      # 127.0.0.1, a free port; ends with this process
        control_plane.kubectl(["get", "--raw", "/readyz"])

All its files are in its folder. Its processes are in a separate cgroup, whose name is derived from the folder, so
that ``kill`` finds them whatever happened to the command that started them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import golang
from lab.cluster.api import Api
from lab.cluster.certificates import ADMIN, CONTROLLER_MANAGER, SCHEDULER, Certificates
from lab.cluster.components import API_SERVER, NODE_GRACE_S, Layout, plan_components
from lab.cluster.components import CONTROLLER_MANAGER as CONTROLLER_MANAGER_PROCESS
from lab.cluster.components import SCHEDULER as SCHEDULER_PROCESS
from lab.cluster.errors import ClusterError, StartError
from lab.cluster.kubeconfig import render_kubeconfig
from lab.cluster.status import ProcessStatus
from lab.golang.programs import kubernetes_version
from lab.machine.command import run
from lab.machine.folders import content_key, write_atomic
from lab.machine.lock import locked
from lab.nodes.cgroup import ControlGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SUPERVISOR = Path(__file__).with_name("supervise.py")
SCHEDULER_CONFIG = "scheduler.json"
LOOPBACK = "127.0.0.1"
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 15.0
LOCK_WAIT_S = 120.0
KUBECTL_TIMEOUT_S = 120.0
POLL_S = 0.1
LOG_LINES = 15
ENDED_TOO_OFTEN = 3  # starts; the controller manager may exit once if the API server is slow to become ready


class ControlPlane:
    """The control plane in ``folder``; ``port`` 0 picks a free port, which stays the same from then on.

    ``extenders`` are those that the scheduler is started with, as in its configuration; ``extended`` changes them.
    ``has_gangs``: groups of pods are placed whole or not at all (Kubernetes 1.36 or newer).
    """

    def __init__(
        self,
        folder: Path,
        address: str = LOOPBACK,
        port: int = 0,
        *,
        group: str = "",
        node_grace_s: int = NODE_GRACE_S,
        has_gangs: bool = False,
    ) -> None:
        self.folder = folder
        self.address = address
        self.certificates = Certificates(folder / "pki")
        self.group = ControlGroup(group or f"grapnel-control-plane-{content_key(str(folder.absolute()))}")
        self._port = port
        self._node_grace_s = node_grace_s
        self._has_gangs = has_gangs
        self.extenders: Sequence[dict[str, object]] = ()

    @property
    def port(self) -> int:
        """The API server's port; ``ClusterError`` if it was to be picked and there has been no start yet."""
        path = self.folder / "port"
        if not self._port and not path.exists():
            raise ClusterError(f"the control plane in {self.folder} has not been started yet")
        return self._port or int(path.read_text())

    @property
    def programs(self) -> Path:
        """The folder with the programs that this control plane was last started with."""
        path = self.folder / "programs"
        if not path.exists():
            raise ClusterError(f"the control plane in {self.folder} has not been started yet")
        return Path(path.read_text())

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / f"{ADMIN}.kubeconfig"

    @property
    def api(self) -> Api:
        """The API server, with the administrator's credentials."""
        return Api(self.address, self.port, self.certificates)

    @contextlib.contextmanager
    def running(self) -> Iterator[ControlPlane]:
        """Start it bound to this process, so that it ends with it in any case; stop it at the end of the block."""
        try:
            self.start(is_bound=True)
            yield self
        finally:
            self.kill()

    def start(self, *, is_bound: bool = False) -> None:
        """Make sure that all of it is running and accepts pods. Raises ``ClusterError``, ``StartError``."""
        self.launch(is_bound=is_bound)
        self.wait_ready()

    def launch(self, *, is_bound: bool = False) -> None:
        """Start what is not running; return at once."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self.folder / "lock", wait_s=LOCK_WAIT_S):
            if self._is_supervised():
                return
            self.group.kill()  # leftovers of a killed supervisor
            write_atomic(self.folder / "programs", str(golang.kubernetes()))
            self._choose_port()
            self._require_port()
            self.certificates.prepare(self.address)
            self._write_kubeconfigs()
            self._spawn(os.getpid() if is_bound else 0)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the API server is ready and a pod could be created."""
        steps: tuple[tuple[str, str, Callable[[], bool]], ...] = (
            ("the API server is not ready", API_SERVER, self.api.is_ready),
            # Without it the API server refuses every pod of the namespace.
            ("there is no default service account", CONTROLLER_MANAGER_PROCESS, self._has_service_account),
        )
        deadline = time.monotonic() + timeout_s
        for problem, component, is_done in steps:
            while not is_done():
                self._require_progress()
                if time.monotonic() > deadline:
                    raise StartError(f"{problem} after {timeout_s:g} s", hint=self.log_tail(component))
                time.sleep(POLL_S)

    @contextlib.contextmanager
    def extended(self, *extenders: dict[str, object]) -> Iterator[None]:
        """Have the running scheduler ask these extenders as well within the block; it is restarted for it."""
        before, self.extenders = self.extenders, [*self.extenders, *extenders]
        self._restart_scheduler()
        try:
            yield
        finally:
            self.extenders = before
            self._restart_scheduler()

    def _restart_scheduler(self) -> None:
        """End the scheduler, which its supervisor starts again, with its configuration as it is now."""
        self._write_scheduler_config()
        ended = self._scheduler().pid
        os.kill(ended, signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while self._scheduler().pid in {0, ended}:
            if time.monotonic() > deadline:
                raise StartError("the scheduler did not start again", hint=self.log_tail(SCHEDULER_PROCESS))
            time.sleep(POLL_S)

    def _scheduler(self) -> ProcessStatus:
        return next(process for process in self.status() if process.name == SCHEDULER_PROCESS)

    def stop(self) -> None:
        """End the processes in order; stored data stays."""
        supervisor = self._report().get("supervisor", -1)
        if supervisor in self.group.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(supervisor, signal.SIGTERM)
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while self.group.pids() and time.monotonic() < deadline:
                time.sleep(POLL_S)
        self.kill()

    def kill(self) -> None:
        """End the processes at once, as a crash would; stored data stays."""
        self.group.kill()
        self.group.remove()

    def kubectl(self, arguments: Sequence[str], *, input_text: str | None = None) -> str:
        """Run kubectl as the administrator; return what it prints. ``CommandError`` if it fails."""
        command = [str(self.programs / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        return run(command, timeout_s=KUBECTL_TIMEOUT_S, input_text=input_text).stdout

    def ensure_namespace(self, name: str) -> None:
        """Have a namespace; who shares this control plane may have made it already."""
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.kubectl(["apply", "-f", "-"], input_text=json.dumps(made))

    def status(self) -> list[ProcessStatus]:
        """Return the state of each process; empty if it was never started."""
        alive = self.group.pids()
        return [
            ProcessStatus(
                name, seen["pid"] if seen["pid"] in alive else 0, seen["starts"], seen["status"], self.log(name)
            )
            for name, seen in self._report().get("components", {}).items()
        ]

    def log(self, component: str) -> Path:
        """Return the path of a process's log."""
        return self.folder / "logs" / f"{component}.log"

    def log_tail(self, component: str) -> str:
        """Return the end of a process's log, for error messages."""
        path = self.log(component)
        lines = path.read_text(errors="replace").splitlines()[-LOG_LINES:] if path.exists() else []
        return "\n".join([f"end of {path}:", *lines])

    def _layout(self) -> Layout:
        folder = self.folder.absolute()
        config = folder / SCHEDULER_CONFIG
        return Layout(
            folder,
            self.programs,
            self.address,
            self.port,
            self.certificates,
            self._node_grace_s,
            scheduler_config=config,
            has_gangs=self._has_gangs,
            kubernetes=kubernetes_version(),
        )

    def _report(self) -> dict[str, Any]:
        try:
            seen: dict[str, Any] = json.loads((self.folder / "processes.json").read_text())
        except FileNotFoundError:
            return {}
        return seen

    def _is_supervised(self) -> bool:
        return self._report().get("supervisor", -1) in self.group.pids()

    def _has_service_account(self) -> bool:
        return self.api.get("/api/v1/namespaces/default/serviceaccounts/default") is not None

    def _require_progress(self) -> None:
        """Raise ``StartError`` if waiting is useless: a process keeps exiting, or there is no supervisor."""
        for process in self.status():
            if not process.pid and process.starts >= ENDED_TOO_OFTEN:
                raise StartError(f"{process.name} exits with status {process.status}", hint=self.log_tail(process.name))
        if not self.group.pids():
            raise StartError(f"the control plane in {self.folder} has ended", hint=self.log_tail("supervisor"))

    def _choose_port(self) -> None:
        path = self.folder / "port"
        if not self._port and not path.exists():
            with socket.socket() as probe:
                probe.bind((self.address, 0))
                write_atomic(path, str(probe.getsockname()[1]))

    def _require_port(self) -> None:
        with socket.socket() as probe:
            # Like the API server: connections that are being closed do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.address, self.port))
            except OSError as error:
                message = f"the API server cannot listen on {self.address}:{self.port}: {error.strerror}"
                raise ClusterError(
                    message.lower(), hint=f"find the process that does: ss -tlnp sport = :{self.port}"
                ) from error

    def _write_kubeconfigs(self) -> None:
        layout = self._layout()
        for client in (ADMIN, CONTROLLER_MANAGER, SCHEDULER):
            write_atomic(layout.kubeconfig(client), self.render_kubeconfig(client), 0o600)
        self._write_scheduler_config()

    def _write_scheduler_config(self) -> None:
        layout = self._layout()
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(layout.kubeconfig(SCHEDULER))},
            "leaderElection": {"leaderElect": False},
            "extenders": list(self.extenders),
        }
        write_atomic(self.folder / SCHEDULER_CONFIG, json.dumps(config))

    def render_kubeconfig(self, client: str) -> str:
        """Return the kubeconfig of a client that has a certificate."""
        return render_kubeconfig(self._layout().server, self.certificates, client)

    def _spawn(self, owner: int) -> None:
        layout = self._layout()
        (self.folder / "logs").mkdir(exist_ok=True)
        components = [
            {
                "name": part.name,
                "argv": part.argv,
                "log": str(self.log(part.name).absolute()),
                "needs_api": part.needs_api,
            }
            for part in plan_components(layout)
        ]
        config = {
            "groups": [str(folder) for folder in self.group.create()],
            "owner": owner,
            "folder": str(layout.folder),
            "address": self.address,
            "port": self.port,
            "report": str(layout.folder / "processes.json"),
            "components": components,
        }
        (self.folder / "processes.json").unlink(missing_ok=True)
        path = layout.folder / "supervisor.json"
        write_atomic(path, json.dumps(config, indent=1))
        with self.log("supervisor").open("ab") as log:
            # setsid --fork: the supervisor has no parent, so that the control plane outlives this command.
            command = ["setsid", "--fork", sys.executable, "-I", str(SUPERVISOR), str(path)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait_for_supervisor()

    def _wait_for_supervisor(self) -> None:
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while not self._is_supervised():
            if time.monotonic() > deadline:
                raise StartError("the control plane's supervisor did not start", hint=self.log_tail("supervisor"))
            time.sleep(POLL_S)
