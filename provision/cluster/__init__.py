"""Keeps the state of nodes: in Kubernetes, or in a file on this machine where there is no cluster.

`connect` chooses. What the rollout asks of either is ``provision.rollout.interface.cluster``.
"""

from provision.cluster.connect import connect, open_api
from provision.cluster.kubernetes.nodes.others import Asked
from provision.cluster.kubernetes.pods.pod_rules import PodRules, pod_rules
from provision.cluster.local.cluster import LocalCluster
from provision.cluster.local.state_file import state_file_path
from provision.cluster.machine import Machine
from provision.rollout.interface.cluster import Cluster, Eviction, EvictionOutcome, NodeProblem

__all__ = [
    "Asked",
    "Cluster",
    "Eviction",
    "EvictionOutcome",
    "LocalCluster",
    "Machine",
    "NodeProblem",
    "PodRules",
    "connect",
    "open_api",
    "pod_rules",
    "state_file_path",
]
