"""Machines of other systems become nodes of a cluster: from none of an engine to a pod with its GPU, and back.

They say they are Ubuntu with Docker's containerd.io, and Rocky Linux with CRI-O's own package; apt, dnf, signatures,
engines, kubelet and Kubernetes are real. The order is kubeadm's: `grapnel apply` brings the engine, the kubelet joins,
and the next `apply` finds the cluster.
"""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pytest

from lab.bundle.repository import PUBLIC_KEY
from lab.cluster import Cluster, ClusterNode, Engine
from lab.sources.systems import BASE_SUITE, CRIOS, DOCKERS
from tests.e2e.conftest import NAME
from tests.e2e.manifests import LOOKED, STAY, TEST, container, deployment, pod
from tests.e2e.operator import Operator
from tests.e2e.stage import LabNode
from tests.e2e.test_drain import running
from tests.e2e.waiting import wait_for
from tests.journey.snapshot import take_snapshot
from tests.journey.systems import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.room import Room
    from tests.e2e.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("lab_nodes"), pytest.mark.timeout(900)]

# What differs when all of grapnel's is gone: lists with the engine, its files, what it and the kubelet have made.
STAYS = (
    *("packages", "units", "active"),
    *("/usr/bin/containerd*", "/usr/bin/ctr", "/usr/bin/runc", "/usr/bin/crio", "/usr/bin/pinns", "/usr/libexec/crio*"),
    *("/usr/lib/systemd/system/containerd.service", "/usr/lib/systemd/system/crio.service"),
    *("/etc/systemd/system/multi-user.target.wants/containerd.service", "/var/lib/dpkg/info/containerd.io.*"),
    *("/etc/containerd/config.toml.dpkg-dist", "/opt/containerd*", "/etc/crio/policy.json"),
    *("/etc/crio/crio.conf.d/10-crio.conf", "/etc/crio/auth", "/etc/crio/policies", "/usr/share/containers/oci*"),
    "/usr/libexec/kubernetes*",
    # Of the laboratory: its kernel is no package with apt, and its packages with rpm do not have their folders.
    *("/usr/lib/modules", "/usr/lib/modules/6.8.0-60-generic*", "/usr/src/kernels*", "/usr/src/nvidia-*"),
)
LOOK = f"gpu-test look; echo {LOOKED}"


@dataclass(frozen=True)
class Case:
    """A system, what is declared of its driver and its engine, and the versions between which both change.

    ``stays`` are the packages that a removal leaves to the kubelet.
    """

    node: ClusterNode
    driver: dict[str, Any]
    drivers: tuple[str, str]
    runtime: dict[str, Any]
    engines: tuple[str, ...]
    stays: list[str]


UBUNTU = Case(
    ClusterNode("ubuntu", suite=BASE_SUITE, engine=Engine.CONTAINERD_2, gpus=2, system="ubuntu2404"),
    {"source": "canonical"},
    ("570.133.20", "580.173.02"),
    {"source": "docker", "repository": {"url": f"file://{SOURCES}/{DOCKERS}"}},
    ("2.2.1", "2.4.2"),
    ["containerd.io:amd64 2.4.2-1~ubuntu.24.04~noble install installed"],
)
ROCKY = Case(
    ClusterNode("rocky", suite=BASE_SUITE, engine=Engine.CRIO, gpus=2, system="rocky9"),
    {"source": "nvidia", "repository": {"url": f"file://{SOURCES}/cuda-rhel9-x86_64"}},
    ("570.133.20", "580.126.09"),
    {"engine": "crio", "source": "crio", "repository": {"url": f"file://{SOURCES}/{CRIOS}"}},
    ("1.36.3",),  # its other versions are in repositories of their own, and the lab has one
    ["container-selinux-2.235.0-1.el9.x86_64", "cri-o-1.36.3-1.1.x86_64"],
)


