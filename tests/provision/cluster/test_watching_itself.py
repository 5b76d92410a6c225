"""A real API server that is watched: events, deletions, and a restart."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from provision.cluster.kubernetes.watch.informer import FEW
from provision.rollout.errors import UnreachableError
from provision.rollout.interface.cluster import EvictionOutcome, NodeProblem
from provision.rollout.model import NodeView
from tests.provision.cluster.samples import RECORD
from tests.provision.cluster.stage import wait_until

if TYPE_CHECKING:
    from provision.cluster.kubernetes.cluster import KubernetesCluster
    from provision.rollout.model import GpuPod
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional


def view(cluster: KubernetesCluster, names: list[str]) -> NodeView:
    seen = cluster.observe(names)[names[0]]
    assert isinstance(seen, NodeView)
    return seen


@pytest.mark.parametrize("size", [1, FEW + 1], ids=["one node", "the whole cluster"])
def test_a_real_server_tells_of_what_happens_to_nodes_and_pods(stage: Stage, size: int) -> None:
    cluster, woken = stage.connect(), threading.Event()
    names = [stage.make_node() for _ in range(size)]
    cluster.observe(names)
    with cluster.watching(names, woken.set):
        first = cluster.observe(names)
        cluster.write(names[0], RECORD, cordoned=True)
        pod = stage.make_pod(names[0])
        stage.run_pod(pod)
        wait_until(lambda: [each.name for each in view(cluster, names).gpu_pods] == [pod], "the pod is seen")
        assert woken.is_set()
        assert all(cluster.observe(names)[name] is first[name] for name in names[1:])

        (answer,) = cluster.evict_all(view(cluster, names).gpu_pods).values()
        assert answer.outcome is EvictionOutcome.EVICTED
        wait_until(lambda: view(cluster, names).gpu_pods[0].is_terminating, "it is seen to end")
        stage.kubectl("delete", "pod", pod, "--force", "--grace-period=0")
        wait_until(lambda: not view(cluster, names).gpu_pods, "it is seen to have gone")
        assert view(cluster, names).record == RECORD

        stage.kubectl("delete", "node", names[0])
        wait_until(lambda: isinstance(cluster.observe(names)[names[0]], NodeProblem), "the node is seen to be gone")


def test_a_real_server_that_restarts_is_watched_on(stage: Stage) -> None:
    cluster, names = stage.connect(), [stage.make_node() for _ in range(FEW + 1)]
    cluster.observe(names)
    with cluster.watching(names, lambda: None):
        stage.control_plane.kill()
        stage.control_plane.start(is_bound=True)
        pod = stage.make_pod(names[0])
        wait_until(lambda: [each.name for each in seen_pods(cluster, names)] == [pod], "the pod is seen")


def seen_pods(cluster: KubernetesCluster, names: list[str]) -> list[GpuPod]:
    try:
        return list(view(cluster, names).gpu_pods)
    except UnreachableError:  # for as long as it takes to come back
        return []
