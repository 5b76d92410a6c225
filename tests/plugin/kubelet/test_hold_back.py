"""What waits while containers have the same devices in another way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plugin.devices.inventory import Inventory, next_inventory
from plugin.devices.resources import OfferPlan, OfferRules, plan_offers
from plugin.driver.snapshot import Snapshot
from plugin.kubelet.hold_back import HeldBack, hold_back
from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
from plugin.kubelet.pod_resources.holdings import Held
from tests.plugin.devices.test_resources import EVERY, GIB, GPU, cut, inventory, memory, mig, sliced
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus

MEMORY = "aliyun.com/gpu-mem"
WHO = "default/train as "


def plan(rules: OfferRules, count: int = 2) -> OfferPlan:
    return plan_offers(next_inventory(Inventory(), Snapshot(VERSION, gpus(count)), DictTree()), rules)


def held(resource: str, *ids: str) -> Held:
    return Held([DeviceAssignment(PodContainer("default", "train", "main"), resource, ids)])


def free(found: HeldBack) -> list[str]:
    return [each.device_id for one in found.plan.resources.values() for each in one.units if not each.unhealthy]


WHOLE = OfferRules(EVERY)
SHARED = OfferRules(EVERY, shares=(sliced(replicas=3),))
RENAMED = OfferRules(EVERY, shares=(replace(sliced(replicas=3), shown_as="nvidia.com/gpu.shared"),))
UNITS = OfferRules(EVERY, shares=(memory(40 * GIB),))
FIRST, SECOND = gpu(0).uuid, gpu(1).uuid


@pytest.mark.parametrize(
    ("rules", "before", "waits"),
    [
        pytest.param(WHOLE, held(GPU, FIRST), "", id="the same as before"),
        pytest.param(SHARED, held(GPU, FIRST), WHO + GPU, id="shared now, whole before"),
        pytest.param(WHOLE, held(GPU, f"{FIRST}::1"), WHO + GPU, id="whole now, shared before"),
        pytest.param(SHARED, held(GPU, f"{FIRST}::1"), "", id="a share of as many"),
        pytest.param(RENAMED, held(GPU, f"{FIRST}::1"), WHO + GPU, id="a share under another name"),
        pytest.param(UNITS, held(GPU, f"{FIRST}::1"), WHO + GPU, id="memory now, time before"),
        pytest.param(SHARED, held(MEMORY, f"{FIRST}/1"), WHO + MEMORY, id="time now, memory before"),
        pytest.param(UNITS, held(MEMORY, f"{FIRST}/1"), "", id="units of the same size"),
    ],
)
def test_a_gpu_waits_for_those_who_have_it_in_another_way(rules: OfferRules, before: Held, waits: str) -> None:
    planned = plan(rules)
    found = hold_back(planned, before, {FIRST: 40 * GIB})
    assert found.waits == (((FIRST, waits),) if waits else ())
    every = [each.device_id for one in planned.resources.values() for each in one.units]
    assert free(found) == [one for one in every if not waits or one.startswith(SECOND)]


def test_units_of_another_size_are_other_units() -> None:
    found = hold_back(plan(UNITS), held(MEMORY, f"{FIRST}/0"), {FIRST: GIB})
    assert found.waits == ((FIRST, f"{WHO}{MEMORY} has units of 1024 MiB of it"),)
    assert free(found) == [f"{SECOND}/0", f"{SECOND}/1"]


def test_with_fewer_shares_than_are_in_use_no_more_than_these_have_the_gpu() -> None:
    """Of three shares two are free, and one container has a share that is not offered any more."""
    found = hold_back(plan(SHARED, 1), held(GPU, f"{FIRST}::0", f"{FIRST}::7"), {})
    assert free(found) == [f"{FIRST}::0", f"{FIRST}::1"]
    assert found.waits == ((FIRST, f"as many containers as may have it do: {WHO}{GPU}"),)


def test_a_whole_gpu_waits_for_those_who_have_its_mig_devices() -> None:
    one = inventory(cut(0, "1g.10gb", "1g.10gb"), gpu(1))
    found = hold_back(plan_offers(one, WHOLE), held("nvidia.com/mig-1g.10gb", mig(1).uuid), {})
    assert free(found) == [SECOND]
    mixed = plan_offers(one, OfferRules(EVERY, "mixed"))
    assert free(hold_back(mixed, held("nvidia.com/mig-1g.10gb", mig(1).uuid), {})) == [mig(0).uuid, mig(1).uuid, SECOND]
    assert free(hold_back(mixed, held(GPU, FIRST), {})) == [SECOND]


def test_what_is_unhealthy_stays_so_for_its_own_reason() -> None:
    lost = next_inventory(inventory(gpu(0), gpu(1)), Snapshot(VERSION, (gpu(1),)), DictTree())
    found = hold_back(plan_offers(lost, SHARED), held(GPU, FIRST), {})
    assert {each.unhealthy for each in found.plan.resources[GPU].units} == {"nvml does not list it any more", ""}
