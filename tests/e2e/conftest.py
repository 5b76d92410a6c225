"""One cluster for the whole session, set up by `grapnel apply`; a namespace for each test that asks for one."""

from __future__ import annotations

import os
import re
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.cluster import WITH_CRIO, Cluster, Engine
from lab.cluster.project import write_settings
from lab.machine.folders import state_dir
from lab.machine.lock import locked
from tests.e2e.api import Api
from tests.e2e.leftovers import require_clean
from tests.e2e.manifests import HANDLER
from tests.e2e.operator import Operator
from tests.e2e.room import Room
from tests.e2e.stage import LabNode, Stage, find_gpu_nodes
from tests.e2e.visits import Visits
from tests.e2e.waiting import for_each

if TYPE_CHECKING:
    from collections.abc import Iterator

KEEP = "GRAPNEL_E2E_KEEP"  # for work on these tests: the cluster of that name is used again, and stays
NAME = os.environ.get(KEEP, "e2e")
LOCK_WAIT_S = 60.0
OWN_CLUSTER = "GRAPNEL_E2E_KUBECONFIG"  # set by `make e2e` from KUBECONFIG, and by nothing else
MOST_NODES = 3
OPEN: set[str] = set()  # the namespaces of rooms that are in use
BEFORE = ["the set-up"]  # who had the stage


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The cluster: a person's own where one is named, else the lab's, gone before and after."""
    if kubeconfig := os.environ.get(OWN_CLUSTER):
        with closing(Api(Path(kubeconfig))) as api:
            yield own_stage(api, kubeconfig)
        return
    with locked(state_dir() / f".{NAME}-tests.lock", wait_s=LOCK_WAIT_S), lab_cluster() as cluster:
        cluster.up(WITH_CRIO)
        with closing(Api(cluster.kubeconfig)) as api:
            yield lab_stage(api, cluster, tmp_path_factory.mktemp("operator"))


@contextmanager
def lab_cluster() -> Iterator[Cluster]:
    """Return the lab's cluster; only one run of these tests may have it."""
    cluster, keep = Cluster(NAME), KEEP in os.environ
    if not keep:
        cluster.down()
    try:
        yield cluster
    finally:
        if not keep:
            cluster.down()


def own_stage(api: Api, kubeconfig: str) -> Stage:
    """Return a person's cluster as it is: grapnel must be on its nodes already."""
    nodes = find_gpu_nodes(api, {}, MOST_NODES)
    assert nodes, f"no node of {kubeconfig} offers GPUs: run grapnel apply first"
    assert api.has_runtime_class(HANDLER), f"{kubeconfig} has no RuntimeClass {HANDLER}: run grapnel apply first"
    return Stage(api, nodes)


def lab_stage(api: Api, cluster: Cluster, folder: Path) -> Stage:
    """Have grapnel make the lab nodes's cluster GPU nodes."""
    folder.joinpath("inventory.yaml").symlink_to(cluster.site.inventory_path)
    write_settings(cluster, folder)
    on_crio = {node.name for node in cluster.spec.nodes if node.engine is Engine.CRIO}
    units = {name: "crio" if name in on_crio else "containerd" for name in cluster.site.node_names()}
    inside = {node.name: LabNode(node, units[node.name]) for node in cluster.site.nodes()}
    operator = Operator(folder, cluster.kubeconfig)
    operator.declare(next(iter(inside.values())).module_version())
    operator.converge()
    for_each(inside.values(), Stage(api, (), operator).wait_until_settled)
    return Stage(api, find_gpu_nodes(api, inside, len(inside)), operator)


@pytest.fixture(scope="session")
def lab_nodes(stage: Stage) -> tuple[LabNode, ...]:
    """The lab's nodes, for tests that look into them or break them."""
    if not stage.lab_nodes:
        pytest.skip("on a cluster of your own: its nodes are not looked into and not broken")
    return stage.lab_nodes


@pytest.fixture(scope="session")
def operator(stage: Stage, lab_nodes: tuple[LabNode, ...]) -> Operator:
    """Who may change the lab's nodes."""
    assert lab_nodes
    assert stage.operator is not None
    return stage.operator


@pytest.fixture(autouse=True)
def clean_stage(request: pytest.FixtureRequest) -> Iterator[None]:
    """Begin no test on a stage that another one has left out of order: it would fail for no reason of its own."""
    if "stage" in request.fixturenames and (stage := request.getfixturevalue("stage")).lab_nodes:
        require_clean(stage, OPEN, BEFORE[-1])
    yield
    BEFORE.append(request.node.nodeid)


@pytest.fixture
def room(request: pytest.FixtureRequest, stage: Stage) -> Iterator[Room]:
    """A namespace of the test's own."""
    yield from make_room(stage, request.node.name)


@pytest.fixture(scope="session")
def visits(stage: Stage) -> Iterator[Visits]:
    """All visitors, received together when the first test asks for one."""
    for node in stage.nodes:
        if node.lab is not None:  # every module that a boot loads, although another test may have installed the driver
            node.lab.node.run(["systemctl", "restart", "systemd-modules-load.service"])
    for made in make_room(stage, "visits"):
        received = Visits(made)
        received.receive()
        yield received


@pytest.fixture(scope="module")
def shared_room(request: pytest.FixtureRequest, stage: Stage) -> Iterator[Room]:
    """A namespace for a whole file, for pods that run at the same time."""
    yield from make_room(stage, request.node.name)


def make_room(stage: Stage, title: str) -> Iterator[Room]:
    words = re.sub(r"[^a-z0-9]+", "-", title.rpartition("/")[2].removesuffix(".py").lower())
    made = Room(stage, f"e2e-{words[:40].strip('-')}-{os.urandom(2).hex()}")
    made.open()
    OPEN.add(made.name)
    try:
        yield made
    finally:
        made.close()
        OPEN.remove(made.name)
