"""Other devices than GPUs as slices and engines are told of them, and what is left of them to the device plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.sysfs import Tree, fpga, rdma_nic, virtual_function
from plugin.base.errors import ClaimError
from plugin.devices.allocation.table import allocate
from plugin.dra.claims import ClaimName
from plugin.dra.devices import Features
from plugin.dra.others.devices import (
    Held,
    find_others,
    names_of,
    noted,
    other_name,
    refuse_configs,
    render_others,
    without_held,
)
from plugin.dra.store import PreparedDevice, Record, parse_record, render_record
from plugin.kubelet.cdi_names import OTHERS, other_id
from tests.plugin.other_devices.test_plan import FPGA, RDMA, SRIOV, look, made, ready

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.dra.others.devices import OtherDevice

CARD = "0000:41:00.0"
CLAIM = ClaimName("ml", "train", "u1")
VARIABLE = "PCIDEVICE_NVIDIA_COM_MLNX_SRIOV_RDMA"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made_tree = Tree(tmp_path)
    made_tree.add(
        rdma_nic(CARD, 0),
        virtual_function("0000:41:00.1", 1, CARD, numa_node=1),
        virtual_function("0000:41:00.2", 2, CARD),
        fpga("0000:51:00.0", 128),
    )
    made_tree.add_nodes("infiniband/rdma_cm")
    return made_tree


def record(*devices: str, request: str = "nic") -> Record:
    return Record(CLAIM, tuple(PreparedDevice(request, "n1", each, each, (each,)) for each in devices))


def names_for(one: Record, found: dict[str, OtherDevice]) -> tuple[tuple[str, ...], ...]:
    return names_of(noted(one, found, ()))


def rows(content: dict[str, Any] | None) -> dict[str, Any]:
    assert content is not None
    return {each["name"]: each["containerEdits"] for each in content["devices"]}


def test_a_device_says_its_class_its_resource_and_where_it_is(tree: Tree) -> None:
    found = find_others(look(tree, ready("sriov-rdma"), ready("xilinx-fpga")))
    assert sorted(found) == ["pci-0000-41-00-1", "pci-0000-41-00-2", "pci-0000-51-00-0"]
    shown = found["pci-0000-41-00-1"].shown(0, has_shares=True).to_json(Features())
    assert shown == {
        "name": "pci-0000-41-00-1",
        "attributes": {
            "type": {"string": "sriov-rdma"},
            "resourceName": {"string": SRIOV},
            "resource.kubernetes.io/pciBusID": {"string": "0000:41:00.1"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
            "resource.kubernetes.io/numaNode": {"int": 1},
        },
    }
    assert found["pci-0000-51-00-0"].seen.attributes["resourceName"] == {"string": FPGA}


@pytest.mark.parametrize(("taken", "left"), [(0, "1k"), (998, "2"), (999, "1")])
def test_a_count_is_shares_of_one_device_less_what_pods_have_by_the_device_plugin(
    tree: Tree, taken: int, left: str
) -> None:
    (found,) = find_others(look(tree, ready("rdma-shared"))).values()
    shown = found.shown(taken, has_shares=True).to_json(Features())
    assert (shown["name"], shown["allowMultipleAllocations"]) == ("rdma-shared", True)
    assert shown["capacity"]["shares"]["value"] == left
    assert "allowMultipleAllocations" not in found.shown(taken, has_shares=False).to_json(Features())


def test_what_is_ill_is_tainted(tree: Tree) -> None:
    tree.remove_node("infiniband/uverbs1")
    found = find_others(look(tree, ready("sriov-rdma")))
    taints = {name: each.seen.to_json(Features()).get("taints") for name, each in found.items()}
    assert taints["pci-0000-41-00-1"] == [{"key": "grapnel.dev/unhealthy", "effect": "NoSchedule"}]
    assert taints["pci-0000-41-00-2"] is None


def test_engines_add_what_the_device_plugin_answers(tree: Tree) -> None:
    mounted = made("mounted", match=None, unit={"count": 3}, mounts=[{"hostPath": "/srv"}])
    plan = look(tree, ready("sriov-rdma"), mounted)
    found = rows(render_others(find_others(plan), ()))
    edits = found["pci-0000-41-00-1"]
    answer = allocate(plan.resources[SRIOV].table, ["0000:41:00.1"])
    assert [(each["path"], each["hostPath"], each["permissions"]) for each in edits["deviceNodes"]] == [
        (each.container_path, each.host_path, each.permissions) for each in answer.nodes
    ]
    assert edits["env"] == [f"{name}={value}" for name, value in answer.variables]
    assert found["mounted"]["mounts"][0]["options"][0] == "ro"
    assert "hooks" not in str(found)


def test_what_is_only_counted_adds_nothing_and_makes_no_file_that_engines_refuse(tree: Tree) -> None:
    found = find_others(look(tree, made("licence", match=None, unit={"count": 2})))
    assert render_others(found, ()) is None
    assert names_for(record("licence"), found) == ((),)


def test_a_prepared_claim_has_what_it_was_given_whatever_is_written_since(tree: Tree) -> None:
    """A container that was started again was asked for with names that the file had no more, or got something else."""
    before = find_others(look(tree, made("licence", match=None, unit={"count": 2}, environment={"KEY": "old"})))
    (held,) = (noted(record("licence"), before, ()),)
    assert parse_record(render_record(held).encode(), CLAIM.uid) == held
    assert names_of(held) == (("grapnel.dev/device=licence",),)
    old, new = {"env": ["KEY=old"]}, {"env": ["KEY=new"]}
    after = find_others(look(tree, made("licence", match=None, unit={"count": 2}, environment={"KEY": "new"})))
    assert rows(render_others({}, [held])) == {"licence": old}, "its file is gone"
    second = noted(record("licence"), after, [held])
    ((name,),) = names_of(second)
    assert name != "grapnel.dev/device=licence"
    both = {"licence": old, name.partition("=")[2]: new}
    assert rows(render_others(after, [held])) == both, "engines know it before a claim asks for it"
    assert rows(render_others(after, [held, second])) == both
    assert noted(held, after, [held, second]) == held
    assert rows(render_others(after, [second])) == {"licence": new, name.partition("=")[2]: new}


def test_joined_values_stay_as_they_were_given(tree: Tree) -> None:
    before, devices = look(tree, ready("sriov-rdma")), ("pci-0000-41-00-2", "pci-0000-41-00-1")
    held = noted(record(*devices), find_others(before), ())
    assert rows(render_others({}, [held])).keys() == {each.partition("=")[2] for one in names_of(held) for each in one}


def test_a_record_of_before_has_what_is_written_now(tree: Tree) -> None:
    found, old = find_others(look(tree, ready("sriov-rdma"))), record("pci-0000-41-00-2", "pci-0000-99-00-0")
    assert names_of(noted(old, found, [old])) == tuple((f"grapnel.dev/device={each.device}",) for each in old.devices)


def test_a_variable_of_several_devices_of_a_request_has_all_their_values(tree: Tree) -> None:
    plan = look(tree, ready("sriov-rdma"))
    found, both = find_others(plan), record("pci-0000-41-00-2", "pci-0000-41-00-1")
    first, second = names_for(both, found)
    assert first == ("grapnel.dev/device=pci-0000-41-00-2",)
    of_file = rows(render_others(found, [both]))
    assert second[0] == "grapnel.dev/device=pci-0000-41-00-1"
    assert of_file[second[1].partition("=")[2]] == {"env": [f"{VARIABLE}=0000:41:00.2,0000:41:00.1"]}
    assert names_for(record("pci-0000-41-00-2"), found) == (first,)
    apart = Record(CLAIM, (*record("pci-0000-41-00-1").devices, *record("pci-0000-41-00-2", request="b").devices))
    assert [len(each) for each in names_for(apart, found)] == [1, 1]


def test_a_claims_device_is_not_healthy_for_the_device_plugin_and_shares_are_so_many_fewer(tree: Tree) -> None:
    plan = look(tree, ready("sriov-rdma"), made("few", match=None, unit={"count": 4}))
    held = {"0000:41:00.1": Held("claim ml/train", 10_000), "few": Held("claim ml/train", 2)}
    left = without_held(plan, held, {"few::0", "few::3"}, "")
    healthy = {each.device_id for each in left.resources[SRIOV].offers if each.is_healthy}
    assert healthy == {"0000:41:00.2"}
    few = left.resources["example.com/few"]
    assert {each.device_id for each in few.offers if each.is_healthy} == {"few::0", "few::3"}
    assert few.table.entries["few::1"].unhealthy == "claim ml/train has it"
    nothing = without_held(plan, {}, (), "nobody knows")
    assert not any(each.is_healthy for one in nothing.resources.values() for each in one.offers)
    assert without_held(plan, {}, (), "") == plan


def test_a_config_is_refused() -> None:
    def with_config(driver: str) -> dict[str, Any]:
        row = {"source": "FromClaim", "opaque": {"driver": driver, "parameters": {"kind": "GpuConfig"}}}
        return {"status": {"allocation": {"devices": {"config": [row]}}}}

    refuse_configs(with_config("gpu.nvidia.com"), CLAIM)
    refuse_configs({"status": {}}, CLAIM)
    with pytest.raises(ClaimError, match="takes none"):
        refuse_configs(with_config(OTHERS), CLAIM)


ENTRIES = st.text(st.characters(codec="ascii", exclude_characters="/"), min_size=1, max_size=60)
ADDRESSES = st.from_regex(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", fullmatch=True)


@given(st.lists(st.one_of(ADDRESSES, ENTRIES.map("class/{}".format)), min_size=2, max_size=2, unique=True))
def test_names_are_dns_labels_and_no_two_devices_have_one(ids: list[str]) -> None:
    names = [other_name(each) for each in ids]
    assert names[0] != names[1]
    for each in names:
        assert 0 < len(each) <= 63
        assert each.replace("-", "").isalnum()
        assert each == each.lower().strip("-")


@given(st.one_of(ADDRESSES, st.from_regex(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", fullmatch=True)))
def test_addresses_and_names_of_classes_are_known_again_by_a_devices_name(device_id: str) -> None:
    assert other_id(other_name(device_id)) == device_id


def test_a_resource_of_each_kind_is_one_of_a_plan(tree: Tree) -> None:
    plan = look(tree, ready("rdma-shared"))
    assert plan.resources[RDMA].pcie_roots == {"rdma-shared": "pci0000:00"}
