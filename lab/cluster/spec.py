"""Defines a cluster's specification: plain values, nothing touches the machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

DRIVER_MODULE = "535.261.03"
MIB = 1 << 20
CONTROL_PLANE_BYTES = 900 * MIB
NODE_BYTES = 400 * MIB
MARGIN_BYTES = 900 * MIB  # for pods, and for software installed on the nodes later


def available_memory_bytes(meminfo: str) -> int:
    """Return ``MemAvailable`` from /proc/meminfo, in bytes."""
    line = next(line for line in meminfo.splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024


class Engine(StrEnum):
    """The container engine of a node."""

    CONTAINERD_2 = "containerd 2"  # built from its module, in /usr/local as upstream ships it
    PACKAGED = "packaged containerd"  # the suite's own package
    CRIO = "CRI-O"  # built from its module, in /usr/local


@dataclass(frozen=True)
class ClusterNode:
    """A node of the cluster.

    ``system`` is a name of ``lab.sources``: such a node has neither engine nor driver, and joins later.
    """

    name: str
    suite: str = "trixie"
    engine: Engine = Engine.PACKAGED
    gpus: int = 4
    driver_module: str = DRIVER_MODULE
    system: str = ""


@dataclass(frozen=True)
class ClusterSpec:
    """The nodes of a cluster."""

    nodes: tuple[ClusterNode, ...]

    @property
    def required_memory_bytes(self) -> int:
        """The memory that the machine must have left before the cluster is started."""
        return CONTROL_PLANE_BYTES + NODE_BYTES * len(self.nodes) + MARGIN_BYTES

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that is kept in the cluster's folder."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ClusterSpec:
        """Read what ``to_json`` made."""
        return cls(tuple(ClusterNode(**{**node, "engine": Engine(node["engine"])}) for node in values["nodes"]))


DEFAULT = ClusterSpec(
    nodes=(
        ClusterNode("n1", engine=Engine.CONTAINERD_2),
        ClusterNode("n2"),
        ClusterNode("n3", suite="bookworm"),
    )
)
WITH_CRIO = ClusterSpec((*DEFAULT.nodes, ClusterNode("n4", engine=Engine.CRIO)))
