"""Units of a GPU's memory as limits in the driver: on a node with cgroup v2, in pods of a real Kubernetes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.cluster.unified import only_cgroup_v2
from lab.nvml import state as nvml_state
from lab.nvml.machine import MIB
from tests.e2e.manifests import TEST, container
from tests.e2e.parts import MEMORY, asks, settings, wait_offered
from tests.e2e.test_claims import CLASS, DRIVER, claims_one, suppress_conflict, template, wait_for_devices
from tests.e2e.test_gpushare import KUBECONFIG
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.manifests import Manifest
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

UNIT_MIB = 2048
OUT_OF_MEMORY = 2
NEVER, THIS_DRIVER = 0, 535
UNITS = {"memoryUnits": [{"devices": ["0"], "unitMiB": UNIT_MIB}]}


@pytest.fixture(scope="module")
def node(lab_nodes: tuple[LabNode, ...], stage: Stage) -> Iterator[LabNode]:
    """A node with cgroup v2, whose driver has limits."""
    with limiting(stage, lab_nodes[1]):
        yield lab_nodes[1]


@contextmanager
def limiting(stage: Stage, chosen: LabNode) -> Iterator[None]:
    with only_cgroup_v2(chosen.node):
        stage.wait_until_settled(chosen)
        before = nvml_state.read(chosen.node.nvml_library).memory_limits_from
        have_limits_from(chosen, THIS_DRIVER)
        yield
        have_limits_from(chosen, before)
    stage.wait_until_settled(chosen)


def have_limits_from(node: LabNode, branch: int) -> None:
    """Have drivers from this branch on keep limits."""
    node.change_gpus(lambda machine: replace(machine, memory_limits_from=branch))


def limits(node: LabNode) -> dict[str, int]:
    """Return what the driver keeps, in MiB by the name of the control group, of groups that are still there."""
    root = node.node.root / "sys/fs/cgroup/unified"
    kept = {root / each.path.lstrip("/"): each.hard // MIB for each in nvml_state.read(node.node.nvml_library).limits}
    return {group.name: size for group, size in kept.items() if group.exists()}


def program(name: str, node: LabNode, units: int, *sizes: int) -> Manifest:
    words = " ".join(map(str, sizes))
    return asks(name, node, MEMORY, units, script=f"exec gpu-test allocate {words}", image=TEST)


def said(room: Room, name: str) -> list[str]:
    """Return what a program was told of each allocation, once it has made all of them."""
    lines = room.api.log(room.name, name, "main").splitlines()
    return lines[:-1] if lines and lines[-1] == "allocated" else []


def why_refused(room: Room, name: str) -> str:
    """Return what is said of a container that could not start, "" while nothing is."""
    for status in room.pod(name).status.container_statuses or ():
        for state in (status.state.terminated, status.state.waiting):
            if state is not None and state.message:
                return str(state.message)
    return ""


def test_programs_get_the_memory_of_their_units_and_no_more(room: Room, stage: Stage, node: LabNode) -> None:
    with settings(node, **UNITS, memoryLimits="required"):
        wait_offered(stage, node, memory=40960 // UNIT_MIB)
        room.start(program("two", node, 2, 3000, 1500, 1000), program("four", node, 4, 3000, 3000, 3000))
        room.wait_running(["two", "four"])
        seen = {name: wait_for(f"{name} has allocated", lambda name=name: said(room, name)) for name in ("two", "four")}
        assert seen == {
            "two": ["3000 0", f"1500 {OUT_OF_MEMORY}", "1000 0"],
            "four": ["3000 0", "3000 0", f"3000 {OUT_OF_MEMORY}"],
        }
        ids = {name: room.identities(name)["main"].container_id.rpartition("/")[2] for name in seen}
        assert limits(node) == {ids["two"]: 2 * UNIT_MIB, ids["four"]: 4 * UNIT_MIB}
        room.clear()
        assert not limits(node)
    wait_offered(stage, node, memory=0, whole=len(node.uuids))


def test_a_container_that_must_be_limited_and_cannot_be_is_refused(room: Room, stage: Stage, node: LabNode) -> None:
    have_limits_from(node, NEVER)
    try:
        with settings(node, **UNITS, memoryLimits="required"):
            wait_offered(stage, node, memory=40960 // UNIT_MIB)
            room.start(program("refused", node, 1, 10))
            told = wait_for("it is refused", lambda: why_refused(room, "refused"), evidence=room.evidence)
            assert "the container's memory is not limited" in told
            assert "this driver has no memory limits for control groups" in told
            room.clear()
        wait_offered(stage, node, memory=0)
        with settings(node, **UNITS, memoryLimits="preferred"):
            wait_offered(stage, node, memory=40960 // UNIT_MIB)
            room.start(program("unlimited", node, 1, 3000))
            room.wait_running(["unlimited"])
            assert wait_for("it has allocated", lambda: said(room, "unlimited")) == ["3000 0"]
            room.clear()
    finally:
        have_limits_from(node, THIS_DRIVER)
    wait_offered(stage, node, memory=0, whole=len(node.uuids))


def of_two_claims(name: str, node: LabNode, script: str) -> Manifest:
    """Return a pod whose container has two claims, which are given parts of one GPU."""
    found = claims_one(name, node, container(script=script, image=TEST))
    (first,) = found["spec"]["resourceClaims"]
    found["spec"]["resourceClaims"] = [first, {**first, "name": "more"}]
    found["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}, {"name": "more"}]
    return found


def test_claims_get_the_memory_that_they_ask_for_and_no_more(
    room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...]
) -> None:
    """As memory-sharing of demo/specs/consumable-shares of NVIDIA's driver (9593204)."""
    node = lab_nodes[0]  # its engine has CDI
    by_claims = {"interface": "dra", "kubernetesApi": KUBECONFIG, "nodeName": node.name}
    with suppress_conflict():
        stage.api.resource.create_device_class(CLASS)
    units = [{"devices": "all", "unitMiB": UNIT_MIB}]
    try:
        with limiting(stage, node), settings(node, memoryUnits=units, **by_claims, memoryLimits="required"):
            wait_for_devices(stage, node, len(node.uuids))
            room.start(template(capacity={"requests": {"memory": "4Gi"}}))
            names = ["part-1", "part-2"]
            script = "exec gpu-test allocate 3000 1500 1000"
            room.start(*(claims_one(name, node, container(script=script, image=TEST)) for name in names))
            room.wait_running(names)
            room.start(of_two_claims("two-parts", node, "exec gpu-test allocate 3000 3000 1500 2500"))
            room.wait_running(["two-parts"])
            both = wait_for("it has allocated", lambda: said(room, "two-parts"), evidence=room.evidence)
            assert both == ["3000 0", "3000 0", "1500 0", f"2500 {OUT_OF_MEMORY}"]
            seen = [
                wait_for(f"{name} has allocated", lambda name=name: said(room, name), evidence=room.evidence)
                for name in names
            ]
            assert seen == [["3000 0", f"1500 {OUT_OF_MEMORY}", "1000 0"]] * 2
            ids = [room.identities(name)["main"].container_id.rpartition("/")[2] for name in names]
            two = room.identities("two-parts")["main"].container_id.rpartition("/")[2]
            assert limits(node) == {**dict.fromkeys(ids, 4096), two: 8192}
            room.clear()
            assert not limits(node)
    finally:
        stage.api.resource.delete_device_class(DRIVER)
