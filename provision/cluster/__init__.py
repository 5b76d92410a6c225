"""Where the state of nodes lives: Kubernetes, or a journal on this machine where there is no cluster.

`connect` chooses. What to do with that state belongs to ``provision.rollout``.
"""

from provision.cluster.connect import connect
from provision.cluster.journal import journal_path
from provision.cluster.local_cluster import LocalCluster
from provision.cluster.model import Cluster, Eviction, EvictionOutcome, Machine, NodeProblem

__all__ = [
    "Cluster",
    "Eviction",
    "EvictionOutcome",
    "LocalCluster",
    "Machine",
    "NodeProblem",
    "connect",
    "journal_path",
]
