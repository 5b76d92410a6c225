from __future__ import annotations

from dataclasses import replace

import pytest

from plugin.devices.inventory import Device, Inventory
from plugin.driver.telemetry import GpuTelemetry
from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer, claims_of, holders_by_uuid
from plugin.publication.metrics.catalogue import ACCELERATOR_METRICS, GPU_METRICS
from plugin.publication.metrics.devices import Attribution, gpu_families, health_family, nvml_address
from plugin.publication.metrics.exposition import render
from tests.plugin.fakes import VERSION, gpu, telemetry
from tests.plugin.metrics.reading import Page, read_page

POD = PodContainer("default", "train-0", "main")
OTHER = PodContainer("default", "train-1", "main")
INVENTORY = Inventory(VERSION, tuple(Device(gpu(index), f"/dev/nvidia{index}") for index in range(2)))
MEASURED = (telemetry(0), telemetry(1))
NO_METRICS = ("uuid", "processes", "instances", "asked_at_s")
MEASURED_FIELDS = tuple(name for name in GpuTelemetry._fields if name not in NO_METRICS)


def page(*measured: GpuTelemetry, holders: dict[str, tuple[PodContainer, ...]] | None = None) -> Page:
    return read_page(render(gpu_families(INVENTORY, measured, Attribution(holders or {}, holders, {}), "node-1")))


def test_the_labels_are_those_of_dcgm_exporter() -> None:
    found = page(telemetry(1), holders={gpu(1).uuid: (POD,)})
    assert found.of("DCGM_FI_DEV_GPU_UTIL") == {
        (
            ("gpu", "1"),
            ("UUID", gpu(1).uuid),
            ("pci_bus_id", "00000000:11:00.0"),
            ("device", "nvidia1"),
            ("modelName", "NVIDIA A100-SXM4-80GB"),
            ("Hostname", "node-1"),
            ("DCGM_FI_DRIVER_VERSION", VERSION),
            ("container", "main"),
            ("namespace", "default"),
            ("pod", "train-0"),
        ): 11
    }


def test_a_gpu_that_a_claim_brought_names_it_as_dcgm_exporter_does() -> None:
    given = (DeviceAssignment(POD, "claim single-gpu-x7k2p", (gpu(1).uuid,)),)
    attribution = Attribution(holders_by_uuid(given, ()), None, {}, claims_of(given))
    found = read_page(render(gpu_families(INVENTORY, MEASURED, attribution, "node-1")))
    labels = [dict(labels) for labels in found.of("DCGM_FI_DEV_GPU_UTIL")]
    claims = [(each.get("pod"), each.get("dra_claim_name"), each.get("dra_claim_namespace")) for each in labels]
    assert claims == [(None, None, None), ("train-0", "single-gpu-x7k2p", "default")]
    (of_container,) = found.of("container_accelerator_duty_cycle")
    assert "dra_claim_name" not in dict(of_container)  # cAdvisor's


def test_a_gpu_that_nobody_has_is_measured_without_a_pod() -> None:
    labels = [dict(labels) for labels in page(*MEASURED, holders={gpu(1).uuid: (POD,)}).of("DCGM_FI_DEV_POWER_USAGE")]
    assert [each.get("pod") for each in labels] == [None, "train-0"]


def test_a_gpu_that_two_containers_share_is_measured_for_each() -> None:
    found = page(telemetry(0), holders={gpu(0).uuid: (POD, OTHER)}).of("DCGM_FI_DEV_POWER_USAGE")
    assert [(dict(labels)["pod"], value) for labels, value in found.items()] == [("train-0", 100.5), ("train-1", 100.5)]


def test_the_accelerator_stats_are_of_containers_alone() -> None:
    found = page(*MEASURED, holders={gpu(0).uuid: (POD,)})
    labels = (
        ("acc_id", gpu(0).uuid),
        ("make", "nvidia"),
        ("model", "NVIDIA A100-SXM4-80GB"),
        ("container", "main"),
        ("namespace", "default"),
        ("pod", "train-0"),
    )
    assert found.of("container_accelerator_duty_cycle") == {labels: 10}
    assert found.of("container_accelerator_memory_used_bytes") == {labels: 2**30}
    assert found.of("container_accelerator_memory_total_bytes") == {labels: 80 * 2**30}


