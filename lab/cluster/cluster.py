"""Manages a cluster: a control plane on this machine and a site of booted nodes with the same name."""

from __future__ import annotations

import functools
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cluster.control_plane import ControlPlane
from lab.cluster.errors import ClusterError, StartError
from lab.cluster.node_files import KUBELET_UNITS, furnish, plan_node
from lab.cluster.spec import DEFAULT, ClusterSpec, available_memory_bytes
from lab.cluster.status import ClusterStatus, NodeState, parse_node, parse_pod
from lab.machine.folders import write_atomic
from lab.machine.lock import locked
from lab.nodes import Node, NodeSpec, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lab.cluster.spec import ClusterNode

API_PORT = 26443  # on the site's own address; other programs bind 6443 and 16443 on every address of a machine
NODES_TIMEOUT_S = 120.0
LOCK_WAIT_S = 10.0
POLL_S = 0.2
MEMINFO = Path("/proc/meminfo")
GIB = 1 << 30
JOURNAL_LINES = "12"
UNITS = ("kubelet", "containerd", "crio", "lab-images", "lab-service")


class Cluster:
    """The cluster called ``name``; ``report`` is called with each phase of a start."""

    def __init__(self, name: str = "stage", *, report: Callable[[str], None] = lambda _: None) -> None:
        self.site = Site(name)
        self.name = name
        self.folder = self.site.folder / "cluster"
        self._report = report

    @property
    def control_plane(self) -> ControlPlane:
        """The control plane, on the site's own address; ``ClusterError`` if there is no such cluster."""
        self._require_there()
        address = self.site.bridge.host_address
        return ControlPlane(self.folder, address, API_PORT, group=f"{self.site.bridge_name}.control-plane")

    @property
    def spec(self) -> ClusterSpec:
        """The nodes that it was created with; ``ClusterError`` if there is no such cluster."""
        self._require_there()
        return ClusterSpec.from_json(json.loads(self._spec_path.read_text()))

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.control_plane.kubeconfig

    def kubectl(self, arguments: Sequence[str], *, input_text: str | None = None) -> str:
        """Run kubectl as the administrator; return what it prints. ``CommandError`` if it fails."""
        return self.control_plane.kubectl(arguments, input_text=input_text)

    def up(self, spec: ClusterSpec = DEFAULT, *, timeout_s: float = NODES_TIMEOUT_S) -> None:
        """Create and start whatever is missing; return when every node is Ready.

        ``timeout_s`` limits how long each node may take to get Ready after its machine has started.
        Raises ``ClusterError`` before anything starts, ``StartError`` or another ``LabError`` with what was logged.
        """
        with self._lock():
            self._require_place(spec)
            planned = {node: plan_node(node, self._report) for node in spec.nodes}
            self._require_same(planned)
            self.site.open()
            self._remember(spec)
            control_plane = self.control_plane
            control_plane.launch()
            with ThreadPoolExecutor(len(planned)) as pool:
                add = functools.partial(furnish, control_plane, len(planned))
                booting = [
                    pool.submit(self.site.up, made, functools.partial(add, node)) for node, made in planned.items()
                ]
                control_plane.wait_ready()
                self._report("control plane is ready")
                for booted in booting:
                    self._report(f"{booted.result().name} has started")
            for node in spec.nodes:
                self._wait_ready(node.name, timeout_s)
                self._report(f"{node.name} is Ready")

    def prepare(self, node: ClusterNode) -> Node:
        """Boot one more machine, with a kubelet and without an engine: once it has one, `join` makes it a node."""
        with self._lock():
            made = plan_node(node, self._report)
            return self.site.up(made, functools.partial(furnish, self.control_plane, len(self.spec.nodes) + 1, node))

    def join(self, name: str, *, timeout_s: float = NODES_TIMEOUT_S) -> None:
        """Start a prepared machine's kubelet, as `kubeadm join` does; return when its node is Ready."""
        self.site.node(name).run(["systemctl", "enable", "--now", *KUBELET_UNITS])
        self._wait_ready(name, timeout_s)

    def leave(self, name: str) -> None:
        """Stop a prepared machine's kubelet and forget its node, as `kubeadm reset` and `kubectl delete node` do."""
        self.site.node(name).run(["systemctl", "disable", "--now", *KUBELET_UNITS])
        self.kubectl(["delete", "node", name, "--ignore-not-found"])

    def down(self) -> None:
        """Remove everything that belongs to the cluster, even after a crash."""
        with self._lock():
            self.site.destroy()

    def status(self) -> ClusterStatus:
        """Return the state of every component; ``ClusterError`` if there is no such cluster."""
        control_plane = self.control_plane
        pods = control_plane.api.get("/api/v1/pods") or {"items": []}
        return ClusterStatus(
            tuple(control_plane.status()),
            tuple(self._state(node) for node in self.site.nodes()),
            tuple(parse_pod(pod) for pod in pods["items"]),
        )

    @property
    def _spec_path(self) -> Path:
        return self.folder / "cluster.json"

    def _lock(self) -> AbstractContextManager[None]:
        """Return the lock for changes to the whole cluster; the site locks each of its own steps."""
        return locked(self.site.folder.with_name(f".{self.name}.cluster.lock"), wait_s=LOCK_WAIT_S)

    def _state(self, node: Node) -> NodeState:
        seen = self.control_plane.api.get(f"/api/v1/nodes/{node.name}")
        return parse_node(node.name, node.address, is_running=node.is_running, seen=seen)

    def _wait_ready(self, name: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        node = self.site.node(name)
        boot_id = (node.root / "proc/sys/kernel/random/boot_id").read_text().strip()
        state = self._state(node)
        # The API server keeps what the node reported before its last boot.
        while not (state.is_ready and state.boot_id == boot_id):
            if time.monotonic() > deadline:
                problem = state.message if not state.is_ready else "no report from it since its last boot"
                raise StartError(f"node {name} is not Ready after {timeout_s:g} s: {problem}", hint=_journals(node))
            time.sleep(POLL_S)
            state = self._state(node)

    def _require_there(self) -> None:
        if not self._spec_path.exists():
            hint = f"make one: python3 -m lab cluster up --name {self.name}"
            raise ClusterError(f"there is no cluster {self.name}", hint=hint)

    def _require_place(self, spec: ClusterSpec) -> None:
        """Refuse what would fail later: leftovers of a lost folder, not enough capacity for a new cluster."""
        if (self.site.folder / "site.json").exists():
            return  # a second start
        if self.site.has_remains():
            message = f"an older cluster or site {self.name} still exists, but its folder {self.site.folder} does not"
            raise ClusterError(message, hint=f"remove it: python3 -m lab cluster down --name {self.name}")
        available, needed = available_memory_bytes(MEMINFO.read_text()), spec.required_memory_bytes
        if available < needed:
            have, need = (f"{amount / GIB:.1f} GiB" for amount in (available, needed))
            hint = "stop what is not needed: python3 -m lab status shows other sites"
            message = f"{have} of memory is available, a cluster of {len(spec.nodes)} nodes needs {need}"
            raise ClusterError(message, hint=hint)

    def _require_same(self, planned: Mapping[ClusterNode, NodeSpec]) -> None:
        """Refuse nodes that differ from the existing ones."""
        path = self._spec_path
        hint = f"remove it first: python3 -m lab cluster down --name {self.name}"
        spec = ClusterSpec(tuple(planned))
        if path.exists() and self.spec != spec:
            raise ClusterError(f"cluster {self.name} exists with other nodes", hint=hint)
        there = set(self.site.node_names())
        for node, made in planned.items():
            if node.name in there and self.site.node(node.name).spec != made:
                raise ClusterError(f"node {node.name} was made from other programs or images", hint=hint)

    def _remember(self, spec: ClusterSpec) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        write_atomic(self._spec_path, json.dumps(spec.to_json()))


def _journals(node: Node) -> str:
    """Return the ends of the journals that show why a node is not Ready."""
    lines = []
    for unit in UNITS:
        tail = node.run(["journalctl", "-u", unit, "-n", JOURNAL_LINES, "--no-pager", "-o", "cat"], check=False).stdout
        lines += [f"end of the journal of {unit} on {node.name}:", tail]
    return "\n".join(lines)
