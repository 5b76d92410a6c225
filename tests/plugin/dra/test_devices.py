"""Devices of a slice: NVIDIA's names for what there is, in the forms that the API takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from plugin.devices.allocation.table import NoSharing
from plugin.devices.inventory import Inventory, next_inventory
from plugin.devices.naming import NamePattern
from plugin.devices.resources import OfferRules, plan_offers
from plugin.devices.sharing import ShareRule, Strategy
from plugin.dra.devices import Features, Share, architecture, find_devices, find_shares, name_of, semantic_version
from plugin.driver.snapshot import GpuFacts, MigFacts, MigSize, Snapshot
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus

if TYPE_CHECKING:
    from collections.abc import Sequence

MIG = MigFacts("MIG-5b2b1a2c-0000-0000-0000-000000000001", 0, 3, 0, "1g.10gb", MigSize(9728, 14, 1, 1, 1, 1))


def inventory(found: Sequence[GpuFacts], tree: DictTree | None = None) -> Inventory:
    return next_inventory(Inventory(), Snapshot(VERSION, tuple(found), cuda_version="12.4"), tree or DictTree(set()))


def test_a_gpu_is_called_by_its_uuid_and_described_in_nvidias_words() -> None:
    facts = replace(gpu(3), compute_capability="8.0", brand="Nvidia")
    (device,) = find_devices(inventory([facts]))
    shown = device.to_json(Features())
    assert shown["name"] == "gpu-00000000-0000-0000-0000-000000000003"
    attributes = shown["attributes"]
    assert attributes["type"] == {"string": "gpu"}
    assert attributes["uuid"] == {"string": facts.uuid}
    assert attributes["productName"] == {"string": "NVIDIA A100-SXM4-80GB"}
    assert attributes["architecture"] == {"string": "Ampere"}
    assert attributes["cudaComputeCapability"] == {"version": "8.0.0"}
    assert attributes["driverVersion"] == {"version": "550.163.1"}
    assert attributes["cudaDriverVersion"] == {"version": "12.4.0"}
    assert attributes["resource.kubernetes.io/pciBusID"] == {"string": "0000:13:00.0"}
    assert shown["capacity"] == {"memory": {"value": "80Gi"}}
    assert "taints" not in shown


@pytest.mark.parametrize(
    ("capability", "capacity"),
    [
        pytest.param("12.1", {"memory": {"value": "128Gi"}}, id="a GB10 has the machine's"),
        pytest.param("12.0", {}, id="nobody knows"),
    ],
)
def test_of_a_gpu_whose_driver_tells_no_memory_a_claim_finds_what_is_known(
    capability: str, capacity: dict[str, object]
) -> None:
    tree = DictTree(set())
    tree.memory = 128 << 30
    facts = replace(gpu(0), memory_bytes=None, compute_capability=capability)
    (device,) = find_devices(inventory([facts], tree))
    assert device.capacity == capacity
    assert device.to_json(Features()).get("capacity", {}) == capacity


def test_a_gpu_in_mig_mode_is_its_mig_devices() -> None:
    facts = replace(gpu(0), is_cut=True, mig=(MIG,))
    tree = DictTree(set())
    devices = find_devices(inventory([facts], tree))
    assert [each.uuid for each in devices] == [MIG.uuid]
    (device,) = devices
    assert set(device.parts) == {MIG.uuid, facts.uuid}
    assert device.attributes["parentUUID"] == {"string": facts.uuid}
    assert device.attributes["profile"] == {"string": "1g.10gb"}
    assert device.capacity["memory"] == {"value": "9728Mi"}
    assert device.capacity["multiprocessors"] == {"value": "14"}


def test_what_is_unhealthy_has_a_taint_where_the_api_has_taints() -> None:
    found = inventory(gpus(1))
    ill = replace(found, devices=(replace(found.devices[0], unhealthy="xid 79", is_lost=True),))
    (device,) = find_devices(ill)
    assert device.to_json(Features())["taints"] == [{"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}]
    assert "taints" not in device.to_json(Features(taints=False))


@pytest.mark.parametrize(
    ("version", "expected"),
    [("550.90.07", "550.90.7"), ("12.4", "12.4.0"), ("9", "9.0.0"), ("", ""), ("1.2.3.4", ""), ("550.x", "")],
)
def test_versions_are_semantic_ones(version: str, expected: str) -> None:
    assert semantic_version(version) == expected


@pytest.mark.parametrize(
    ("capability", "expected"),
    [("7.0", "Volta"), ("7.5", "Turing"), ("8.6", "Ampere"), ("8.9", "Ada Lovelace"), ("9.0", "Hopper"), ("", "")],
)
def test_architectures_have_nvidias_names(capability: str, expected: str) -> None:
    assert architecture(capability) == expected


def test_old_ids_of_mig_devices_are_names_too() -> None:
    assert name_of("MIG-GPU-5b2b1a2c-0000-0000-0000-000000000001/1/0") == (
        "mig-gpu-5b2b1a2c-0000-0000-0000-000000000001-1-0"
    )


def test_a_shared_gpu_has_shares_that_claims_take() -> None:
    found = inventory(gpus(2))
    first = found.devices[0].gpu.uuid
    rule = ShareRule(Strategy.TIME_SLICING, "nvidia.com/gpu", "nvidia.com/gpu", 4, chosen=(first,))
    plan = plan_offers(found, OfferRules((NamePattern("*", "nvidia.com/gpu"),), shares=(rule,)))
    shared, whole = find_devices(found, find_shares(plan, NoSharing()))
    assert shared.to_json(Features())["allowMultipleAllocations"] is True
    assert shared.to_json(Features())["capacity"]["shares"] == {
        "value": "4",
        "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "4", "step": "1"}},
    }
    assert "allowMultipleAllocations" not in whole.to_json(Features())


@pytest.mark.parametrize(("count", "shown"), [(3, "3"), (1000, "1k"), (1500, "1500")])
def test_shares_are_written_as_the_api_answers_them(count: int, shown: str) -> None:
    (device,) = find_devices(inventory(gpus(1)), {gpu(0).uuid: Share(count, count)})
    capacity = device.to_json(Features())["capacity"]["shares"]
    assert (capacity["value"], capacity["requestPolicy"]["validRange"]["max"]) == (shown, shown)


def test_a_gpu_in_units_of_its_memory_is_divided_by_steps_of_them() -> None:
    found = inventory(gpus(2))
    rule = ShareRule(Strategy.MEMORY, "nvidia.com/gpu", "aliyun.com/gpu-mem", unit_bytes=3 * 2**30, chosen=1)
    plan = plan_offers(found, OfferRules((NamePattern("*", "nvidia.com/gpu"),), shares=(rule,)))
    shared, whole = (each.to_json(Features()) for each in find_devices(found, find_shares(plan, NoSharing())))
    assert shared["allowMultipleAllocations"]
    allowed = {"min": "3Gi", "max": "78Gi", "step": "3Gi"}  # of 80 GiB
    assert shared["capacity"] == {
        "memory": {"value": "78Gi", "requestPolicy": {"default": "78Gi", "validRange": allowed}}
    }
    assert whole["capacity"] == {"memory": {"value": "80Gi"}}
