"""What was declared last comes about, whatever was declared before: real kubelets, Jobs, evictions and DaemonSets.

It takes six minutes: `make crashes` does it (``CRASHES=all``), and `make test` does the same on an API server alone.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e import test_controller, test_controller_upgrade
from tests.e2e.fleet import look
from tests.e2e.manifests import STAY, container, daemon_set, deployment, disruption_budget
from tests.e2e.test_controller import POOL, STACK, controller
from tests.e2e.test_controller_upgrade import NEXT_BRANCH, WORKS, declare, is_done, phase_of, status, version_of
from tests.e2e.test_drain import running
from tests.e2e.test_job_cut_off import SWAP, Scene
from tests.e2e.waiting import for_each, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from lab.cluster import Cluster
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.environ.get("CRASHES") != "all", reason="it takes six minutes: `make crashes` does it"),
]

cluster = test_controller.cluster
nodes = test_controller_upgrade.nodes
AT_ONCE = {"maxUnavailable": 1, "soakMinutes": 0}
SAID_S = 5.0


def test_what_is_declared_last_comes_about(
    room: Room, stage: Stage, nodes: tuple[LabNode, LabNode], cluster: Cluster, tmp_path: Path
) -> None:
    """It is said of a node that it is as declared while it runs exactly that."""
    first, second = nodes
    former = version_of(stage, nodes)
    cluster.kubectl(["label", "node", second.name, f"{POOL}=a", "--overwrite"])
    ask(cluster, former)
    with controller(cluster, tmp_path) as run:
        scene = Scene(stage, cluster, first, run)
        scene.wait("they are as declared", lambda: is_done(cluster, STACK))
        a_drain_is_called_off(scene, room, second, former)
        a_swap_is_taken_back(scene, room, second, former)
        an_uncordon_lets_the_next_one_begin(scene, room, nodes)


def ask(cluster: Cluster, version: str) -> None:
    declare(cluster, version, rollout=AT_ONCE)


def drivers(stage: Stage, *nodes: LabNode) -> list[tuple[str | None, str | None, bool]]:
    found = [look(stage, node) for node in nodes]
    return [(state.module, state.package, state.is_cordoned) for state in found]


def loaded(node: LabNode) -> str:
    """Return the version of the module that is loaded, empty in the moment in which none is."""
    try:
        return node.module_version()
    except FileNotFoundError:
        return ""


def a_drain_is_called_off(scene: Scene, room: Room, second: LabNode, former: str) -> None:
    """A node that a budget holds up goes back into service, and its pod was not touched."""
    stage, first = scene.stage, scene.node
    room.start(deployment("web", 1, WORKS, node=first.name), disruption_budget("web", min_available=1))
    web = wait_for("the Deployment's pod runs", lambda: running(room, "web"), evidence=room.evidence)
    for_each((first, second), lambda node: node.node.install_module(NEXT_BRANCH))
    ask(scene.cluster, NEXT_BRANCH)
    scene.wait("the first is drained", lambda: phase_of(stage, first) == "drain")
    ask(scene.cluster, former)
    scene.wait("they are as declared", lambda: is_done(scene.cluster, STACK))
    assert drivers(stage, first) == [(former, former, False)]
    assert running(room, "web") == web
    room.clear()


def a_swap_is_taken_back(scene: Scene, room: Room, second: LabNode, former: str) -> None:
    """A swap comes to its end, and the driver that is declared by then is brought back; nothing is said before."""
    stage, first = scene.stage, scene.node
    room.start(daemon_set("agent", container(script=STAY, gpus=1), node=first.name))
    agent = wait_for("the DaemonSet's pod runs", lambda: running(room, "agent"), evidence=room.evidence)
    before = scene.journals()
    ask(scene.cluster, NEXT_BRANCH)
    with scene.held_at(SWAP, "packages", before):
        ask(scene.cluster, former)
        until = time.monotonic() + SAID_S
        while time.monotonic() < until:
            assert not is_done(scene.cluster, STACK), scene.evidence()
            time.sleep(0.1)
    scene.wait("the new module is loaded", lambda: loaded(first) == NEXT_BRANCH)
    for_each((first, second), lambda node: node.node.install_module(former))  # which is not grapnel's task
    scene.wait("they are as declared", lambda: is_done(scene.cluster, STACK))
    assert drivers(stage, first, second) == [(former, former, False)] * 2
    assert running(room, "agent") == agent, "it has the libraries of this driver"


def an_uncordon_lets_the_next_one_begin(scene: Scene, room: Room, nodes: tuple[LabNode, LabNode]) -> None:
    """A node that somebody has cordoned takes the budget of the other one, until it is uncordoned.

    The DaemonSet's pod, which is idle, gets the libraries of the new driver.
    """
    stage, (first, second), agent = scene.stage, nodes, running(room, "agent")
    scene.cluster.kubectl(["cordon", second.name])
    for_each(nodes, lambda node: node.node.install_module(NEXT_BRANCH))
    ask(scene.cluster, NEXT_BRANCH)
    scene.wait("the first waits for it", lambda: second.name in str(status(scene.cluster).get("troubles")))
    assert phase_of(stage, first) in {"", "done"}
    scene.cluster.kubectl(["uncordon", second.name])
    wait_for(
        "the first begins", lambda: phase_of(stage, first) not in {"", "done"}, timeout_s=60, evidence=scene.evidence
    )
    scene.wait("they are as declared", lambda: is_done(scene.cluster, STACK))
    assert drivers(stage, *nodes) == [(NEXT_BRANCH, NEXT_BRANCH, False)] * 2
    wait_for("the DaemonSet's pod was restarted", lambda: running(room, "agent") not in {"", agent})
    room.clear()
