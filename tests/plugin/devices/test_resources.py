"""Which device is offered under which name, and in how many units."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.devices.inventory import Inventory, next_inventory
from plugin.devices.naming import NamePattern
from plugin.devices.resources import OfferPlan, OfferRules, Placement, plan_offers, without_all
from plugin.devices.sharing import ShareRule, Strategy, device_of
from plugin.driver.snapshot import GpuFacts, MigFacts, Snapshot
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus

GPU = "nvidia.com/gpu"
MODELS = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe", "NVIDIA L4")
PATTERNS = (
    NamePattern("*A100*", "nvidia.com/a100"),
    NamePattern("*H100 PCIe", "example.com/h100"),
    NamePattern("*", GPU),
)
EVERY = (NamePattern("*", GPU),)
GIB = 2**30


def mig(number: int, profile: str = "1g.10gb") -> MigFacts:
    return MigFacts(f"MIG-00000000-0000-0000-0000-{number:012d}", number % 100, number % 100 + 7, 0, profile)


def cut(index: int, *profiles: str) -> GpuFacts:
    """Return a GPU in MIG mode."""
    devices = tuple(mig(100 * index + number, profile) for number, profile in enumerate(profiles))
    return replace(gpu(index), mig=devices, is_cut=True)


def minors(count: int) -> dict[str, int]:
    """Return the capability nodes of so many GPUs, whatever they are cut into."""
    names = [
        f"gpu{minor}/gi{instance}{part}/access"
        for minor in range(count)
        for instance in range(16)
        for part in ("", "/ci0")
    ]
    return {name: number for number, name in enumerate(names, 3)}


def inventory(*found: GpuFacts) -> Inventory:
    return next_inventory(Inventory(), Snapshot(VERSION, found), DictTree(minors=minors(len(found))))


def plan(rules: OfferRules, *found: GpuFacts) -> OfferPlan:
    return plan_offers(inventory(*found), rules)


def ids(got: OfferPlan) -> dict[str, list[str]]:
    return {name: [offer.device_id for offer in resource.offers] for name, resource in got.resources.items()}


def several_models() -> tuple[GpuFacts, ...]:
    return tuple(replace(gpu(index), model=model) for index, model in enumerate(MODELS))


def sliced(resource: str = GPU, replicas: int = 2, **more: object) -> ShareRule:
    return ShareRule(Strategy.TIME_SLICING, resource, resource, replicas, **more)  # type: ignore[arg-type] # fields


def memory(unit_bytes: int = GIB, **more: object) -> ShareRule:
    return ShareRule(Strategy.MEMORY, GPU, "aliyun.com/gpu-mem", unit_bytes=unit_bytes, **more)  # type: ignore[arg-type] # fields


# Whole GPUs


def test_patterns_give_products_names_of_their_own() -> None:
    assert ids(plan(OfferRules(PATTERNS), *several_models())) == {
        "nvidia.com/a100": [gpu(0).uuid],
        "example.com/h100": [gpu(1).uuid],
        GPU: [gpu(2).uuid],
    }


def test_a_product_that_no_pattern_fits_is_not_offered_and_said() -> None:
    got = plan(OfferRules(PATTERNS[:1]), *several_models())
    assert ids(got) == {"nvidia.com/a100": [gpu(0).uuid]}
    assert [device_id for device_id, _ in got.findings] == [gpu(1).uuid, gpu(2).uuid]
    assert "no pattern of resources.gpus fits 'NVIDIA L4'" in got.findings[1][1]


def test_a_product_that_a_pattern_is_a_part_of_is_told_with_the_remedy() -> None:
    got = plan(OfferRules((NamePattern("A100", "nvidia.com/a100", "nvidia.yaml:4"),)), *several_models()[:1])
    assert ids(got) == {}
    assert got.findings[0][1] == (
        f"{gpu(0).uuid} is not offered: nvidia.yaml:4: pattern \"A100\" is only a part of 'NVIDIA A100-SXM4-80GB': "
        'since 0.20 of NVIDIA\'s plugin a pattern is the whole name, write "*A100*" if a part is meant'
    )


# MIG devices


def test_without_a_strategy_a_gpu_in_mig_mode_is_offered_whole() -> None:
    assert ids(plan(OfferRules(EVERY), cut(0, "1g.10gb"), gpu(1))) == {GPU: [gpu(0).uuid, gpu(1).uuid]}


def test_single_offers_mig_devices_as_gpus() -> None:
    got = plan(OfferRules(EVERY, "single"), cut(0, "3g.40gb", "3g.40gb"), cut(1, "3g.40gb"))
    assert ids(got) == {GPU: [mig(0).uuid, mig(1).uuid, mig(100).uuid]}
    assert got.resources[GPU].placement is Placement.DISTRIBUTED


@pytest.mark.parametrize(
    ("found", "why"),
    [
        pytest.param((cut(0, "3g.40gb", "1g.10gb"),), "the MIG devices are not all of one profile", id="two profiles"),
        pytest.param((cut(0, "3g.40gb"), gpu(1)), "some GPUs are in MIG mode and others are not", id="a whole GPU"),
        pytest.param((cut(0, "3g.40gb"), cut(1)), "a GPU in MIG mode has no MIG device", id="an empty one"),
    ],
)
def test_single_offers_nothing_of_a_layout_that_is_not_one_profile(found: tuple[GpuFacts, ...], why: str) -> None:
    got = plan(OfferRules(EVERY, "single"), *found)
    assert ids(got) == {}
    assert {words for _, words in got.findings} == {
        f"{each.uuid} is not offered: migStrategy is single, and {why}" for each in found
    }


def test_mixed_offers_each_profile_by_its_name_beside_whole_gpus() -> None:
    got = plan(OfferRules(EVERY, "mixed"), cut(0, "1g.10gb", "1c.1g.10gb", "1g.10gb+me"), gpu(1))
    assert ids(got) == {
        "nvidia.com/mig-1g.10gb": [mig(0).uuid, mig(1).uuid],
        "nvidia.com/mig-1g.10gb.me": [mig(2).uuid],
        GPU: [gpu(1).uuid],
    }


def test_a_mig_device_with_a_part_of_its_compute_slices_has_no_resource() -> None:
    got = plan(OfferRules(EVERY, "mixed"), cut(0, "1c.3g.40gb", ""))
    assert ids(got) == {}
    assert [words.partition(": ")[2] for _, words in got.findings] == [
        "profile 1c.3g.40gb has only a part of the compute slices of its gpu instance",
        "the driver does not tell its profile",
    ]


def test_patterns_for_mig_give_profiles_names_of_their_own() -> None:
    rules = OfferRules(EVERY, "mixed", mig_patterns=(NamePattern("1g.*", "example.com/small"),))
    got = plan(rules, cut(0, "1c.1g.10gb", "3g.40gb"))
    assert ids(got) == {"example.com/small": [mig(0).uuid]}
    assert got.findings == ((mig(1).uuid, f"{mig(1).uuid} is not offered: no pattern of resources.mig fits '3g.40gb'"),)


def test_a_mig_device_without_its_capability_node_is_shown_and_not_given_away() -> None:
    tree = DictTree(missing={"nvidia-caps/nvidia-cap17"}, minors=minors(1))
    got = plan_offers(
        next_inventory(Inventory(), Snapshot(VERSION, (cut(0, "1g.10gb", "1g.10gb"),)), tree),
        OfferRules(EVERY, "mixed"),
    )
    assert [unit.unhealthy for unit in got.resources["nvidia.com/mig-1g.10gb"].units] == [
        "it has no device node nvidia-caps/nvidia-cap17",
        "",
    ]


# Shares


def test_every_gpu_is_shared_under_its_own_name_or_another() -> None:
    assert ids(plan(OfferRules(EVERY, shares=(sliced(),)), *gpus(2))) == {
        GPU: [f"{gpu(0).uuid}::0", f"{gpu(0).uuid}::1", f"{gpu(1).uuid}::0", f"{gpu(1).uuid}::1"]
    }
    renamed = replace(sliced(), shown_as="nvidia.com/gpu.shared")
    assert list(ids(plan(OfferRules(EVERY, shares=(renamed,)), *gpus(2)))) == ["nvidia.com/gpu.shared"]


@pytest.mark.parametrize(
    ("chosen", "shared"),
    [
        pytest.param(None, [0, 1, 2], id="all"),
        pytest.param(2, [0, 1], id="so many"),
        pytest.param(("2", gpu(0).uuid), [0, 2], id="by index and uuid"),
        pytest.param(("9",), [], id="one that is not there"),
    ],
)
def test_only_the_chosen_gpus_are_shared(chosen: int | tuple[str, ...] | None, shared: list[int]) -> None:
    rule = replace(sliced(chosen=chosen), shown_as="nvidia.com/gpu.shared")
    got = ids(plan(OfferRules(EVERY, shares=(rule,)), *gpus(3)))
    assert [device_of(one) for one in got.get("nvidia.com/gpu.shared", [])[::2]] == [
        gpu(index).uuid for index in shared
    ]
    assert got.get(GPU, []) == [gpu(index).uuid for index in range(3) if index not in shared]


def test_each_resource_is_shared_by_its_own_rule_also_mig_devices() -> None:
    rules = OfferRules(
        EVERY, "mixed", shares=(sliced("nvidia.com/mig-1g.10gb", 3, chosen=("0:1",)), sliced(replicas=2))
    )
    got = ids(plan(rules, cut(0, "1g.10gb", "1g.10gb"), gpu(1)))
    assert got["nvidia.com/mig-1g.10gb"] == [mig(0).uuid, *(f"{mig(1).uuid}::{number}" for number in range(3))]
    assert got[GPU] == [f"{gpu(1).uuid}::0", f"{gpu(1).uuid}::1"]


def test_memory_is_offered_in_whole_units_of_each_gpu() -> None:
    small = replace(gpu(1), memory_bytes=int(1.5 * GIB))
    got = plan(OfferRules(EVERY, shares=(memory(),)), gpu(0), small)
    assert ids(got) == {"aliyun.com/gpu-mem": [*(f"{gpu(0).uuid}/{j}" for j in range(80)), f"{gpu(1).uuid}/0"]}
    assert got.resources["aliyun.com/gpu-mem"].placement is Placement.ONE_DEVICE


@pytest.mark.parametrize(
    ("size", "why"),
    [
        pytest.param(None, "the driver does not say how much memory it has", id="unknown memory"),
        pytest.param(GIB - 1, "memory units of 1024 MiB do not fit into its memory", id="less than a unit"),
    ],
)
def test_a_gpu_without_room_for_a_unit_is_not_offered_and_said(size: int | None, why: str) -> None:
    """Of a GPU whose driver does not say its size, it was said that no unit fits."""
    got = plan(OfferRules(EVERY, shares=(memory(),)), replace(gpu(0), memory_bytes=size))
    assert ids(got) == {}
    assert f"is not offered: {why}" in got.findings[0][1]
    assert ("write memoryMiB" in got.findings[0][1]) is (size is None)


@pytest.mark.parametrize(
    ("size", "units"),
    [
        pytest.param(None, 96, id="the driver says nothing"),
        pytest.param(80 * GIB, 80, id="less than declared"),
        pytest.param(128 * GIB, 96, id="more than declared"),
    ],
)
def test_a_declared_size_is_offered_in_units_as_far_as_it_is_there(size: int | None, units: int) -> None:
    rule = replace(memory(), memory_bytes=96 * GIB)
    got = plan(OfferRules(EVERY, shares=(rule,)), replace(gpu(0), memory_bytes=size))
    assert len(got.resources["aliyun.com/gpu-mem"].units) == units


@pytest.mark.parametrize(
    ("capability", "units"),
    [
        pytest.param("12.1", 121, id="GB10, which has the machine's memory"),
        pytest.param("12.0", 0, id="another one, of which nobody knows"),
        pytest.param("", 0, id="of unknown kind"),
    ],
)
def test_the_memory_of_the_machine_is_offered_where_a_gpu_has_no_other(capability: str, units: int) -> None:
    silent = replace(gpu(0), memory_bytes=None, compute_capability=capability)
    seen = next_inventory(Inventory(), Snapshot(VERSION, (silent,)), DictTree(memory=121 * GIB + 1))
    got = plan_offers(seen, OfferRules(EVERY, shares=(memory(),)))
    assert len(ids(got).get("aliyun.com/gpu-mem", [])) == units


def test_the_units_of_a_lost_gpu_stay_and_are_unhealthy() -> None:
    before = inventory(gpu(0), gpu(1))
    lost = next_inventory(before, Snapshot(VERSION, (gpu(0),)), DictTree())
    got = plan_offers(lost, OfferRules(EVERY, shares=(sliced(),))).resources[GPU]
    assert [offer.is_healthy for offer in got.offers] == [True, True, False, False]


@given(
    st.lists(st.sampled_from([gpu, lambda index: cut(index, "1g.10gb", "2g.20gb"), cut]), max_size=6),
    st.lists(st.sampled_from(PATTERNS), max_size=3),
    st.sampled_from(["none", "single", "mixed"]),
    st.sampled_from([(), (sliced(),), (memory(20 * GIB),), (sliced(chosen=1), memory(20 * GIB, chosen=("3",)))]),
)
def test_a_device_is_offered_once_or_its_absence_explained(
    kinds: list[object], patterns: list[NamePattern], strategy: str, shares: tuple[ShareRule, ...]
) -> None:
    found = [kind(index) for index, kind in enumerate(kinds)]  # type: ignore[operator] # functions of an index
    got = plan(OfferRules(tuple(patterns), strategy, shares=shares), *found)
    offered = [one for units in ids(got).values() for one in units]
    assert len(set(offered)) == len(offered)
    told = {device_of(one) for one in offered} | {device_id for device_id, _ in got.findings}
    whole = {each.uuid for each in found}
    assert told <= whole | {device.uuid for each in found for device in each.mig}
    assert all(each.uuid in told or any(device.uuid in told for device in each.mig) for each in found)
    assert all(resource.units for resource in got.resources.values())


def test_a_plan_in_which_nothing_can_be_given_away_keeps_its_size_and_earlier_reasons() -> None:
    inventory = next_inventory(Inventory(), Snapshot(VERSION, gpus(2)), DictTree())
    ill = replace(inventory.devices[0], unhealthy="xid 79")
    plan = plan_offers(replace(inventory, devices=(ill, *inventory.devices[1:])), OfferRules(EVERY))
    (resource,) = without_all(plan, "no channel").resources.values()
    assert [unit.unhealthy for unit in resource.units] == ["xid 79", "no channel"]
