"""Runs a real Kubernetes with booted nodes on this machine.

    cluster = Cluster("stage")
    cluster.up()                                        # returns when every node is Ready
    cluster.kubectl(["get", "nodes"])
    cluster.down()

``ControlPlane`` also works alone: an API server for tests, without nodes.
"""

from lab.cluster.cluster import Cluster
from lab.cluster.control_plane import ControlPlane
from lab.cluster.errors import ClusterError, StartError
from lab.cluster.spec import DEFAULT, WITH_CRIO, ClusterNode, ClusterSpec, Engine

__all__ = [
    "DEFAULT",
    "WITH_CRIO",
    "Cluster",
    "ClusterError",
    "ClusterNode",
    "ClusterSpec",
    "ControlPlane",
    "Engine",
    "StartError",
]