@pytest.mark.parametrize(
    ("field", "measured", "name", "shown"),
    [
        pytest.param("power_usage_mw", 118_344, "DEV_POWER_USAGE", 118.344, id="milliwatts are shown in watts"),
        pytest.param("power_limit_mw", 400_000, "DEV_POWER_MGMT_LIMIT", 400, id="so is the limit"),
        pytest.param("memory_free_bytes", 3 * 2**20 + 1, "DEV_FB_FREE", 3, id="bytes are shown in whole MiB"),
        pytest.param("memory_reserved_bytes", 2**20 - 1, "DEV_FB_RESERVED", 0, id="less than one MiB rounds to 0"),
        pytest.param("energy_mj", 2**63, "DEV_TOTAL_ENERGY_CONSUMPTION", 2**63, id="millijoules stay what they are"),
        pytest.param("gpu_utilization_percent", 0, "DEV_GPU_UTIL", 0, id="an idle GPU is measured as idle"),
        pytest.param("graphics_active_percent", 87.5, "PROF_GR_ENGINE_ACTIVE", 0.875, id="percent is shown as a ratio"),
        pytest.param("tensor_active_percent", 0.0, "PROF_PIPE_TENSOR_ACTIVE", 0, id="idle tensor cores as idle"),
        pytest.param("dram_active_percent", 100.0, "PROF_DRAM_ACTIVE", 1, id="all of the memory's bandwidth as 1"),
        pytest.param("pcie_sent_mib_s", 1.5, "PROF_PCIE_TX_BYTES", 1572864, id="MiB a second as bytes a second"),
        pytest.param("pcie_received_mib_s", 1e-6, "PROF_PCIE_RX_BYTES", 1, id="in whole bytes"),
    ],
)
def test_units_are_those_of_dcgm(field: str, measured: int, name: str, shown: float) -> None:
    found = page(telemetry(0)._replace(**{field: measured}))
    assert list(found.of(f"DCGM_FI_{name}").values()) == [shown]


@pytest.mark.slow
@pytest.mark.parametrize("row", [*GPU_METRICS, *ACCELERATOR_METRICS], ids=lambda row: row.metric.name)
def test_what_is_not_measured_is_absent_and_alone(row: object) -> None:
    everything = GpuTelemetry(gpu(0).uuid, **dict.fromkeys(MEASURED_FIELDS, 7))
    holders = {gpu(0).uuid: (POD,)}
    without = page(everything._replace(**{row.field: None}), holders=holders)  # type: ignore[attr-defined] # a row
    gone = set(page(everything, holders=holders).samples) - set(without.samples)
    rows = [*GPU_METRICS, *ACCELERATOR_METRICS]
    assert {name for name, _ in gone} == {each.metric.name for each in rows if each.field == row.field}  # type: ignore[attr-defined]


def test_every_field_that_is_measured_has_a_name() -> None:
    assert {row.field for row in (*GPU_METRICS, *ACCELERATOR_METRICS)} == set(MEASURED_FIELDS)


def test_a_gpu_that_is_not_offered_is_not_shown() -> None:
    assert page(telemetry(7)).samples == {}


def test_health_is_shown_whether_a_gpu_is_measured_or_not() -> None:
    broken = replace(INVENTORY, devices=(INVENTORY.devices[0], replace(INVENTORY.devices[1], unhealthy="gpu is lost")))
    found = read_page(render([health_family(broken, "node-1")]))
    assert list(found.of("grapnel_device_healthy").values()) == [1, 0]


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        pytest.param("0000:af:00.0", "00000000:AF:00.0", id="the first domain"),
        pytest.param("10000:3b:00.0", "00010000:3B:00.0", id="a domain of five digits"),
    ],
)
def test_addresses_are_written_as_nvml_does(address: str, shown: str) -> None:
    assert nvml_address(address) == shown
