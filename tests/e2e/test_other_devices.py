"""Devices that are not NVIDIA's GPUs on a real Kubernetes: network cards, FPGAs and counts, by the ready files.

The node's daemon reads a tree of files in the form of sysfs; the device nodes are real.
"""

from __future__ import annotations

import itertools
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from lab import podresources, sysfs
from tests.e2e.manifests import container, pod
from tests.e2e.parts import asks, settings, wait_allocatable
from tests.e2e.stage import DAEMON
from tests.e2e.test_claims import devices, suppress_conflict, template
from tests.e2e.test_gpushare import KUBECONFIG
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.manifests import Manifest
    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

READY = Path(__file__).parents[2] / "deploy/devices"
CLAIM_CLASSES = READY.parent / "dra"
RDMA, VIRTUAL = "rdma/hca_shared_devices_a", "nvidia.com/mlnx_sriov_rdma"
FPGA = "xilinx.com/fpga-xilinx_u200_xdma_201830_1-1542252769"
FUSE, LICENCE = "grapnel.dev/fuse", "example.com/licence"
CLASSES = {name: (READY / f"{name}.json").read_text() for name in ("rdma-shared", "sriov-rdma", "xilinx-fpga", "fuse")}
LICENCES = f'{{"schema": "grapnel.dev/device-class/v1alpha1", "resource": "{LICENCE}", "unit": {{"count": 2}}}}\n'
CARD = "0000:41:00.0"
DEVICES = (
    sysfs.rdma_nic(CARD, 0),
    sysfs.virtual_function("0000:41:00.1", 1, CARD),
    sysfs.virtual_function("0000:41:00.2", 2, CARD),
    sysfs.fpga("0000:51:00.0", 128),
    sysfs.fpga("0000:52:00.0", 129),
)
NODES = ("fuse", "infiniband/rdma_cm", *(name for device in DEVICES for name in device.nodes))
MAJOR, FIRST_MINOR = 4, 33  # as the laboratory's GPUs: a kind of terminal that nobody has
MINORS = dict(zip(NODES, itertools.count(FIRST_MINOR), strict=False))
PLACE = "srv/sysfs"
OFFERED = {RDMA: 1000, VIRTUAL: 2, FPGA: 2, FUSE: 100, LICENCE: 2}
# Device nodes that not every container has, with their numbers; and variables.
LOOK = """
for node in $(find /dev/infiniband /dev/dri /dev/fuse /dev/nvidia* -type c 2>/dev/null); do
    stat -c 'node %n %T' $node
done
env | grep ^PCIDEVICE | sed 's/^/variable /'
echo looked
trap 'exit 0' TERM
while :; do sleep 3600 & wait; done
"""


@contextmanager
def plugged_in(node: LabNode) -> Iterator[None]:
    """Have the devices on a node."""
    root = node.node.root
    made = [f"mknod -m 666 /dev/{name} c {MAJOR} {minor}" for name, minor in MINORS.items()]
    try:
        tree = sysfs.Tree(root / PLACE)
        tree.add(*DEVICES)
        (tree.sys_root / "module").symlink_to("/sys/module")
        for gpu in node.node.gpus:  # below the same root as the others
            on_bus = f"bus/pci/devices/{gpu.pci_address}"
            shutil.copytree(root / "sys" / on_bus, tree.folder(gpu.pci_address))
            (tree.sys_root / on_bus).symlink_to(f"../../../devices/pci0000:00/{gpu.pci_address}")
        node.node.run(["sh", "-c", " && ".join(["mkdir -p /dev/infiniband /dev/dri", *made])])
        yield
    finally:
        node.node.run(["sh", "-c", f"rm -rf /{PLACE} /dev/infiniband /dev/dri /dev/fuse"])


def seen(room: Room, name: str) -> dict[str, str]:
    """Return the nodes that a container has, with their minor numbers."""
    words = (line.split() for line in room.whole_log(name).splitlines())
    return {word[1]: word[2] for word in words if word[0] == "node"}


def hexadecimal(*names: str) -> dict[str, str]:
    return {f"/dev/{name}": f"{MINORS[name]:x}" for name in names}


