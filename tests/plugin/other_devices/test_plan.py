"""Ready files and others on trees like those of real machines: what is offered, and what containers get."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.sysfs import AMD, INTEL, Tree, bare, fpga, gpu, rdma_nic, virtual_function
from plugin.base.errors import DeviceNotReady
from plugin.devices.allocation.table import allocate
from plugin.devices.other.parse import parse_class
from plugin.devices.other.plan import plan_others
from plugin.devices.other.sysfs import HostSysfs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.devices.other.device_class import DeviceClass
    from plugin.devices.other.offered import OtherPlan

READY = Path(__file__).parents[3] / "deploy/devices"
SCHEMA = "grapnel.dev/device-class/v1alpha1"
RDMA, SRIOV = "rdma/hca_shared_devices_a", "nvidia.com/mlnx_sriov_rdma"
FPGA = "xilinx.com/fpga-xilinx_u200_xdma_201830_1-1542252769"
PCI = {"folder": "bus/pci/devices"}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def ready(name: str) -> DeviceClass:
    return parse_class((READY / f"{name}.json").read_bytes(), name, name)


def made(name: str = "card", **keys: object) -> DeviceClass:
    document = {"schema": SCHEMA, "resource": f"example.com/{name}", "match": PCI, **keys}
    return parse_class(json.dumps({key: value for key, value in document.items() if value is not None}), name, name)


def look(tree: Tree, *classes: DeviceClass) -> OtherPlan:
    return plan_others(classes, HostSysfs(tree.sys_root, tree.dev_root))


def shown(plan: OtherPlan, resource: str) -> list[tuple[str, bool, int | None]]:
    return [(one.device_id, one.is_healthy, one.numa_node) for one in plan.resources[resource].offers]


def given(plan: OtherPlan, resource: str, ids: Sequence[str]) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Return nodes in the container with their permissions, and the environment; never an annotation."""
    answer = allocate(plan.resources[resource].table, ids)
    assert answer.annotations == {}
    assert answer.cdi_devices == ()
    assert answer.device_ids == tuple(ids)
    return [(node.container_path, node.permissions) for node in answer.nodes], answer.envs


def test_rdma_cards_are_shared_by_a_count(tree: Tree) -> None:
    tree.add(rdma_nic("0000:3b:00.0", 0, numa_node=0), rdma_nic("0000:86:00.0", 1, numa_node=1))
    tree.add(virtual_function("0000:3b:00.2", 2, "0000:3b:00.0"), bare("0000:00:1f.0", INTEL, "0x060100"))
    tree.add_nodes("infiniband/rdma_cm")
    plan = look(tree, ready("rdma-shared"))
    offers = shown(plan, RDMA)
    assert len(offers) == 1000
    assert offers[0] == ("rdma-shared::0", True, None)  # the cards are on two NUMA nodes
    nodes, environment = given(plan, RDMA, ["rdma-shared::17", "rdma-shared::18"])
    names = ("rdma_cm", "uverbs0", "umad0", "issm0", "uverbs1", "umad1", "issm1")
    assert nodes == [(f"/dev/infiniband/{name}", "rwm") for name in names]
    assert environment == {}
    assert plan.findings == ()


def test_host_paths_are_below_the_root_of_devices(tree: Tree) -> None:
    tree.add(gpu("0000:03:00.0", INTEL, "xe", 0))
    plan = look(tree, ready("intel-gpu-xe"))
    answer = allocate(plan.resources["gpu.intel.com/xe"].table, ["0000:03:00.0"])
    assert [node.host_path for node in answer.nodes] == [
        str(tree.dev_root / "dri/card0"),
        str(tree.dev_root / "dri/renderD128"),
    ]


def test_one_rdma_card_that_lacks_a_node_leaves_the_others(tree: Tree) -> None:
    tree.add(rdma_nic("0000:3b:00.0", 0), rdma_nic("0000:86:00.0", 1))
    tree.add_nodes("infiniband/rdma_cm")
    tree.remove_node("infiniband/umad0")
    plan = look(tree, ready("rdma-shared"))
    nodes, _ = given(plan, RDMA, ["rdma-shared::0"])
    assert ("/dev/infiniband/uverbs0", "rwm") not in nodes
    assert ("/dev/infiniband/uverbs1", "rwm") in nodes
    assert [message for _, message in plan.findings] == [
        "rdma-shared: 0000:3b:00.0 is unhealthy: it has no device node infiniband/umad0"
    ]


