"""The controller upgrades a fleet that is in use, and takes grapnel off again: Jobs on real kubelets, real drains."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e import controller_image, daemonset, test_controller
from tests.e2e.api import identities
from tests.e2e.fleet import look, look_at_all
from tests.e2e.manifests import LOOKED, STAY, TEST, container, deployment, disruption_budget, pod
from tests.e2e.stage import DAEMON
from tests.e2e.test_controller import POOL, STACK, controller
from tests.e2e.test_drain import TAKE, running
from tests.e2e.waiting import for_each, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lab.cluster import Cluster
    from tests.e2e.operator import Operator
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

cluster = test_controller.cluster
END_S = 900.0  # of a node, on a machine with other work
UPGRADE = "grapnel.dev/upgrade"
NEXT_BRANCH = "550.163.01"  # which Debian 12 does not have: the nodes of the pools are of Debian 13
IN_PODS = "in-pods"  # the stack whose node daemon is a pod
WORKS = container(image=TEST, command=["gpu-test", "hold"], gpus=1)
ASK_DRIVER = f"nvidia-smi --query-gpu=driver_version --format=csv,noheader && echo {LOOKED}"
ROLLOUT = {
    "maxUnavailable": 1,
    "soakMinutes": 0,
    "waitFor": {"podSelector": "app=train"},
}
TOGETHER = "maxUnavailable: 2\nmaxParallel: 2\n"  # both go back, in the time of one
MAPPED = """\
import glob
for process in glob.glob("/proc/[0-9]*"):
    try:
        words = open(f"{process}/cmdline").read().split("\\0")
        if "--in-pod" in words:
            paths = {line.split()[-1] for line in open(f"{process}/maps") if "libnvidia-ml" in line}
            print(*(path.rpartition("/")[2] for path in paths if path.startswith("/host/")))
    except OSError:
        pass