def test_pods_have_the_nodes_of_their_devices_and_no_others(
    room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...]
) -> None:
    node = lab_nodes[0]
    asked = {"rdma-1": RDMA, "rdma-2": RDMA, "virtual": VIRTUAL, "fpga-1": FPGA, "fpga-2": FPGA, "fuse": FUSE}
    counted = {"licence-1": LICENCE, "licence-2": LICENCE}
    with plugged_in(node), settings(node, classes={**CLASSES, "licences": LICENCES}, sysRoot=f"/{PLACE}/sys"):
        wait_allocatable(stage, node, OFFERED)
        room.start(*(asks(name, node, resource, script=LOOK) for name, resource in {**asked, **counted}.items()))
        room.wait_running([*asked, *counted])
        given = {name: device_ids(node, room.name, name, resource) for name, resource in asked.items()}
        assert seen(room, "rdma-1") == seen(room, "rdma-2") == hexadecimal("infiniband/rdma_cm", *DEVICES[0].nodes)
        for name in ("virtual", "fpga-1", "fpga-2"):
            (device,) = (each for each in DEVICES if each.address in given[name])
            also = ("infiniband/rdma_cm",) if name == "virtual" else ()
            assert seen(room, name) == hexadecimal(*device.nodes, *also), name
        assert given["fpga-1"] != given["fpga-2"]
        assert seen(room, "fuse") == hexadecimal("fuse")
        assert seen(room, "licence-1") == seen(room, "licence-2") == {}
        (address,) = given["virtual"]
        said = room.whole_log("virtual").splitlines()
        assert f"variable PCIDEVICE_NVIDIA_COM_MLNX_SRIOV_RDMA={address}" in said
        room.start(asks("too-many", node, LICENCE))
        wait_for("there is no third one", lambda: "Insufficient" in str(room.pod("too-many").status.conditions))
        room.clear()
    wait_allocatable(stage, node, dict.fromkeys(OFFERED, 0))


@contextmanager
def device_classes(stage: Stage) -> Iterator[None]:
    """Have the classes that come with grapnel in the cluster."""
    files = (CLAIM_CLASSES / f"{name}.yaml" for name in ("deviceclasses", "otherclasses"))
    made = [each for path in files for each in yaml.safe_load_all(path.read_text()) if each]
    for each in made:
        with suppress_conflict():
            stage.api.resource.create_device_class(each)
    try:
        yield
    finally:
        for each in made:
            stage.api.resource.delete_device_class(each["metadata"]["name"])


def pair(name: str, node: LabNode) -> tuple[Manifest, Manifest]:
    """Return a pod with a claim of a GPU and a virtual function below one root, and what makes the claim."""
    of = {"gpu": "gpu.nvidia.com", "nic": "sriov-rdma.devices.grapnel.dev"}
    requests = [{"name": each, "exactly": {"deviceClassName": found}} for each, found in of.items()]
    constraint = {"matchAttribute": "resource.kubernetes.io/pcieRoot"}
    made = template()
    made["metadata"]["name"] = name
    made["spec"]["spec"]["devices"] = {"requests": requests, "constraints": [constraint]}
    asking = container(script=LOOK)
    asking["resources"] = {"claims": [{"name": "both"}]}
    found = pod(name, asking, node=node.name, runtime_class="")
    found["spec"]["resourceClaims"] = [{"name": "both", "resourceClaimTemplateName": name}]
    return made, found


def test_pods_have_them_by_claims_where_gpus_are_and_a_gpu_with_a_card(
    room: Room, stage: Stage, lab_nodes: tuple[LabNode, ...]
) -> None:
    node = lab_nodes[0]
    by_claims = {"interface": "dra", "kubernetesApi": KUBECONFIG, "nodeName": node.name, "sysRoot": f"/{PLACE}/sys"}
    published = {f"pci-{each.address.replace(':', '-').replace('.', '-')}" for each in DEVICES[1:]}
    published |= {"rdma-shared", "fuse"}
    with device_classes(stage), plugged_in(node), settings(node, classes=CLASSES, **by_claims):
        wait_for(
            "devices and GPUs are published",
            lambda: published < set(devices(stage, node)) and len(devices(stage, node)) == 6 + len(node.uuids),
            evidence=lambda: f"{sorted(devices(stage, node))}\n{node.journal(DAEMON, 40)}",
        )
        asked = {"rdma": RDMA, "virtual": VIRTUAL, "fuse": FUSE}
        room.start(*(asks(name, node, resource, script=LOOK) for name, resource in asked.items()), *pair("pair", node))
        room.wait_running([*asked, "pair"])
        assert seen(room, "rdma") == hexadecimal("infiniband/rdma_cm", *DEVICES[0].nodes)
        assert seen(room, "fuse") == hexadecimal("fuse")
        given = [
            {path: minor for path, minor in seen(room, name).items() if "nvidia" not in path}
            for name in ("virtual", "pair")
        ]
        functions = [hexadecimal("infiniband/rdma_cm", *each.nodes) for each in DEVICES[1:3]]
        assert sorted(given, key=str) == sorted(functions, key=str)
        assert len([each for each in seen(room, "pair") if each.removeprefix("/dev/nvidia").isdecimal()]) == 1
        room.start(asks("too-many", node, VIRTUAL))
        wait_for("there is no third one", lambda: "cannot allocate" in str(room.pod("too-many").status.conditions))
        room.clear()
    folder = node.node.root / "var/lib/grapnel/node/other-claims"
    wait_for("nothing of it is left", lambda: not folder.exists(), evidence=lambda: node.journal(DAEMON, 40))
    stage.wait_for_gpus(node.name, len(node.uuids))


def device_ids(node: LabNode, namespace: str, pod: str, resource: str) -> frozenset[str]:
    """Return what the kubelet gave a pod."""
    found = podresources.allocated(node.node.root, resource)
    return frozenset().union(*(each.devices for each in found if (each.namespace, each.pod) == (namespace, pod)))
