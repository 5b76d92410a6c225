"""How the replacement of a pod comes to be ready elsewhere; with real controllers: ``test_replacements_itself``."""

from __future__ import annotations

import msgspec
import pytest

from provision.cluster.kubernetes.pods.evictions.replacements import Impossible, Leave, Restart, Step, Wait, next_step
from provision.cluster.kubernetes.pods.evictions.workloads import Deployment, Replica, ReplicaSet

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
PENDING = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}
STUCK = {"type": "Progressing", "status": "False", "message": "quota exceeded"}


def deployment(*, revision: int = 1, seen: int = 1, conditions: tuple[object, ...] = (), **spec: object) -> Deployment:
    return msgspec.convert(
        {
            "metadata": {
                "name": "web",
                "namespace": "shop",
                "generation": 1,
                "annotations": {"deployment.kubernetes.io/revision": str(revision)},
            },
            "spec": {"replicas": 1} | spec,
            "status": {"observedGeneration": seen, "conditions": conditions},
        },
        Deployment,
    )


def replica(name: str, node: str = "n1", *, of: str = "web-old", status: object = READY, **meta: object) -> Replica:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": of, "uid": of, "controller": True}
    spec = {"nodeName": node, "tolerations": meta.pop("tolerations", ())}
    return msgspec.convert(
        {
            "metadata": {"namespace": "shop", "name": name, "uid": name, "ownerReferences": [owner]} | meta,
            "spec": spec,
            "status": status,
        },
        Replica,
    )


OLD_SET = msgspec.convert(
    {"metadata": {"name": "web-old", "annotations": {"deployment.kubernetes.io/revision": "1"}}}, ReplicaSet
)
POD = replica("web-1")


def update(surge: object, unavailable: object) -> dict[str, object]:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


@pytest.mark.parametrize(
    ("found", "others", "expected"),
    [
        pytest.param(deployment(), (), Restart(), id="one replica, with the defaults of a Deployment"),
        pytest.param(deployment(replicas=2), (replica("web-2"),), Restart(), id="all replicas on this node"),
        pytest.param(deployment(strategy=update("1%", 0)), (), Restart(), id="a percentage of surge is rounded up"),
        pytest.param(
            deployment(strategy=update("0%", 1)),
            (),
            Impossible("maxSurge of Deployment web is 0: it starts no pod before it ends another one"),
            id="no surge",
        ),
        pytest.param(
            deployment(strategy=update(1, "100%")),
            (),
            Impossible("maxUnavailable of Deployment web lets it end all of its pods at once"),
            id="the rollout itself may end the only pod",
        ),
        pytest.param(
            deployment(replicas=2),
            (replica("web-2", "n2"),),
            Leave(),
            id="another replica is ready elsewhere",
        ),
        pytest.param(
            deployment(replicas=3),
            (replica("web-2", "n2"), replica("web-3", "n2", status={})),
            Wait("waits until all pods of Deployment web are ready, which 2 of 3 are"),
            id="one elsewhere is not ready",
        ),
        pytest.param(
            deployment(replicas=2),
            (replica("web-2", "n2", deletionTimestamp="2026-11-23T09:00:00Z"),),
            Restart(),
            id="what is ending elsewhere does not count",
        ),
        pytest.param(
            deployment(seen=0),
            (),
            Wait("waits for Deployment web to start its replacement"),
            id="its controller has not acted yet",
        ),
        pytest.param(
            deployment(revision=2, conditions=(STUCK,)),
            (),
            Wait("waits for Deployment web to start its replacement: quota exceeded"),
            id="no replacement comes, and its controller says why",
        ),
        pytest.param(
            deployment(revision=2),
            (replica("web-9", "", of="web-new", status=PENDING),),
            Wait("waits for its replacement shop/web-9, which has no node yet: 0/3 nodes are available"),
            id="the replacement has no node",
        ),
        pytest.param(
            deployment(revision=2, conditions=(STUCK,)),
            (replica("web-9", "n2", of="web-new", status={}),),
            Wait("waits for its replacement shop/web-9 on node n2 to be ready: quota exceeded"),
            id="the replacement is not ready",
        ),
        pytest.param(
            deployment(revision=2, paused=True),
            (replica("web-9", "n2", of="web-new"),),
            Wait(
                "its replacement shop/web-9 is ready, and Deployment web is to end it, which is paused: "
                "`kubectl rollout resume` ends that"
            ),
            id="the replacement is ready, and the Deployment paused",
        ),
        pytest.param(
            deployment(paused=True),
            (),
            Wait("Deployment web is paused, and starts no replacement: `kubectl rollout resume` ends that"),
            id="paused before",
        ),
    ],
)
def test_of_a_pod(found: Deployment, others: tuple[Replica, ...], expected: Step) -> None:
    assert next_step(POD, OLD_SET, found, (POD, *others)) == expected


@pytest.mark.parametrize(
    ("toleration", "is_possible"),
    [
        pytest.param({"operator": "Exists"}, False, id="every taint"),
        pytest.param({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}, False, id="a cordon"),
        pytest.param({"key": "node.kubernetes.io/unschedulable", "effect": "NoExecute"}, True, id="another effect"),
        pytest.param({"key": "nvidia.com/gpu", "operator": "Exists"}, True, id="another taint"),
    ],
)
def test_a_pod_that_would_come_back_to_a_cordoned_node(toleration: dict[str, str], *, is_possible: bool) -> None:
    pod = replica("web-1", tolerations=(toleration,))

    step = next_step(pod, OLD_SET, deployment(), (pod,))

    why = "it tolerates cordoned nodes, so that its replacement may come to the same one"
    assert step == (Restart() if is_possible else Impossible(why))