"""


@pytest.fixture
def nodes(
    lab_nodes: tuple[LabNode, ...], stage: Stage, cluster: Cluster, operator: Operator
) -> Iterator[tuple[LabNode, LabNode]]:
    """Two nodes with the image, each of a pool of its own; what is done to them is undone by the operator."""
    pools = {"a": lab_nodes[0], "b": lab_nodes[1]}
    for_each(pools.values(), controller_image.load)
    for pool, node in pools.items():
        cluster.kubectl(["label", "node", node.name, f"{POOL}={pool}"])
    yield pools["a"], pools["b"]
    for node in pools.values():
        cluster.kubectl(["label", "node", node.name, f"{POOL}-"])
        gone = [f"grapnel.dev/{name}-" for name in ("as-declared", "failed")]
        cluster.kubectl(["annotate", "node", node.name, *gone])
    version = version_of(stage, lab_nodes[2:])
    for_each(pools.values(), lambda node: node.node.install_module(version))
    operator.declare(version, TOGETHER)
    operator.converge(*pools.values())
    operator.declare(version)
    for_each(pools.values(), stage.wait_until_settled)


def version_of(stage: Stage, nodes: tuple[LabNode, ...]) -> str:
    """Return the driver that all of these have."""
    (version,) = {state.module for state in look_at_all(stage, nodes).values()}
    return version


def declare(cluster: Cluster, version: str, *, stack: str = STACK, pool: str = "a", **more: object) -> None:
    spec = {
        "nodeSelector": {"matchLabels": {POOL: pool}},
        "driver": {"version": version, "kernelModule": "none"},
        "rollout": ROLLOUT,
        **more,
    }
    document = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "metadata": {"name": stack}, "spec": spec}
    cluster.kubectl(["apply", "--server-side", "-f", "-"], input_text=json.dumps(document))


def declare_in_pods(cluster: Cluster, version: str) -> None:
    declare(cluster, version, stack=IN_PODS, pool="b", plugin={"daemon": "daemonset"})


def status(cluster: Cluster, stack: str = STACK) -> dict[str, Any]:
    return test_controller.status(cluster, stack)


def is_done(cluster: Cluster, stack: str) -> bool:
    return status(cluster, stack).get("state") == "AsDeclared"


def phase_of(stage: Stage, node: LabNode) -> str:
    return str((stage.api.node(node.name).metadata.labels or {}).get(UPGRADE, ""))


def test_fleets_in_use_go_to_the_next_branch_and_are_given_back(
    room: Room, stage: Stage, nodes: tuple[LabNode, LabNode], cluster: Cluster, tmp_path: Path
) -> None:
    """Of two pools side by side: one in use in every way, and one whose node daemon is a pod.

    In the first one a Job is waited for, a budget blocks, and a pod uses a GPU that nobody gave it; its stack is
    deleted at the end.
    """
    first, second = nodes
    version = version_of(stage, nodes)
    assert version.startswith("535.")
    first.node.install_module(NEXT_BRANCH)
    put_in_use(room, first)
    declare(cluster, NEXT_BRANCH, whenDeleted="Remove")
    declare_in_pods(cluster, version)

    with daemonset.installed(cluster, stage, second), controller(cluster, tmp_path) as run:

        def evidence() -> str:
            told = [json.dumps(status(cluster, stack), indent=1) for stack in (STACK, IN_PODS)]
            return "\n".join([*told, run.log.read_text(), room.evidence()])

        def wait(what: str, condition: Callable[[], bool]) -> None:
            wait_for(what, lambda: run.is_there() and condition(), timeout_s=END_S, evidence=evidence)

        wait("it waits for the job", lambda: phase_of(stage, first) == "wait-for-jobs")
        wait("the other one's daemon is a pod", lambda: is_done(cluster, IN_PODS))
        daemon = daemonset.daemon_pod(stage)
        before = identities(daemon_of(stage))
        stage.wait_until_settled(second)
        assert mapped(stage, daemon) == [library(version)]
        second.node.install_module(NEXT_BRANCH)
        declare_in_pods(cluster, NEXT_BRANCH)

        room.api.delete_pod(room.name, "train")  # the end of its work
        wait("the budget holds it up", lambda: holds_up(cluster, first))
        cluster.kubectl(["delete", "poddisruptionbudget", "web", "-n", room.name])
        wait("the first is upgraded", lambda: is_done(cluster, STACK))
        wait("so is the second", lambda: is_done(cluster, IN_PODS))
        for node in nodes:
            state = look(stage, node)
            found = (state.module, state.package, state.phase, state.is_cordoned)
            assert found == (NEXT_BRANCH, NEXT_BRANCH, "done", False)
        assert "taker" not in [each.metadata.name for each in room.api.pods(room.name)], evidence()
        wait_for("the Deployment is back", lambda: running(room, "web"), evidence=room.evidence)

        same = (daemonset.daemon_pod(stage), identities(daemon_of(stage)))
        assert same == (daemon, before), "it was not started again"
        assert second.state(DAEMON) == "inactive"
        assert mapped(stage, daemon) == [library(NEXT_BRANCH)]
        stage.wait_until_settled(second)
        assert_offers(room, stage, second, NEXT_BRANCH)

        room.clear()
        cluster.kubectl(["delete", "gpustack", STACK, IN_PODS, "--wait=false"])
        wait("grapnel is off the node", lambda: not cluster.kubectl(["get", "gpustacks", "-o", "name"]).strip())
        assert_given_back(stage, cluster, first)


def put_in_use(room: Room, node: LabNode) -> None:
    """Have a job, a Deployment with a budget, and a pod that takes a GPU which nobody gave it run on a node."""
    room.start(
        pod("train", container(script=STAY), node=node.name, runtime_class=""),
        deployment("web", 2, WORKS, node=node.name),
        disruption_budget("web", min_available=2),
        pod("taker", container(script=TAKE, privileged=True), node=node.name, runtime_class=""),
    )
    room.wait_running(["train", "taker"])
    wait_for("the Deployment's pod runs", lambda: running(room, "web"), evidence=room.evidence)


def assert_offers(room: Room, stage: Stage, node: LabNode, version: str) -> None:
    """Hold a node to what a pod with a GPU finds, and to its label."""
    used = room.run(pod("after", container(script=ASK_DRIVER, gpus=1), node=node.name))
    assert used["after"].logs["main"].split() == [version, LOOKED]
    labels = stage.api.node(node.name).metadata.labels
    assert labels["nvidia.com/cuda.driver-version.full"] == version


def assert_given_back(stage: Stage, cluster: Cluster, node: LabNode) -> None:
    """Hold a node, whose stack was deleted, to being without grapnel."""
    assert not node.node.root.joinpath("usr/lib/grapnel").exists()
    assert not node.node.root.joinpath("etc/grapnel/node.json").exists()
    assert not stage.api.node(node.name).spec.unschedulable
    assert UPGRADE not in (stage.api.node(node.name).metadata.annotations or {})
    wait_for("its Jobs are gone", lambda: are_gone(cluster), evidence=lambda: str(test_controller.jobs(cluster)))


def are_gone(cluster: Cluster) -> bool:
    """Tell whether nothing but daemons is left of what runs on nodes."""
    return all(each.startswith("pod/grapnel-node-") for each in test_controller.jobs(cluster))


def holds_up(cluster: Cluster, node: LabNode) -> bool:
    """Tell whether the status names the budget that keeps a node from being drained."""
    found = [each["message"] for each in status(cluster).get("troubles", []) if each["node"] == node.name]
    return any("web" in each for each in found)


def daemon_of(stage: Stage) -> Any:
    (found,) = stage.api.pods(daemonset.NAMESPACE, daemonset.SELECTOR)
    return found


def mapped(stage: Stage, daemon: str) -> list[str]:
    """Return which libraries of the host's NVML the processes of the daemon have mapped."""
    return stage.api.run_in(daemonset.NAMESPACE, daemon, "daemon", ["python3", "-c", MAPPED]).split()


def library(version: str) -> str:
    return f"libnvidia-ml.so.{version}"