class Machine:
    """A machine that becomes a node, and whoever operates it."""

    def __init__(self, case: Case, stage: Stage, folder: Path) -> None:
        self.case, self.stage, self.cluster = case, stage, Cluster(NAME)
        folder.joinpath("inventory.yaml").symlink_to(self.cluster.site.inventory_path)
        self.operator = Operator(folder, self.cluster.kubeconfig)
        self.node, self.name = self.cluster.prepare(case.node), case.node.name
        self.lab = LabNode(self.node, "crio" if case.node.engine is Engine.CRIO else "containerd")

    def declare(self, driver: str, engine: str) -> None:
        key = self.node.machine.bundle.joinpath(PUBLIC_KEY).read_text()
        drivers = {"version": driver, "companions": [], **self.case.driver}
        runtime = {**self.case.runtime, "version": engine}
        for section in (drivers, runtime):
            if "repository" in section:
                section["repository"] = {**section["repository"], "key": key}
        spec = {"driver": drivers, "runtime": runtime}
        document = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "spec": spec}
        self.operator.folder.joinpath("grapnel.yaml").write_text(json.dumps(document))

    def apply(self) -> str:
        done = self.operator.apply(self.name)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def remove(self) -> str:
        done = self.operator.grapnel("remove", self.name, "--yes", "--kubeconfig", str(self.operator.kubeconfig))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 removed" in done.stdout
        return " ".join(done.stdout.split())

    def wait_for_engine(self, version: str) -> None:
        said = operator.attrgetter("status.node_info.container_runtime_version")
        wait_for(f"the kubelet knows {version}", lambda: said(self.stage.api.node(self.name)).endswith(f"/{version}"))


@pytest.fixture
def machine(request: pytest.FixtureRequest, stage: Stage, tmp_path: Path) -> Iterator[Machine]:
    case: Case = request.param
    try:
        yield Machine(case, stage, tmp_path)
    finally:
        cluster = Cluster(NAME)
        if case.node.name in cluster.site.node_names():
            cluster.kubectl(["delete", "node", case.node.name, "--ignore-not-found"])
            cluster.site.remove(case.node.name)


@pytest.mark.parametrize("machine", [UBUNTU, ROCKY], indirect=True, ids=["ubuntu2404-containerd.io", "rocky9-cri-o"])
def test_a_machine_without_an_engine_becomes_a_node_and_keeps_the_engine_alone(machine: Machine, room: Room) -> None:
    (former, new), (engine, *others) = machine.case.drivers, machine.case.engines
    before = take_snapshot(machine.node)

    machine.declare(former, engine)
    assert "1 converged" in machine.apply()
    machine.cluster.join(machine.name)
    assert "1 unchanged" in machine.apply()
    machine.stage.wait_for_gpus(machine.name, len(machine.lab.uuids))
    machine.wait_for_engine(engine)
    assert_sights(machine, room)
    room.start(
        pod("stays", container(script=STAY), node=machine.name, runtime_class=""),
        deployment("works", 1, container(image=TEST, command=["gpu-test", "hold"], gpus=1), node=machine.name),
    )
    room.wait_running(["stays"])
    stays = room.identities("stays")
    works = wait_for("a pod with a GPU runs", lambda: running(room, "works"), evidence=room.evidence)

    for driver, version in ((new, engine), *((new, other) for other in others)):
        machine.declare(driver, version)
        assert "1 converged" in machine.apply()
        assert machine.lab.module_version() == driver
        machine.wait_for_engine(version)
        left = works
        works = wait_for("a pod with a GPU is back", lambda: running(room, "works"), evidence=room.evidence)
        assert works != left
        assert room.identities("stays") == stays

    room.clear()
    assert "the node has a kubelet, which needs it" in machine.remove()
    machine.cluster.leave(machine.name)
    differs = before.difference(take_snapshot(machine.node))
    assert {path: how for path, how in differs.items() if not any(fnmatchcase(path, one) for one in STAYS)} == {}
    assert differs["packages"] == f"gone: []; new: {machine.case.stays}"


def assert_sights(machine: Machine, room: Room) -> None:
    """See that a pod with a GPU has that one and the driver, and one without has nothing."""
    ended = room.run(
        pod("given", container(script=LOOK, image=TEST, gpus=1), node=machine.name),
        pod("none", container(script=LOOK, image=TEST), node=machine.name, runtime_class=""),
    )
    given, none = (json.loads(ended[name].logs["main"].splitlines()[0]) for name in ("given", "none"))
    (uuid,) = given["gpus"]
    paths = [device["path"] for device in given["devices"]]
    assert [path for path in paths if path in machine.lab.gpu_paths().values()] == [machine.lab.gpu_paths()[uuid]]
    assert {*given["libraries"].values()} == {""}
    assert (none["gpus"], none["devices"]) == ([], [])
    assert "" not in none["libraries"].values()
