"""Puts a fleet on an API server of its own, and looks at that server's processes."""

from __future__ import annotations

import contextlib
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench.fleets import objects
from bench.fleets.kubelets import Agents, kwok
from bench.fleets.machines import Machines
from bench.fleets.processes import cpu_s, memory_mib, wait
from bench.fleets.requests import count
from lab.cluster import ControlPlane
from provision.cluster.connect import open_api
from provision.cluster.kubernetes.api.exchange import MERGE_PATCH, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from provision.cluster.kubernetes.api.client import Api

ROOT: Final = Path(__file__).resolve().parents[2]
AT_ONCE: Final = 24  # who make objects
ROLLED_S: Final = 3600.0
SERVER: Final = ("kube-apiserver", "etcd")
MANAGER: Final = "kube-controller-manager"


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster without machines. ``player`` is the process that plays its kubelets, 0 where nobody does."""

    api: Api
    control_plane: ControlPlane
    kubelet_port: int
    player: int

    @classmethod
    @contextlib.contextmanager
    def running(cls, *, is_played: bool) -> Iterator[Stage]:
        """Run an API server, and KWOK where kubelets are to be played, while inside."""
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="grapnel-bench-")))
            control_plane = stack.enter_context(ControlPlane(folder, node_grace_s=86_400).running())
            crd = str(ROOT / "deploy/crd/gpustacks.yaml")
            control_plane.kubectl(["apply", "-f", crd])
            control_plane.kubectl(["wait", "--for=condition=Established", "--timeout=60s", "-f", crd])
            control_plane.kubectl(["create", "namespace", objects.NAMESPACE])
            api = open_api(control_plane.kubeconfig, None, {})
            assert api is not None
            port = stack.enter_context(Agents(api, Machines()).serving(folder))
            player = stack.enter_context(kwok(control_plane.kubeconfig, folder)) if is_played else 0
            yield cls(api, control_plane, port, player)

    def make(self, nodes: int, pods_per_node: int) -> None:
        """Make Nodes, and pods that run on them; without kubelets, pods stay as they are made."""
        names = objects.names_of(nodes)
        self._each(lambda name: self.send("POST", objects.NODES, objects.node(name, self.kubelet_port)), names)
        path = f"/api/v1/namespaces/{objects.NAMESPACE}/pods"
        pods = [(name, number) for name in names for number in range(pods_per_node)]
        self._each(lambda pod: self.send("POST", path, objects.pod(*pod)), pods)
        if self.player:
            pending: dict[str, str | int] = {"fieldSelector": "status.phase=Pending"}
            wait(lambda: not count(self.api, path, pending), "every pod runs", 900, poll_s=1.0)

    def _each(self, make: Callable[[Any], None], things: list[Any]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(make, things))

    def send(self, method: str, path: str, body: dict[str, Any]) -> None:
        """Change something as the administrator."""
        kind = MERGE_PATCH if method == "PATCH" else "application/json"
        self.api.call(Request(method=method, path=path, body=body, content_type=kind), msgspec.Raw)

    def declare(self, version: str) -> None:
        """Declare another driver for all nodes."""
        self.send("PATCH", f"{objects.STACKS}/all", {"spec": {"driver": {"version": version}}})

    def wait_for(self, state: str, as_declared: int) -> float:
        """Wait for the status of the stack; return how long that took."""
        began = time.monotonic()

        def is_so() -> bool:
            request = Request(method="GET", path=f"{objects.STACKS}/all")
            found = msgspec.json.decode(bytes(self.api.call(request, msgspec.Raw)))
            status = found.get("status", {})
            is_now = status.get("observedGeneration") == found["metadata"]["generation"]
            return is_now and (status.get("state"), status["nodes"]["asDeclared"]) == (state, as_declared)

        wait(is_so, f"the stack is {state} with {as_declared} nodes as declared", ROLLED_S, poll_s=0.2)
        return time.monotonic() - began

    def wait_for_marks(self, nodes: int) -> None:
        """Wait until every Node says what it was brought to."""

        def marked() -> bool:
            found = self.api.list_all(objects.NODES, _Node)
            return sum("grapnel.dev/as-declared" in each.metadata.annotations for each in found) == nodes

        wait(marked, "every Node is marked", 900, poll_s=1.0)

    def pids(self, *names: str) -> list[int]:
        """Return the numbers of the control plane's processes of these names."""
        return [each.pid for each in self.control_plane.status() if each.name in names]

    def server_cpu_s(self) -> float:
        """Return the CPU time that API server and etcd have used."""
        return sum(map(cpu_s, self.pids(*SERVER)))

    def manager_cpu_s(self) -> float:
        """Return the CPU time that kube-controller-manager has used."""
        return sum(map(cpu_s, self.pids(MANAGER)))

    def server_mib(self) -> float:
        """Return the memory of the API server."""
        return sum(map(memory_mib, self.pids(SERVER[0])))


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] = {}


class _Node(msgspec.Struct, frozen=True):
    metadata: _Metadata