def test_without_the_connection_manager_no_rdma_is_given(tree: Tree) -> None:
    tree.add(rdma_nic("0000:3b:00.0", 0))
    plan = look(tree, ready("rdma-shared"))
    assert not any(is_healthy for _, is_healthy, _ in shown(plan, RDMA))
    with pytest.raises(DeviceNotReady, match="it has no device node infiniband/rdma_cm"):
        allocate(plan.resources[RDMA].table, ["rdma-shared::0"])


def test_virtual_functions_are_called_by_address_and_tell_their_containers(tree: Tree) -> None:
    tree.add(rdma_nic("0000:3b:00.0", 0))
    tree.add(*(virtual_function(f"0000:3b:00.{n}", n, "0000:3b:00.0", numa_node=1) for n in (2, 3)))
    tree.add_nodes("infiniband/rdma_cm")
    plan = look(tree, ready("sriov-rdma"))
    assert shown(plan, SRIOV) == [("0000:3b:00.2", True, 1), ("0000:3b:00.3", True, 1)]
    nodes, environment = given(plan, SRIOV, ["0000:3b:00.2", "0000:3b:00.3"])
    assert [path for path, _ in nodes].count("/dev/infiniband/rdma_cm") == 1
    assert {path for path, _ in nodes} >= {"/dev/infiniband/uverbs2", "/dev/infiniband/uverbs3"}
    assert "/dev/infiniband/uverbs0" not in {path for path, _ in nodes}
    assert environment == {"PCIDEVICE_NVIDIA_COM_MLNX_SRIOV_RDMA": "0000:3b:00.2,0000:3b:00.3"}


def test_virtual_functions_for_dpdk_are_their_iommu_groups(tree: Tree) -> None:
    parent = bare("0000:18:00.0", INTEL, "0x020000")
    function = replace(bare("0000:18:02.0", INTEL, "0x020000"), driver="vfio-pci", parent=parent.address)
    tree.add(parent, replace(function, iommu_group="83"))
    tree.add_nodes("vfio/vfio", "vfio/83")
    plan = look(tree, ready("sriov-vfio"))
    nodes, environment = given(plan, "intel.com/intel_sriov_dpdk", ["0000:18:02.0"])
    assert nodes == [("/dev/vfio/vfio", "rw"), ("/dev/vfio/83", "rw")]
    assert environment == {"PCIDEVICE_INTEL_COM_INTEL_SRIOV_DPDK": "0000:18:02.0"}


def test_fpgas_are_named_by_their_shell(tree: Tree) -> None:
    tree.add(fpga("0000:af:00.1", 128), fpga("0000:d8:00.1", 129, vbnv="xilinx_u250_xdma_201830_2", timestamp="7"))
    tree.add(bare("0000:af:00.0", "0x10ee", "0x120000"))  # its management function
    tree.add_nodes("xfpga/dma.qdma.u44801.0")
    plan = look(tree, ready("xilinx-fpga"))
    assert sorted(plan.resources) == [FPGA, "xilinx.com/fpga-xilinx_u250_xdma_201830_2-7"]
    assert shown(plan, FPGA) == [("0000:af:00.1", True, 1)]
    nodes, _ = given(plan, FPGA, ["0000:af:00.1"])
    assert nodes == [("/dev/dri/renderD128", "rwm"), ("/dev/xfpga/dma.qdma.u44801.0", "rwm")]


def test_gpus_of_others_get_their_own_nodes_and_the_common_one_once(tree: Tree) -> None:
    tree.add(gpu("0000:03:00.0", AMD, "amdgpu", 0), gpu("0000:43:00.0", AMD, "amdgpu", 1, numa_node=1))
    tree.add(gpu("0000:00:02.0", INTEL, "i915", 2))
    tree.add_nodes("kfd")
    plan = look(tree, ready("amd-gpu"), ready("intel-gpu-i915"), ready("intel-gpu-xe"))
    assert shown(plan, "amd.com/gpu") == [("0000:03:00.0", True, 0), ("0000:43:00.0", True, 1)]
    assert shown(plan, "gpu.intel.com/i915") == [("0000:00:02.0", True, 0)]
    assert "gpu.intel.com/xe" not in plan.resources
    nodes, _ = given(plan, "amd.com/gpu", ["0000:03:00.0", "0000:43:00.0"])
    names = ("kfd", "dri/card0", "dri/renderD128", "dri/card1", "dri/renderD129")
    assert nodes == [(f"/dev/{name}", "rw") for name in names]


