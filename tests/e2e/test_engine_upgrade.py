"""A node's containerd is exchanged under its pods: from Debian's 1.7 to 2.4, past one that starts nothing, and back.

What has no GPU goes on all the while, as the same processes; what has one leaves, and comes back.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from lab.sources import again
from tests.e2e.manifests import STAY, TEST, container, deployment, pod
from tests.e2e.test_drain import running
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.operator import Operator
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]  # three applies

FORMER, NEW, STARTS_NOTHING = "1.7.24", "2.4.2", "2.4.3"
PACKAGES = (
    again.Again("containerd", f"{NEW}-1", again.with_newest_containerd),
    again.Again("containerd", f"{STARTS_NOTHING}-1", again.with_idle_containerd),
)
PACKAGE = ["dpkg-query", "-W", "-f", "${Version}", "containerd"]
TASKS = ["ctr", "--namespace", "k8s.io", "tasks", "list"]
HOLDS = container(image=TEST, command=["gpu-test", "hold"], gpus=1)


class Site:
    """The node, and what is declared of its engine."""

    def __init__(self, stage: Stage, operator: Operator, node: LabNode) -> None:
        self.stage, self.operator, self.node = stage, operator, node
        self.own = operator.folder / "host_vars" / f"{node.name}.yaml"

    def declare(self, version: str) -> None:
        self.own.parent.mkdir(exist_ok=True)
        self.own.write_text(json.dumps({"grapnel_stack": {"runtime": {"version": version}}}))

    def apply(self) -> tuple[int, str]:
        done = self.operator.apply(self.node.name)
        return done.returncode, " ".join(done.stdout.split())

    def package(self) -> str:
        return self.node.node.run(PACKAGE).stdout

    def processes(self, room: Room, name: str) -> dict[str, str]:
        """Return the processes of a pod's containers, as the engine numbers them on the node."""
        ids = {each.container_id.rpartition("/")[2] for each in room.identities(name).values()}
        rows = [line.split() for line in self.node.node.run(TASKS).stdout.splitlines()]
        return {row[0]: row[1] for row in rows if row[0] in ids}

    def assert_engine(self, version: str) -> None:
        assert self.package().startswith(f"{version}"), self.package()
        wait_for(f"the kubelet knows containerd {version}", lambda: version in self.version())

    def version(self) -> str:
        return str(self.stage.api.node(self.node.name).status.node_info.container_runtime_version)


@pytest.fixture
def site(stage: Stage, lab_nodes: tuple[LabNode, ...], operator: Operator) -> Iterator[Site]:
    """The node with Debian's containerd 1.7, whose apt knows later ones; as it was again afterwards."""
    by_engine = {each.engine.partition("://")[2].partition("~")[0]: each.lab for each in stage.nodes}
    node = by_engine[FORMER]
    assert node in lab_nodes
    made = Site(stage, operator, node)
    with ExitStack() as undo:
        undo.callback(stage.wait_until_settled, node)
        undo.callback(again.take_back, node.node)
        undo.callback(made.own.unlink, missing_ok=True)
        again.offer(node.node, *PACKAGES)
        yield made


def test_pods_go_on_through_another_engine_and_back(room: Room, site: Site) -> None:
    room.start(
        pod("stays", container(script=STAY), node=site.node.name, runtime_class=""),
        deployment("works", 1, HOLDS, node=site.node.name),
    )
    room.wait_running(["stays"])
    stays, processes = room.identities("stays"), site.processes(room, "stays")
    assert len(processes) == 1
    works = wait_for("a pod with a GPU runs", lambda: running(room, "works"), evidence=room.evidence)

    site.declare(NEW)
    code, said = site.apply()
    assert code == 0, said
    site.assert_engine(NEW)
    assert (room.identities("stays"), site.processes(room, "stays")) == (stays, processes)
    assert site.node.hook_lines()["trial"]["GRAPNEL_GPUS"] == site.node.uuids[0]
    other = wait_for("a pod with a GPU runs again", lambda: running(room, "works"), evidence=room.evidence)
    assert other != works

    site.declare(STARTS_NOTHING)
    code, said = site.apply()
    assert code == 1, said
    assert "a container without a GPU does not start" in said
    assert "its former packages were put back, and containerd.service works with them" in said
    site.assert_engine(NEW)
    assert (room.identities("stays"), site.processes(room, "stays")) == (stays, processes)

    site.declare(FORMER)
    code, said = site.apply()
    assert code == 0, said
    site.assert_engine(FORMER)
    assert (room.identities("stays"), site.processes(room, "stays")) == (stays, processes)
    wait_for("a pod with a GPU runs with the former engine", lambda: running(room, "works"), evidence=room.evidence)
