"""Reads a cluster's status from the API's objects and renders it as tables. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RESOURCE = "nvidia.com/gpu"


@dataclass(frozen=True)
class ProcessStatus:
    """A process of the control plane: ``pid`` is 0 if it is not running, ``status`` its last exit status."""

    name: str
    pid: int
    starts: int
    status: int | None
    log: Path


@dataclass(frozen=True)
class NodeState:
    """A node: whether its machine is running, and the values of its Node object ("" and 0 without one)."""

    name: str
    address: str
    is_running: bool
    is_ready: bool = False
    is_cordoned: bool = False
    message: str = "not registered"
    engine: str = ""
    kubelet: str = ""
    boot_id: str = ""
    gpus: int = 0


@dataclass(frozen=True)
class PodState:
    """A pod at a glance."""

    namespace: str
    name: str
    phase: str
    node: str


@dataclass(frozen=True)
class ClusterStatus:
    """Everything that ``status`` shows; no pods are known while the API server does not answer."""

    processes: tuple[ProcessStatus, ...]
    nodes: tuple[NodeState, ...]
    pods: tuple[PodState, ...]


def parse_node(name: str, address: str, *, is_running: bool, seen: dict[str, Any] | None) -> NodeState:
    """Return the state of a node from its Node object (None: there is none, or the API server does not answer)."""
    if seen is None:
        return NodeState(name, address, is_running)
    status = seen.get("status", {})
    ready: dict[str, str] = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
    info = status.get("nodeInfo", {})
    return NodeState(
        name,
        address,
        is_running,
        is_ready=ready.get("status") == "True",
        is_cordoned=bool(seen.get("spec", {}).get("unschedulable")),
        message=ready.get("message", "no Ready condition yet"),
        engine=info.get("containerRuntimeVersion", ""),
        kubelet=info.get("kubeletVersion", ""),
        boot_id=info.get("bootID", ""),
        gpus=int(status.get("allocatable", {}).get(RESOURCE, 0)),
    )


def parse_pod(seen: dict[str, Any]) -> PodState:
    """Return the state of a pod from its object."""
    metadata, phase = seen["metadata"], seen.get("status", {}).get("phase", "Unknown")
    if "deletionTimestamp" in metadata:
        phase = "Terminating"
    return PodState(metadata["namespace"], metadata["name"], phase, seen.get("spec", {}).get("nodeName", "-"))


def render(status: ClusterStatus) -> str:
    """Return the tables of a status."""
    processes = [("CONTROL PLANE", "PID", "STARTS", "ENDED WITH")]
    processes += [
        (p.name, str(p.pid or "-"), str(p.starts), "-" if p.status is None else str(p.status)) for p in status.processes
    ]
    nodes = [("NODE", "STATE", "ADDRESS", "KUBELET", "ENGINE", "GPUS")]
    nodes += [(n.name, _state(n), n.address, n.kubelet or "-", n.engine or "-", str(n.gpus)) for n in status.nodes]
    pods = [("POD", "NAMESPACE", "PHASE", "NODE")]
    pods += [(p.name, p.namespace, p.phase, p.node) for p in status.pods]
    return "\n\n".join("\n".join(_align(table)) for table in (processes, nodes, pods) if len(table) > 1)


def _state(node: NodeState) -> str:
    if not node.is_running:
        return "off"
    return f"{'Ready' if node.is_ready else 'NotReady'}{',cordoned' if node.is_cordoned else ''}"


def _align(table: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