def test_a_gpu_may_be_shared_by_a_number_of_containers(tree: Tree) -> None:
    tree.add(gpu("0000:03:00.0", INTEL, "xe", 0), gpu("0000:43:00.0", INTEL, "xe", 1))
    shares = made(
        "xe",
        match={"folder": "class/drm", "driver": ["xe"]},
        unit={"sharesPerDevice": 2},
        nodes=[{"path": "dri/{render}"}],
    )
    plan = look(tree, shares)
    ids = [device_id for device_id, _, _ in shown(plan, "example.com/xe")]
    assert ids == ["0000:03:00.0::0", "0000:03:00.0::1", "0000:43:00.0::0", "0000:43:00.0::1"]
    nodes, _ = given(plan, "example.com/xe", ids[:2])
    assert nodes == [("/dev/dri/renderD128", "rw")]


def test_what_has_no_device_is_a_number(tree: Tree) -> None:
    tree.add_nodes("fuse")
    plan = look(tree, made("licence", match=None, unit={"count": 2}), ready("fuse"))
    assert [one for one, _, _ in shown(plan, "example.com/licence")] == ["licence::0", "licence::1"]
    assert given(plan, "example.com/licence", ["licence::1"]) == ([], {})
    assert given(plan, "grapnel.dev/fuse", ["fuse::99"]) == ([("/dev/fuse", "rw")], {})
    tree.remove_node("fuse")
    assert not any(is_healthy for _, is_healthy, _ in shown(look(tree, ready("fuse")), "grapnel.dev/fuse"))


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        pytest.param("4: ACTIVE", "", id="up"),
        pytest.param("1: DOWN", "infiniband/*/ports/*/state is '1: DOWN', not '4: ACTIVE'", id="down"),
        pytest.param("", "infiniband/*/ports/*/state cannot be read", id="empty"),
        pytest.param("x" * 300, "infiniband/*/ports/*/state cannot be read", id="far too long"),
        pytest.param("4: ACTIVE\n\x1b[2J", "infiniband/*/ports/*/state cannot be read", id="not printable"),
    ],
)
def test_a_link_that_is_down_makes_a_card_unhealthy(tree: Tree, state: str, reason: str) -> None:
    tree.add(rdma_nic("0000:3b:00.0", 0, state=state))
    plan = look(tree, made(health={"infiniband/*/ports/*/state": ["4: ACTIVE"]}))
    assert shown(plan, "example.com/card") == [("0000:3b:00.0", not reason, 0)]
    assert plan.resources["example.com/card"].table.entries["0000:3b:00.0"].unhealthy == reason


CONDITIONS = [
    pytest.param({"vendor": ["15b3"]}, True, id="a vendor without 0x"),
    pytest.param({"vendor": ["0x8086", "0x15B3"]}, True, id="one of two vendors"),
    pytest.param({"vendor": ["8086"]}, False, id="another vendor"),
    pytest.param({"device": ["1017"]}, True, id="a device"),
    pytest.param({"class": ["02"]}, True, id="the beginning of a class"),
    pytest.param({"class": ["0x0207"]}, True, id="class and subclass"),
    pytest.param({"class": ["03"]}, False, id="another class"),
    pytest.param({"class": ["7"]}, False, id="the middle of a class"),
    pytest.param({"driver": ["mlx5_core"]}, True, id="its driver"),
    pytest.param({"driver": ["vfio-pci"]}, False, id="another driver"),
    pytest.param({"name": ["0000:3b:*"]}, True, id="a pattern of its name"),
    pytest.param({"address": ["0000:3c:*"]}, False, id="another bus"),
    pytest.param({"present": ["infiniband"]}, True, id="something that is there"),
    pytest.param({"present": ["physfn"]}, False, id="something that is not there"),
    pytest.param({"absent": ["physfn"]}, True, id="nothing that must not be there"),
    pytest.param({"absent": ["physfn", "net"]}, False, id="one of what must not be there"),
    pytest.param({"attributes": {"net/*/type": ["1", "32"]}}, True, id="the type of its link"),
    pytest.param({"attributes": {"net/*/type": ["1"]}}, False, id="another type"),
    pytest.param({"attributes": {"nothing": ["1"]}}, False, id="a file that is not there"),
    pytest.param({"vendor": ["15b3"], "driver": ["vfio-pci"]}, False, id="one condition of two"),
]


