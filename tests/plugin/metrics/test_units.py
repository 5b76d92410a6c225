"""What is shown of GPUs that several containers use, and of parts of a GPU."""

from __future__ import annotations

import pytest

from plugin.devices.inventory import Device, Inventory
from plugin.driver.telemetry import GpuInstance, GpuProcess, GpuTelemetry
from plugin.kubelet.pod_resources.attribution import OUTSIDE, PodContainer
from plugin.publication.metrics.devices import Attribution, gpu_families
from plugin.publication.metrics.exposition import render
from tests.plugin.fakes import VERSION, gpu, telemetry
from tests.plugin.metrics.reading import Labels, Page, read_page

MIB = 1 << 20
UUID = gpu(0).uuid
POD, OTHER, STRANGER = (PodContainer("default", name, "main") for name in ("train-0", "train-1", "peek"))
INVENTORY = Inventory(VERSION, (Device(gpu(0), "/dev/nvidia0"),))
PROCESSES = (GpuProcess(1, 600 * MIB, 7), GpuProcess(2, 300 * MIB, 3))
FB_USED, GPU_UTIL = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_UTIL"
Holders = dict[str, tuple[PodContainer, ...]]


def page(
    measured: GpuTelemetry, holders: Holders, owners: dict[int, PodContainer], given: Holders | None = None
) -> Page:
    attribution = Attribution(holders, holders if given is None else given, owners)
    return read_page(render(gpu_families(INVENTORY, [measured], attribution, "node-1")))


def by_pod(found: Page, name: str, **only: str) -> dict[str, float]:
    """Return values by pod, `-` for none, of samples with these labels."""
    rows: list[tuple[dict[str, str], float]] = [(dict(labels), value) for labels, value in found.of(name).items()]
    return {each.get("pod", "-"): value for each, value in rows if only.items() <= each.items()}


def shared() -> GpuTelemetry:
    return telemetry(0)._replace(processes=PROCESSES)


def test_a_shared_gpu_has_the_whole_and_each_containers_own() -> None:
    found = page(shared(), {UUID: (POD, OTHER)}, {1: POD, 2: OTHER})
    assert by_pod(found, FB_USED) == {"-": 1024, "train-0": 600, "train-1": 300}
    assert by_pod(found, GPU_UTIL) == {"-": 10, "train-0": 7, "train-1": 3}
    assert by_pod(found, "DCGM_FI_DEV_POWER_USAGE") == {"train-0": 100.5, "train-1": 100.5}
    assert by_pod(found, "container_accelerator_memory_used_bytes") == {"train-0": 600 * MIB, "train-1": 300 * MIB}
    assert by_pod(found, "container_accelerator_duty_cycle") == {"train-0": 7, "train-1": 3}
    assert by_pod(found, "container_accelerator_memory_total_bytes") == {"train-0": 80 << 30, "train-1": 80 << 30}
    assert not found.of("grapnel_gpu_ungiven_processes")


def test_a_gpu_of_one_container_is_its_own_as_a_whole() -> None:
    found = page(shared(), {UUID: (POD,)}, {1: POD, 2: OUTSIDE})
    assert by_pod(found, FB_USED) == {"train-0": 1024}
    assert by_pod(found, GPU_UTIL) == {"train-0": 10}


def test_a_process_in_a_container_that_is_not_known_does_not_make_a_gpu_shared() -> None:
    found = page(shared(), {UUID: (POD,)}, {1: PodContainer("default", "train-0", ""), 2: POD})
    assert by_pod(found, FB_USED) == {"train-0": 1024}
    assert not found.of("grapnel_gpu_ungiven_processes")


def test_of_a_shared_gpu_whose_processes_are_not_known_only_the_whole_is_told() -> None:
    found = page(telemetry(0), {UUID: (POD, OTHER)}, {})
    assert by_pod(found, FB_USED) == {"-": 1024}
    assert by_pod(found, "container_accelerator_memory_used_bytes") == {}
    assert not found.of("grapnel_gpu_processes")


def test_a_pod_that_was_not_given_the_gpu_is_shown_with_what_it_uses() -> None:
    found = page(shared(), {UUID: (POD,)}, {1: POD, 2: STRANGER})
    assert by_pod(found, FB_USED) == {"-": 1024, "train-0": 600, "peek": 300}
    assert by_pod(found, "DCGM_FI_DEV_POWER_USAGE") == {"train-0": 100.5}
    assert by_pod(found, "grapnel_gpu_ungiven_processes") == {"peek": 1}


def test_a_gpu_that_nobody_was_given_is_told_whole_and_by_who_uses_it() -> None:
    found = page(shared(), {}, {1: STRANGER, 2: OUTSIDE})
    assert by_pod(found, FB_USED) == {"-": 1024, "peek": 600}
    assert by_pod(found, "DCGM_FI_DEV_POWER_USAGE") == {"-": 100.5}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({UUID: (STRANGER,)}, id="as another resource"),
        pytest.param({UUID: (PodContainer("default", "peek", "init"),)}, id="in another container of the pod"),
    ],
)
def test_a_pod_that_was_given_the_gpu_otherwise_is_no_stranger(given: Holders) -> None:
    found = page(shared(), {UUID: (POD,)}, {1: POD, 2: STRANGER}, given)
    assert not found.of("grapnel_gpu_ungiven_processes")


