"""Which GPU is offered under which name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.devices.inventory import Inventory, next_inventory
from plugin.devices.naming import NamePattern
from plugin.devices.resources import OfferPlan, plan_offers
from plugin.driver.snapshot import GpuFacts, MigFacts, Snapshot
from plugin.settings.model import DaemonSettings
from plugin.settings.node_config import NodeConfig
from tests.plugin.fakes import VERSION, DictTree, gpu

MODELS = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe", "NVIDIA L4")
PATTERNS = (
    NamePattern("*A100*", "nvidia.com/a100"),
    NamePattern("*H100 PCIe", "example.com/h100"),
    NamePattern("*", "nvidia.com/gpu"),
)
SLICE = MigFacts("MIG-00000000-0000-0000-0000-000000000001", 0, 1, 0)


def inventory(*found: GpuFacts) -> Inventory:
    return next_inventory(Inventory(), Snapshot(VERSION, found), DictTree())


def plan(settings: DaemonSettings, *found: GpuFacts, resource: str = "nvidia.com/gpu") -> OfferPlan:
    config = NodeConfig(resource=resource, settings=settings)
    return plan_offers(inventory(*found), config.patterns, holds_back_mig=settings.holds_back_mig)


def ids(got: OfferPlan) -> dict[str, list[str]]:
    return {resource: [offer.device_id for offer in offers] for resource, offers in got.resources.items()}


def mixed() -> tuple[GpuFacts, ...]:
    return tuple(replace(gpu(index), model=model) for index, model in enumerate(MODELS))


def test_without_patterns_every_gpu_is_the_resource_of_node_json() -> None:
    assert ids(plan(DaemonSettings(), *mixed(), resource="a.b/c")) == {"a.b/c": [gpu(index).uuid for index in range(3)]}


def test_patterns_give_products_names_of_their_own() -> None:
    assert ids(plan(DaemonSettings(PATTERNS), *mixed(), resource="a.b/c")) == {
        "nvidia.com/a100": [gpu(0).uuid],
        "example.com/h100": [gpu(1).uuid],
        "nvidia.com/gpu": [gpu(2).uuid],
    }


def test_a_product_that_no_pattern_fits_is_not_offered_and_said() -> None:
    got = plan(DaemonSettings(PATTERNS[:1]), *mixed())
    assert ids(got) == {"nvidia.com/a100": [gpu(0).uuid]}
    assert [device_id for device_id, _ in got.findings] == [gpu(1).uuid, gpu(2).uuid]
    assert "no pattern of resources.gpus fits 'NVIDIA L4'" in got.findings[1][1]


def test_a_product_that_a_pattern_is_a_part_of_is_told_with_the_remedy() -> None:
    got = plan(DaemonSettings((NamePattern("A100", "nvidia.com/a100", "nvidia.yaml:4"),)), *mixed()[:1])
    assert ids(got) == {}
    assert got.findings[0][1] == (
        f"{gpu(0).uuid} is not offered: nvidia.yaml:4: pattern \"A100\" is only a part of 'NVIDIA A100-SXM4-80GB': "
        'since 0.20 of NVIDIA\'s plugin a pattern is the whole name, write "*A100*" if a part is meant'
    )


@pytest.mark.parametrize(
    ("holds_back", "offered"), [(True, [1]), (False, [0, 1])], ids=["strategy single or mixed", "strategy none"]
)
def test_a_gpu_that_is_cut_into_slices(holds_back: bool, offered: list[int]) -> None:  # noqa: FBT001 - a column of the table
    got = plan(DaemonSettings(holds_back_mig=holds_back), replace(gpu(0), mig=(SLICE,)), gpu(1))
    assert ids(got) == {"nvidia.com/gpu": [gpu(index).uuid for index in offered]}
    assert [device_id for device_id, _ in got.findings] == ([gpu(0).uuid] if holds_back else [])


@given(
    st.lists(st.sampled_from(MODELS), max_size=8),
    st.lists(st.sampled_from(PATTERNS), max_size=3),
    st.booleans(),
)
def test_a_device_is_offered_once_or_its_absence_explained(
    models: list[str],
    patterns: list[NamePattern],
    holds_back: bool,  # noqa: FBT001 - drawn
) -> None:
    found = [replace(gpu(index), model=model, mig=(SLICE,) * (index % 2)) for index, model in enumerate(models)]
    got = plan(DaemonSettings(tuple(patterns), holds_back_mig=holds_back), *found)
    offered = [device_id for offers in ids(got).values() for device_id in offers]
    explained = [device_id for device_id, _ in got.findings]
    assert sorted(offered + explained) == [one.uuid for one in found]
    assert all(got.resources.values())