@pytest.mark.parametrize(("conditions", "fits"), CONDITIONS)
@pytest.mark.parametrize("folder", ["bus/pci/devices", "class/infiniband"])
def test_conditions_are_or_within_and_and_between(
    tree: Tree, conditions: dict[str, object], folder: str, *, fits: bool
) -> None:
    if "name" in conditions and folder.startswith("class"):
        conditions = {"name": ["mlx5_?"]}
    tree.add(rdma_nic("0000:3b:00.0", 0))
    plan = look(tree, made(match={"folder": folder, **conditions}))
    assert (list(plan.resources) == ["example.com/card"]) is fits


def test_a_virtual_function_is_found_by_the_interface_of_its_parent(tree: Tree) -> None:
    tree.add(rdma_nic("0000:3b:00.0", 0), rdma_nic("0000:86:00.0", 1))
    tree.add(virtual_function("0000:3b:00.2", 2, "0000:3b:00.0"), virtual_function("0000:86:00.2", 3, "0000:86:00.0"))
    by_interface = made("one", match={**PCI, "present": ["physfn/net/ib1"]})
    by_address = made("two", match={**PCI, "physfn": ["0000:3b:00.0"]})
    plan = look(tree, by_interface, by_address)
    assert [one for one, _, _ in shown(plan, "example.com/one")] == ["0000:86:00.2"]
    assert [one for one, _, _ in shown(plan, "example.com/two")] == ["0000:3b:00.2"]


def test_a_device_belongs_to_the_first_class_that_wants_it(tree: Tree) -> None:
    tree.add(rdma_nic("0000:3b:00.0", 0))
    plan = look(tree, made("one"), made("two", match={"folder": "class/infiniband"}))
    assert list(plan.resources) == ["example.com/one"]
    assert [message for _, message in plan.findings] == [
        "two: 0000:3b:00.0 is not offered: it is a device of one already"
    ]


def test_a_name_belongs_to_the_first_class_that_has_it(tree: Tree) -> None:
    plan = look(
        tree,
        made("one", match=None, unit={"count": 1}),
        made("two", match=None, unit={"count": 2}, resource="example.com/one"),
    )
    assert [one for one, _, _ in shown(plan, "example.com/one")] == ["one::0"]
    assert plan.findings == (("two example.com/one", "two: nothing is offered as example.com/one: one has that name"),)


def test_gpus_of_nvidia_are_left_to_the_daemon(tree: Tree) -> None:
    tree.add(gpu("0000:01:00.0", "0x10de", "nvidia", 0))
    plan = look(tree, made())
    assert plan.resources == {}
    assert "the daemon offers GPUs of NVIDIA by itself" in plan.findings[0][1]


@pytest.mark.parametrize(
    ("shell", "resource"),
    [
        pytest.param("a b/c", "example.com/fpga-a-b-c", id="what a name may not have becomes a dash"),
        pytest.param("../../etc", "example.com/fpga-..-..-etc", id="no way up"),
    ],
)
def test_what_a_device_says_becomes_a_name_and_no_path(tree: Tree, shell: str, resource: str) -> None:
    tree.add(fpga("0000:af:00.1", 128, vbnv=shell))
    named = made(resource="example.com/fpga-{shell}", variables={"shell": {"content": "rom*/VBNV"}})
    assert list(look(tree, named).resources) == [resource]


