"""The controller upgrades a fleet that is in use, and takes grapnel off again: Jobs on real kubelets, real drains."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from lab.images import grapnel as image
from lab.machine.folders import cache_dir
from tasks.environment import uv_path
from tasks.progress import Progress
from tests.e2e import test_controller
from tests.e2e.fleet import look, look_at_all, other_version
from tests.e2e.manifests import STAY, TEST, container, deployment, disruption_budget, pod
from tests.e2e.test_controller import PAYLOAD, POOL, STACK, controller
from tests.e2e.test_drain import TAKE, running
from tests.e2e.waiting import for_each, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import Cluster
    from tests.e2e.operator import Operator
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

cluster = test_controller.cluster
END_S = 900.0  # of two nodes, one after the other, on a machine with other work
UPGRADE = "grapnel.dev/upgrade"
WORKS = container(image=TEST, command=["gpu-test", "hold"], gpus=1)
ROLLOUT = {
    "maxUnavailable": 1,
    "soakMinutes": 0,
    "waitFor": {"podSelector": "app=train"},
}


@pytest.fixture
def nodes(
    lab_nodes: tuple[LabNode, ...], stage: Stage, cluster: Cluster, operator: Operator, tmp_path: Path
) -> Iterator[tuple[LabNode, ...]]:
    """Two nodes of a pool, with the image; what is done to them is undone by the operator."""
    pool = lab_nodes[:2]
    archive = image.build(tmp_path, PAYLOAD, uv_path(Progress(log_dir=cache_dir() / "logs")))
    for_each(pool, lambda node: load(node, archive))
    archive.unlink()
    for node in pool:
        cluster.kubectl(["label", "node", node.name, f"{POOL}=a"])
    yield pool
    for node in pool:
        cluster.kubectl(["label", "node", node.name, f"{POOL}-"])
        gone = [f"grapnel.dev/{name}-" for name in ("as-declared", "failed")]
        cluster.kubectl(["annotate", "node", node.name, *gone])
        node.node.run(["ctr", "-n", "k8s.io", "images", "remove", image.REFERENCE], check=False)
    (version,) = {state.module for state in look_at_all(stage, lab_nodes[2:]).values()} or {""}
    for_each(lab_nodes, lambda node: node.node.install_module(version))
    operator.declare(version)
    operator.converge_fleet()
    for_each(lab_nodes, stage.wait_until_settled)


def load(node: LabNode, archive: Path) -> None:
    """Load the image onto a node."""
    place = node.node.root / "srv" / archive.name
    shutil.copy(archive, place)
    node.node.run(["ctr", "-n", "k8s.io", "images", "import", f"/srv/{archive.name}"])
    place.unlink()


def declare(cluster: Cluster, version: str, **more: object) -> None:
    spec = {
        "nodeSelector": {"matchLabels": {POOL: "a"}},
        "driver": {"version": version, "kernelModule": "none"},
        "rollout": ROLLOUT,
        **more,
    }
    document = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "metadata": {"name": STACK}, "spec": spec}
    cluster.kubectl(["apply", "--server-side", "-f", "-"], input_text=json.dumps(document))


def status(cluster: Cluster) -> dict[str, Any]:
    return test_controller.status(cluster)


def phase_of(stage: Stage, node: LabNode) -> str:
    return str((stage.api.node(node.name).metadata.labels or {}).get(UPGRADE, ""))


def test_a_fleet_in_use_is_upgraded_and_given_back(
    room: Room, stage: Stage, nodes: tuple[LabNode, ...], cluster: Cluster, tmp_path: Path
) -> None:
    """A Job is waited for, a budget blocks, a pod uses a GPU that nobody gave it; the stack is deleted at the end."""
    first = nodes[0]
    version = other_version(stage, nodes)
    for_each(nodes, lambda node: node.node.install_module(version))
    room.start(
        pod("train", container(script=STAY), node=first.name, runtime_class=""),
        deployment("web", 2, WORKS, node=first.name),
        disruption_budget("web", min_available=2),
        pod("taker", container(script=TAKE, privileged=True), node=first.name, runtime_class=""),
    )
    room.wait_running(["train", "taker"])
    wait_for("the Deployment's pod runs", lambda: running(room, "web"), evidence=room.evidence)
    declare(cluster, version, whenDeleted="Remove")

    with controller(cluster, tmp_path) as log:

        def evidence() -> str:
            return f"{json.dumps(status(cluster), indent=1)}\n{log.read_text()}\n{room.evidence()}"

        is_waiting = lambda: phase_of(stage, first) == "wait-for-jobs"  # noqa: E731 - asked again and again
        wait_for("it waits for the job", is_waiting, timeout_s=END_S, evidence=evidence)
        room.api.delete_pod(room.name, "train")  # the end of its work
        wait_for("the budget holds it up", lambda: holds_up(cluster, first), timeout_s=END_S, evidence=evidence)
        cluster.kubectl(["delete", "poddisruptionbudget", "web", "-n", room.name])
        is_done = lambda: status(cluster).get("state") == "AsDeclared"  # noqa: E731 - asked again and again
        wait_for("both are upgraded", is_done, timeout_s=END_S, evidence=evidence)
        for node in nodes:
            state = look(stage, node)
            assert (state.module, state.package, state.phase, state.is_cordoned) == (version, version, "done", False)
        assert "taker" not in [each.metadata.name for each in room.api.pods(room.name)], evidence()
        wait_for("the Deployment is back", lambda: running(room, "web"), evidence=room.evidence)

        room.clear()
        cluster.kubectl(["delete", "gpustack", STACK, "--wait=false"])
        is_gone = lambda: not cluster.kubectl(["get", "gpustacks", "-o", "name"]).strip()  # noqa: E731 - likewise
        wait_for("grapnel is off the nodes", is_gone, timeout_s=END_S, evidence=log.read_text)
        for node in nodes:
            assert not node.node.root.joinpath("usr/lib/grapnel").exists()
            assert not node.node.root.joinpath("etc/grapnel/node.json").exists()
            assert not stage.api.node(node.name).spec.unschedulable
            assert UPGRADE not in (stage.api.node(node.name).metadata.annotations or {})
        wait_for("its Jobs are gone", lambda: test_controller.jobs(cluster) == [])


def holds_up(cluster: Cluster, node: LabNode) -> bool:
    """Tell whether the status names the budget that keeps a node from being drained."""
    found = [each["message"] for each in status(cluster).get("troubles", []) if each["node"] == node.name]
    return any("web" in each for each in found)
