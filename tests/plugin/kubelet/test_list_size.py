"""How long device lists are, and which ones a kubelet would not take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from plugin.devices.inventory import Inventory, next_inventory
from plugin.devices.naming import NamePattern
from plugin.devices.other.parse import MAX_UNITS
from plugin.devices.resources import OfferRules, plan_offers
from plugin.devices.sharing import ShareRule, Strategy
from plugin.driver.snapshot import Snapshot
from plugin.kubelet.device_plugin.messages import device_list
from plugin.kubelet.list_size import KUBELET_TAKES_BYTES, list_bytes, plan_that_fits, why_too_long
from plugin.kubelet.rpc.codec import encode
from plugin.settings.nvidia.sharing import parse_replicas
from provision.declaration.spec.rules.plugin import MOST_UNITS
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus

if TYPE_CHECKING:
    from plugin.devices.resources import IdLengths

GPU = "nvidia.com/gpu"
EVERY = (NamePattern("*", GPU),)


def shares(replicas: int) -> OfferRules:
    return OfferRules(EVERY, shares=(ShareRule(Strategy.TIME_SLICING, GPU, GPU, replicas=replicas),))


def eight() -> Inventory:
    numa = {each.pci_address: each.index // 4 for each in gpus(8)}
    return next_inventory(Inventory(), Snapshot(VERSION, gpus(8)), DictTree(numa=numa))


@pytest.mark.parametrize("replicas", [2, 11, 999])
def test_the_size_is_that_of_the_encoded_list_when_all_of_it_is_unhealthy(replicas: int) -> None:
    sizes: list[int] = []

    def note(lengths: IdLengths) -> str:
        sizes.append(list_bytes(lengths))
        return ""

    plan = plan_offers(eight(), shares(replicas), note)
    unhealthy = tuple(replace(offer, is_healthy=False) for offer in plan.resources[GPU].offers)
    assert sizes == [len(encode(device_list(unhealthy)))]


def test_eight_gpus_with_16384_replicas_are_refused_with_size_and_limit() -> None:
    """They were registered 16 times in 18 s, and the kubelet was blamed."""
    plan = plan_that_fits(eight(), shares(16_384))
    assert plan.resources == {}
    ((topic, message),) = plan.findings
    assert topic == GPU
    assert "131,072 devices has 8,692,944 bytes, and a kubelet takes 4,194,304" in message


def test_as_many_replicas_as_may_be_declared_fit_for_eight_gpus_cut_in_seven() -> None:
    assert why_too_long({(len(f"{gpu(0).uuid}::999"), 1): 56 * 1000}) == ""
    with pytest.raises(ValueError, match="from 2 to 1000"):
        parse_replicas(1001)


def test_units_of_memory_that_are_too_small_leave_the_other_resources_alone() -> None:
    rule = ShareRule(Strategy.MEMORY, GPU, "aliyun.com/gpu-mem", unit_bytes=2**20, chosen=("0", "1", "2"))
    plan = plan_that_fits(eight(), OfferRules(EVERY, shares=(rule,)))
    assert list(plan.resources) == [GPU]
    assert [topic for topic, _ in plan.findings] == ["aliyun.com/gpu-mem"]


def test_as_many_other_devices_as_there_may_be_always_fit() -> None:
    assert list_bytes({(63, 2**31 - 1): MAX_UNITS}) < KUBELET_TAKES_BYTES


@pytest.mark.parametrize(("count", "fits"), [(MOST_UNITS, True), (MOST_UNITS + 1, False)])
def test_the_declaration_knows_the_units_of_a_gpu_that_fit(count: int, *, fits: bool) -> None:
    rule = ShareRule(Strategy.MEMORY, GPU, "aliyun.com/gpu-mem", unit_bytes=2**20, memory_bytes=count * 2**20)
    silent = replace(gpu(0), memory_bytes=None)
    plan = plan_that_fits(
        next_inventory(Inventory(), Snapshot(VERSION, (silent,)), DictTree()), OfferRules(EVERY, shares=(rule,))
    )
    assert bool(plan.resources) is fits