@pytest.mark.parametrize("shell", ["../mem", "..", "/dev/mem", "a/b", "x" * 65, ".hidden"])
def test_what_a_device_says_leads_to_no_other_node(tree: Tree, shell: str) -> None:
    tree.add(fpga("0000:af:00.1", 128, vbnv=shell))
    tree.add_nodes("mem")
    named = made(nodes=[{"path": "dri/{shell}"}], variables={"shell": {"content": "rom*/VBNV"}})
    plan = look(tree, named)
    table = plan.resources["example.com/card"].table
    assert "which is no name of a file" in table.entries["0000:af:00.1"].unhealthy
    assert table.entries["0000:af:00.1"].device.nodes == ()


def test_a_node_of_nvidias_driver_is_given_to_nobody(tree: Tree) -> None:
    tree.add(fpga("0000:af:00.1", 128, vbnv="nvidia0"))
    tree.add_nodes("nvidia0")
    plan = look(tree, made(nodes=[{"path": "{shell}"}], variables={"shell": {"content": "rom*/VBNV"}}))
    assert plan.resources["example.com/card"].table.entries["0000:af:00.1"].device.nodes == ()


def test_a_name_that_is_too_long_is_told_of(tree: Tree) -> None:
    tree.add(fpga("0000:af:00.1", 128, vbnv="s" * 80))
    named = made(resource="example.com/fpga-{shell}", variables={"shell": {"content": "rom*/VBNV"}})
    plan = look(tree, named)
    assert plan.resources == {}
    assert "0000:af:00.1 is not offered: its resource would be 'example.com/fpga-sss" in plan.findings[0][1]


def test_a_device_that_does_not_say_its_resource_is_told_of(tree: Tree) -> None:
    tree.add(rdma_nic("0000:3b:00.0", 0))
    plan = look(tree, made(resource="example.com/{render}"))
    assert plan.resources == {}
    assert "sysfs does not say all of {render}" in plan.findings[0][1]


def test_more_units_than_a_list_can_carry_are_left_out(tree: Tree) -> None:
    tree.add(*(gpu(f"0000:{n:02x}:00.0", INTEL, "xe", n) for n in range(11)))
    plan = look(tree, made(unit={"sharesPerDevice": 1000}))
    assert len(plan.resources["example.com/card"].offers) == 10_000
    assert "1000 units of example.com/card are left out" in plan.findings[0][1]


def test_numa_can_be_kept_from_the_kubelet(tree: Tree) -> None:
    tree.add(rdma_nic("0000:3b:00.0", 0, numa_node=1), rdma_nic("0000:86:00.0", 1, numa_node=-1))
    assert [numa for _, _, numa in shown(look(tree, made()), "example.com/card")] == [1, None]
    assert [numa for _, _, numa in shown(look(tree, made(numa=False)), "example.com/card")] == [None, None]


def test_cards_on_one_numa_node_give_their_count_that_node(tree: Tree) -> None:
    tree.add(rdma_nic("0000:3b:00.0", 0, numa_node=1), rdma_nic("0000:86:00.0", 1, numa_node=1))
    assert shown(look(tree, made(unit={"count": 1})), "example.com/card") == [("card::0", True, 1)]


def test_mounts_are_as_the_file_says(tree: Tree) -> None:
    tree.add(gpu("0000:03:00.0", INTEL, "xe", 0))
    by_path = [
        {"hostPath": "/dev/dri/by-path/pci-{address}-card"},
        {"hostPath": "/etc/a", "containerPath": "/b", "readOnly": False},
    ]
    plan = look(tree, made(mounts=by_path))
    answer = allocate(plan.resources["example.com/card"].table, ["0000:03:00.0"])
    path = "/dev/dri/by-path/pci-0000:03:00.0-card"
    assert [(one.container_path, one.host_path, one.read_only) for one in answer.mounts] == [
        (path, path, True),
        ("/b", "/etc/a", False),
    ]


def test_a_device_that_is_unplugged_is_not_listed_any_more(tree: Tree) -> None:
    tree.add(rdma_nic("0000:3b:00.0", 0), rdma_nic("0000:86:00.0", 1))
    tree.unplug("0000:3b:00.0")
    assert [one for one, _, _ in shown(look(tree, made()), "example.com/card")] == ["0000:86:00.0"]


def test_a_machine_without_any_device_offers_nothing(tree: Tree) -> None:
    plan = look(tree, *(ready(path.stem) for path in READY.glob("*.json") if path.stem != "fuse"))
    assert plan.resources == {}
