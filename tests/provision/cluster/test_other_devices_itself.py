"""What a real scheduler makes of other devices' slices and classes: pods of today, and a GPU near a card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab.sysfs import Tree, rdma_nic, virtual_function
from plugin.dra.others.devices import find_others
from plugin.dra.slices import Owner, plan_writes
from plugin.kubelet.cdi_names import OTHERS
from tasks.generated.chart import DEPLOY
from tests.plugin.other_devices.test_plan import RDMA, SRIOV, look, ready
from tests.provision.cluster.stage import wait_until
from tests.provision.cluster.test_allocation_itself import CLAIM, OF_GPUS, make_pod, needs_extended
from tests.provision.cluster.test_claims_itself import explained, is_bound, is_decided
from tests.provision.cluster.test_devices_by_claims import published

if TYPE_CHECKING:
    from pathlib import Path

    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional

ROOT = "resource.kubernetes.io/pcieRoot"
CARD, NICS = "0000:41:00.0", ("0000:41:00.1", "0000:41:00.2")
OF_NICS = f"sriov-rdma.{OTHERS}"


@pytest.fixture(autouse=True)
def _classes(stage: Stage) -> None:
    for name in ("deviceclasses", "otherclasses"):
        stage.kubectl("apply", "-f", str(DEPLOY / f"dra/{name}.yaml"))


def give_others(stage: Stage, node: str, folder: Path, taken: int = 0) -> None:
    """Have a node publish two virtual functions and a card for many, as its daemon does."""
    tree = Tree(folder)
    tree.add(rdma_nic(CARD, 0), *(virtual_function(each, 1 + number, CARD) for number, each in enumerate(NICS)))
    tree.add_nodes("infiniband/rdma_cm")
    found = find_others(look(tree, ready("sriov-rdma"), ready("rdma-shared"))).values()
    devices = [each.shown(taken if each.units > 1 else 0, has_shares=True) for each in found]
    owner = Owner(node, stage.get("node", node)["metadata"]["uid"], OTHERS)
    for write in plan_writes(owner, devices, []):
        stage.kubectl("create", "-f", "-", data=write.document)


def results(stage: Stage, pod: str) -> list[dict[str, Any]]:
    """Return what the claim that the scheduler made for a pod was given."""
    name = stage.get("pod", pod)["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    found: list[dict[str, Any]] = stage.get("resourceclaim", name)["status"]["allocation"]["devices"]["results"]
    return found


def test_pods_that_ask_for_the_resource_run_unchanged(stage: Stage, tmp_path: Path) -> None:
    needs_extended(stage)
    node = stage.make_node(pool="others")
    give_others(stage, node, tmp_path)
    asked = {"both": {SRIOV: "1", RDMA: "1"}, "many": {RDMA: "1"}, "two": {SRIOV: "1"}, "three": {SRIOV: "1"}}
    for name, limits in asked.items():
        make_pod(stage, name, "others", limits=limits)
        wait_until(lambda name=name: is_decided(stage, name), f"the scheduler has looked at {name}")

    assert [is_bound(stage, each) for each in asked] == [True, True, True, False]
    given = {name: {each["device"] for each in results(stage, name)} for name in ("both", "many", "two")}
    assert given["many"] == {"rdma-shared"}
    assert given["both"] > given["many"]
    assert given["both"] | given["two"] == {"rdma-shared", "pci-0000-41-00-1", "pci-0000-41-00-2"}


def test_shares_that_pods_have_by_the_device_plugin_are_not_given_again(stage: Stage, tmp_path: Path) -> None:
    needs_extended(stage)
    node = stage.make_node(pool="few")
    give_others(stage, node, tmp_path, taken=998)
    for number in range(3):
        make_pod(stage, f"few-{number}", "few", limits={RDMA: "1"})
        wait_until(lambda number=number: is_decided(stage, f"few-{number}"), f"the scheduler has looked at {number}")

    assert [is_bound(stage, f"few-{number}") for number in range(3)] == [True, True, False]


def test_a_claim_has_a_gpu_and_a_card_below_one_root(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far, near = stage.make_node(pool="pairs"), stage.make_node(pool="pairs")
    for node, root in ((far, "pci0000:80"), (near, "pci0000:00")):
        made = published("gpu-beside-a-card", node=node)
        made["metadata"] = {"name": f"{node}-gpu"}
        made["spec"]["devices"][0]["attributes"][ROOT] = {"string": root}
        stage.kubectl("create", "-f", "-", data=made)
        give_others(stage, node, tmp_path / node)
    requests = [{"name": name, "exactly": {"deviceClassName": of}} for name, of in (("gpu", OF_GPUS), ("nic", OF_NICS))]
    spec = {"devices": {"requests": requests, "constraints": [{"matchAttribute": ROOT}]}}
    for name in ("gpu-and-card", "no-more"):
        stage.kubectl("create", "-f", "-", data=CLAIM | {"metadata": {"name": name}, "spec": spec})
        make_pod(stage, name, "pairs", claim=name)
        wait_until(lambda name=name: is_decided(stage, name), f"the scheduler has looked at {name}")

    assert [is_bound(stage, name) for name in ("gpu-and-card", "no-more")] == [True, False]
    given = stage.get("resourceclaim", "gpu-and-card")["status"]["allocation"]["devices"]["results"]
    assert [(each["driver"], each["pool"]) for each in given] == [(OF_GPUS, near), (OTHERS, near)]
    words = explained(stage, capsys, "claim", "default/gpu-and-card")
    assert any(f"request nic: {given[1]['device']} of {near} ({OTHERS})" in line for line in words)