def test_while_the_kubelet_does_not_say_who_has_what_nobody_is_a_stranger() -> None:
    attribution = Attribution({}, None, {1: POD, 2: OTHER})
    found = read_page(render(gpu_families(INVENTORY, [shared()], attribution, "node-1")))
    assert by_pod(found, FB_USED) == {"-": 1024, "train-0": 600, "train-1": 300}
    assert not found.of("grapnel_gpu_ungiven_processes")


def test_processes_are_counted_by_owner() -> None:
    found = page(shared(), {UUID: (POD,)}, {1: POD})
    counts = {dict(labels)["owner"]: value for labels, value in found.of("grapnel_gpu_processes").items()}
    memory = {dict(labels)["owner"]: value for labels, value in found.of("grapnel_gpu_process_memory_bytes").items()}
    assert counts == {"pod": 1, "host": 0, "unknown": 1}
    assert memory == {"pod": 600 * MIB, "host": 0, "unknown": 300 * MIB}


def instance(number: int, profile: str, uuids: tuple[str, ...], used: int, *processes: GpuProcess) -> GpuInstance:
    measured = GpuTelemetry(
        UUID, memory_used_bytes=used * MIB, memory_total_bytes=5000 * MIB, memory_free_bytes=4000 * MIB
    )
    return GpuInstance(number, profile, uuids, measured._replace(processes=processes))


def cut() -> GpuTelemetry:
    instances = (
        instance(7, "1g.5gb", ("MIG-a",), 70, GpuProcess(1, 60 * MIB, None)),
        instance(9, "3g.20gb", ("MIG-b", "MIG-c"), 90, GpuProcess(2, 80 * MIB, None), GpuProcess(3, 5 * MIB, None)),
    )
    return telemetry(0)._replace(gpu_utilization_percent=None, instances=instances)


def labels_of(found: Page, name: str) -> list[dict[str, str]]:
    every: list[Labels] = list(found.of(name))
    return [dict(labels) for labels in every]


def test_an_instance_has_the_labels_of_dcgm_exporter_and_its_own_memory() -> None:
    found = page(cut(), {"MIG-a": (POD,)}, {1: POD})
    whole, first, _ = labels_of(found, FB_USED)
    assert first == {
        **whole,
        "GPU_I_PROFILE": "1g.5gb",
        "GPU_I_ID": "7",
        "container": "main",
        "namespace": "default",
        "pod": "train-0",
    }
    assert by_pod(found, FB_USED, GPU_I_ID="7") == {"train-0": 70}
    assert by_pod(found, "DCGM_FI_DEV_FB_FREE", GPU_I_ID="9") == {"-": 4000}
    assert by_pod(found, "DCGM_FI_DEV_POWER_USAGE") == {"-": 100.5}
    assert not found.of(GPU_UTIL)
    (accelerator,) = labels_of(found, "container_accelerator_memory_used_bytes")
    assert (accelerator["acc_id"], accelerator["pod"]) == ("MIG-a", "train-0")


def test_an_instance_with_two_compute_instances_is_shared_by_those_who_have_them() -> None:
    found = page(cut(), {"MIG-b": (POD,), "MIG-c": (OTHER,)}, {1: OUTSIDE, 2: POD, 3: OTHER})
    assert by_pod(found, FB_USED, GPU_I_ID="9") == {"-": 90, "train-0": 80, "train-1": 5}
    assert not found.of("container_accelerator_memory_used_bytes"), "no single device has this memory"


def test_who_has_the_gpu_has_all_that_it_is_cut_into() -> None:
    found = page(cut(), {UUID: (POD,)}, {1: POD, 2: POD, 3: POD})
    assert by_pod(found, FB_USED, GPU_I_ID="7") == {"train-0": 70}
    assert by_pod(found, FB_USED, GPU_I_ID="9") == {"train-0": 90}
    assert not found.of("grapnel_gpu_ungiven_processes")


def test_a_stranger_on_an_instance_is_told_there() -> None:
    found = page(cut(), {"MIG-a": (POD,)}, {1: STRANGER, 2: OUTSIDE, 3: OUTSIDE})
    assert by_pod(found, "grapnel_gpu_ungiven_processes", GPU_I_ID="7", GPU_I_PROFILE="1g.5gb") == {"peek": 1}
    assert by_pod(found, FB_USED, GPU_I_ID="7") == {"-": 70, "train-0": 0, "peek": 60}
    counted = {(each["GPU_I_ID"], each["owner"]) for each in labels_of(found, "grapnel_gpu_processes")}
    assert counted == {(number, owner) for number in ("7", "9") for owner in ("pod", "host", "unknown")}
