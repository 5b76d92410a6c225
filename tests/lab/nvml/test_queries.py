"""What nvidia-ml-py reads from a simulated machine."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pynvml
import pytest

from lab.nvml import models, state
from lab.nvml.machine import GIB, Activity, FabricState, Process, ProcessKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lab.nvml.machine import Machine
    from tests.lab.nvml.client import Client

INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
UNKNOWN = 999


@pytest.mark.slow
def test_versions_come_from_the_file_name(nvml: Client) -> None:
    assert nvml("nvmlSystemGetDriverVersion()") == "550.163.01"
    assert nvml("nvmlSystemGetNVMLVersion()") == "12.550.163.01"
    assert nvml("nvmlSystemGetCudaDriverVersion()") == 12040


@pytest.mark.slow
def test_every_gpu_is_found_by_index_uuid_serial_and_address(nvml: Client, library: Path) -> None:
    for index, gpu in enumerate(state.read(library).gpus):
        assert nvml(f"nvmlDeviceGetUUID(gpu({index}))") == gpu.uuid
        assert nvml(f"nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID({gpu.uuid!r}))") == index
        assert nvml(f"nvmlDeviceGetIndex(nvmlDeviceGetHandleBySerial({gpu.serial!r}))") == index
        assert nvml(f"nvmlDeviceGetIndex(nvmlDeviceGetHandleByPciBusId({gpu.pci_address!r}))") == index
    assert nvml("nvmlDeviceGetCount()") == 4
    assert nvml.error("nvmlDeviceGetHandleByUUID('GPU-none')") == NOT_FOUND


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "name", "capability"),
    [
        ("a100-80gb", "NVIDIA A100-SXM4-80GB", [8, 0]),
        ("h100-80gb", "NVIDIA H100 80GB HBM3", [9, 0]),
        ("l4", "NVIDIA L4", [8, 9]),
        ("t4", "Tesla T4", [7, 5]),
    ],
)
def test_models_are_told_apart(
    model: str,
    name: str,
    capability: list[int],
    put: Callable[[Machine], Path],
    start: Callable[[Path], Client],
) -> None:
    machine = models.machine(model)
    nvml = start(put(machine))
    assert nvml("nvmlDeviceGetName(gpu(0))") == name
    assert nvml("nvmlDeviceGetCudaComputeCapability(gpu(0))") == capability
    assert nvml("nvmlDeviceGetMemoryInfo(gpu(0)).total") == machine.gpus[0].memory_total


@pytest.mark.slow
def test_memory_counts_the_reserve_only_in_the_first_version(
    put: Callable[[Machine], Path], start: Callable[[Path], Client]
) -> None:
    machine = models.machine().with_gpu(0, memory_used=3 * GIB, memory_reserved=GIB)
    nvml = start(put(machine))
    assert nvml("nvmlDeviceGetMemoryInfo(gpu(0)).used") == 4 * GIB
    assert nvml("nvmlDeviceGetMemoryInfo(gpu(0), version=nvmlMemory_v2).used") == 3 * GIB
    assert nvml("nvmlDeviceGetMemoryInfo(gpu(0), version=nvmlMemory_v2).reserved") == GIB


@pytest.mark.slow
@pytest.mark.parametrize("version", ["", "_v2", "_v3"])
def test_processes_are_listed_by_kind(
    version: str, put: Callable[[Machine], Path], start: Callable[[Path], Client]
) -> None:
    processes = (Process(7, GIB), Process(8, 2 * GIB), Process(9, 5, ProcessKind.GRAPHICS))
    nvml = start(put(models.machine().with_gpu(0, processes=processes)))
    compute = f"[(p.pid, p.usedGpuMemory) for p in nvmlDeviceGetComputeRunningProcesses{version}(gpu(0))]"
    assert nvml(compute) == [[7, GIB], [8, 2 * GIB]]
    assert nvml(compute.replace("Compute", "Graphics")) == [[9, 5]]


@pytest.mark.slow
def test_processes_that_did_something_have_samples_and_the_others_none(
    put: Callable[[Machine], Path], start: Callable[[Path], Client]
) -> None:
    processes = (Process(7, GIB, sm_utilization=40), Process(8, GIB), Process(9, GIB, sm_utilization=5))
    library = put(models.machine().with_gpu(0, processes=processes))
    nvml = start(library)
    samples = "[(s.pid, s.smUtil) for s in nvmlDeviceGetProcessUtilization(gpu(0), {since})]"
    assert nvml(samples.format(since=0)) == [[7, 40], [9, 5]]
    assert nvml.error(samples.format(since=2**53)) == NOT_FOUND, "a sample of after the year 2200"
    state.write(library, models.machine().with_gpu(0, processes=processes, mig_capable=True, mig_enabled=True))
    assert nvml.error(samples.format(since=0)) == NOT_SUPPORTED


@pytest.mark.slow
def test_health_and_metrics_read_what_was_set(put: Callable[[Machine], Path], start: Callable[[Path], Client]) -> None:
    gpu = models.machine().gpus[0]
    machine = models.machine().with_gpu(
        0,
        temperature=71,
        power_usage_mw=333_000,
        clock_sm=1400,
        utilization=97,
        memory_utilization=40,
        energy_mj=5_000_000_000,
        pcie_replays=3,
        ecc=replace(gpu.ecc, volatile_uncorrected=2, aggregate_corrected=9),
        remapped_rows=replace(gpu.remapped_rows, uncorrected=1, pending=True),
    )
    nvml = start(put(machine))
    assert nvml("nvmlDeviceGetTemperature(gpu(0), NVML_TEMPERATURE_GPU)") == 71
    assert nvml("nvmlDeviceGetTemperatureV(gpu(0), NVML_TEMPERATURE_GPU)") == 71
    assert nvml("nvmlDeviceGetPowerUsage(gpu(0))") == 333_000
    assert nvml("nvmlDeviceGetClockInfo(gpu(0), NVML_CLOCK_SM)") == 1400
    assert nvml("nvmlDeviceGetUtilizationRates(gpu(0)).gpu") == 97
    assert nvml("nvmlDeviceGetTotalEnergyConsumption(gpu(0))") == 5_000_000_000
    assert nvml("nvmlDeviceGetPcieReplayCounter(gpu(0))") == 3
    assert nvml("nvmlDeviceGetTotalEccErrors(gpu(0), 1, 0)") == 2
    assert nvml("nvmlDeviceGetMemoryErrorCounter(gpu(0), 0, 1, NVML_MEMORY_LOCATION_DEVICE_MEMORY)") == 9
    assert nvml("nvmlDeviceGetRemappedRows(gpu(0))") == [0, 1, 1, 0]


@pytest.mark.slow
def test_field_values_have_a_status_each(put: Callable[[Machine], Path], start: Callable[[Path], Client]) -> None:
    nvml = start(put(models.machine().with_gpu(0, memory_temperature=44, energy_mj=1 << 40)))
    fields = "[NVML_FI_DEV_MEMORY_TEMP, NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 250]"
    nvml(f"kept.update(values=nvmlDeviceGetFieldValues(gpu(0), {fields}))")
    assert nvml("[v.nvmlReturn for v in kept['values']]") == [0, 0, NOT_SUPPORTED]
    assert nvml("kept['values'][0].value.uiVal") == 44
    assert nvml("kept['values'][1].value.ullVal") == 1 << 40


@pytest.mark.slow
def test_traffic_is_counted_over_all_links(put: Callable[[Machine], Path], start: Callable[[Path], Client]) -> None:
    nvml = start(put(models.machine("a100-40gb", 2).with_gpu(0, nvlink_sent_kib=7, nvlink_received_kib=1 << 40)))
    fields = "[(138, 2**32 - 1), (139, 2**32 - 1), (138, 0)]"
    nvml(f"kept.update(values=nvmlDeviceGetFieldValues(gpu(0), {fields}))")
    assert nvml("[v.nvmlReturn for v in kept['values']]") == [0, 0, NOT_SUPPORTED]
    assert nvml("[v.value.ullVal for v in kept['values']][:2]") == [7, 1 << 40]


@pytest.mark.slow
def test_what_a_gpu_does_not_have_is_not_supported(
    put: Callable[[Machine], Path], start: Callable[[Path], Client]
) -> None:
    nvml = start(put(models.machine("t4")))
    assert nvml.error("nvmlDeviceGetMigMode(gpu(0))") == NOT_SUPPORTED
    assert nvml.error("nvmlDeviceGetNvLinkState(gpu(0), 0)") == NOT_SUPPORTED
    assert nvml.error("nvmlDeviceGetFanSpeed(gpu(0))") == NOT_SUPPORTED


@pytest.mark.slow
def test_codes_have_their_texts(nvml: Client) -> None:
    texts = {code: nvml(f"nvmlErrorString({code})") for code in (0, 3, 9, 15, 18, 25, 999)}
    assert texts == {
        0: "Success",
        3: "Not Supported",
        9: "Driver Not Loaded",
        15: "GPU is lost",
        18: "Driver/library version mismatch",
        25: "Argument Version Mismatch",
        999: "Unknown Error",
    }


@pytest.mark.slow
def test_mig_devices_are_found_below_their_gpu(put: Callable[[Machine], Path], start: Callable[[Path], Client]) -> None:
    machine = models.with_mig(models.machine("a100-40gb", 2), 1, ["3g.20gb", "1g.5gb"])
    first, second = machine.gpus[1].migs
    nvml = start(put(machine))
    nvml("kept.update(mig=nvmlDeviceGetMigDeviceHandleByIndex(gpu(1), 1))")
    assert nvml("nvmlDeviceGetMigMode(gpu(1))") == [1, 1]
    assert nvml("nvmlDeviceGetUUID(kept['mig'])") == second.uuid
    assert nvml("nvmlDeviceGetName(kept['mig'])") == "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    assert nvml("nvmlDeviceGetMemoryInfo(kept['mig']).total") == second.memory_total
    assert nvml("nvmlDeviceGetGpuInstanceId(kept['mig'])") == second.gpu_instance
    assert nvml("nvmlDeviceGetAttributes(kept['mig']).multiprocessorCount") == second.multiprocessors
    assert nvml("nvmlDeviceGetIndex(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(kept['mig']))") == 1
    assert nvml(f"nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID({first.uuid!r}))") == 0
    assert nvml.error("nvmlDeviceGetMigDeviceHandleByIndex(gpu(1), 2)") == NOT_FOUND
    assert nvml.error("nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), 0)") == NOT_FOUND


@pytest.mark.slow
def test_topology_levels_follow_what_gpus_share(nvml: Client) -> None:
    """Four GPUs: pairs below a switch, each pair at a NUMA node of its own."""
    level = "nvmlDeviceGetTopologyCommonAncestor(gpu(0), gpu({}))"
    assert [nvml(level.format(peer)) for peer in (1, 2, 3)] == [10, 50, 50]
    assert nvml("[nvmlDeviceGetIndex(d) for d in nvmlDeviceGetTopologyNearestGpus(gpu(0), 50)]") == [2, 3]


def test_four_gpus_are_linked_to_each_other(nvml: Client) -> None:
    ends = nvml("[nvmlDeviceGetNvLinkRemotePciInfo(gpu(0), link).busId for link in range(12)]")
    assert [ends.count(f"00000000:{bus}:00.0") for bus in (20, 30, 40)] == [4, 4, 4]
    assert nvml("[nvmlDeviceGetNvLinkState(gpu(0), link) for link in range(12)]") == [1] * 12
    fields = "[(NVML_FI_DEV_NVLINK_GET_STATE, 11), (NVML_FI_DEV_NVLINK_GET_VERSION, 11)]"
    assert nvml(f"[v.value.uiVal for v in nvmlDeviceGetFieldValues(gpu(0), {fields})]") == [1, 3]
    assert nvml("nvmlDeviceGetP2PStatus(gpu(0), gpu(3), NVML_P2P_CAPS_INDEX_NVLINK)") == 0


@pytest.mark.slow
def test_eight_gpus_are_linked_to_switches(put: Callable[[Machine], Path], start: Callable[[Path], Client]) -> None:
    nvml = start(put(models.machine("h100-80gb", 8)))
    assert nvml("nvmlDeviceGetNvLinkRemoteDeviceType(gpu(7), 17)") == 2
    assert nvml("nvmlDeviceGetNvLinkVersion(gpu(7), 17)") == 4
    assert nvml("nvmlDeviceGetP2PStatus(gpu(0), gpu(7), NVML_P2P_CAPS_INDEX_NVLINK)") == 0


def test_a_link_that_is_down_breaks_the_peer_to_peer_path(
    put: Callable[[Machine], Path], start: Callable[[Path], Client]
) -> None:
    machine = models.machine("a100-40gb", 2)
    down = tuple(replace(link, active=False) for link in machine.gpus[0].links)
    nvml = start(put(machine.with_gpu(0, links=down)))
    assert nvml("nvmlDeviceGetP2PStatus(gpu(0), gpu(1), NVML_P2P_CAPS_INDEX_NVLINK)") == 5
    assert nvml("nvmlDeviceGetP2PStatus(gpu(0), gpu(1), 0)") == 0


def test_every_function_that_the_library_answers_is_one_of_nvml_s(library: Path) -> None:
    """Guard against misspelt names: nvidia-ml-py knows each exported one, or another version of it."""
    known = set(re.findall(r'"(nvml\w+)"', inspect.getsource(pynvml)))
    exported = set(re.findall(rb"\x00(nvml[A-Z]\w+)(?=\x00)", library.read_bytes()))
    unknown = {name.decode() for name in exported} - known
    plain = {re.sub(r"_v\d+$", "", name) for name in known}
    assert {name for name in unknown if re.sub(r"_v\d+$", "", name) not in plain} <= {
        "nvmlInternalGetExportTable",
        "nvmlInit",
        "nvmlInit_v2",
    }


FABRIC = """(lambda info: [
    nvmlDeviceGetGpuFabricInfoV(gpu(0), byref(info)), info.state, info.cliqueId, bytes(info.clusterUuid).hex()
])(c_nvmlGpuFabricInfoV_t())""".replace("\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(FabricState.NOT_STARTED, [0, 1, 0, "00" * 16], id="not started: nothing is said yet"),
        pytest.param(FabricState.COMPLETED, [0, 3, 7, "6ba7b8129dad11d180b400c04fd430c8"], id="cluster and clique"),
    ],
)
def test_a_fabric_is_told_once_it_is_complete(
    state: FabricState, expected: list[object], put: Callable[[Machine], Path], start: Callable[[Path], Client]
) -> None:
    cluster = "6ba7b812-9dad-11d1-80b4-00c04fd430c8"
    machine = models.machine().with_gpu(0, fabric_state=state, fabric_cluster=cluster, fabric_clique=7)
    assert start(put(machine))(FABRIC) == expected


@pytest.mark.slow
def test_a_fabric_without_a_uuid_is_an_error(put: Callable[[Machine], Path], start: Callable[[Path], Client]) -> None:
    machine = models.machine().with_gpu(0, fabric_state=FabricState.COMPLETED, fabric_cluster="6ba7b81")
    assert start(put(machine)).error(FABRIC) == UNKNOWN


@pytest.mark.slow
def test_a_gpu_without_a_fabric_says_so(nvml: Client) -> None:
    assert nvml.error(FABRIC) == NOT_SUPPORTED


@pytest.mark.slow
def test_a_gpu_instance_tells_where_it_lies(put: Callable[[Machine], Path], start: Callable[[Path], Client]) -> None:
    nvml = start(put(models.with_mig(models.machine("a100-40gb", 1), 0, ["3g.20gb", "2g.10gb"])))
    lies = "(lambda info: [info.id, info.placement.start, info.placement.size])"
    assert nvml(f"{lies}(nvmlGpuInstanceGetInfo(nvmlDeviceGetGpuInstanceById(gpu(0), 7)))") == [7, 0, 4]
    assert nvml(f"{lies}(nvmlGpuInstanceGetInfo(nvmlDeviceGetGpuInstanceById(gpu(0), 8)))") == [8, 4, 2]
    assert nvml.error("nvmlDeviceGetGpuInstanceById(gpu(0), 1)") == NOT_FOUND


GPM = """[(metric.nvmlReturn, metric.value) for metric in kept['asked'].metrics[:kept['asked'].numMetrics]]"""


def ask_gpm(nvml: Client, first: str, second: str, *metrics: int) -> None:
    nvml("kept.update(asked=c_nvmlGpmMetricsGet_t())")
    nvml(f"kept['asked'].__init__(NVML_GPM_METRICS_GET_VERSION, {len(metrics)}, kept[{first!r}], kept[{second!r}])")
    nvml(f"[kept['asked'].metrics[i].__setattr__('metricId', id) for i, id in enumerate({metrics})]")


def take_sample(nvml: Client, name: str, function: str = "nvmlGpmSampleGet(gpu(0), {})") -> None:
    nvml(f"kept.update({name}=nvmlGpmSampleAlloc())")
    nvml(function.format(f"kept[{name!r}]"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "is_supported"), [("h100-80gb", 1), ("a100-80gb", 0), ("l4", 0)], ids=["hopper", "ampere", "ada"]
)
def test_gpm_is_there_from_hopper_on(
    model: str, is_supported: int, put: Callable[[Machine], Path], start: Callable[[Path], Client]
) -> None:
    nvml = start(put(models.machine(model)))
    assert nvml("nvmlGpmQueryDeviceSupport(gpu(0)).isSupportedDevice") == is_supported
    if not is_supported:
        assert nvml.error("nvmlGpmSampleGet(gpu(0), nvmlGpmSampleAlloc())") == NOT_SUPPORTED


@pytest.mark.slow
def test_two_samples_tell_what_was_done_between_them(
    put: Callable[[Machine], Path], start: Callable[[Path], Client]
) -> None:
    busy = Activity(graphics=9950, tensor=4025, dram=10)
    machine = models.with_mig(models.machine("h100-80gb"), 0, ["1g.5gb"])
    (mig,) = machine.gpus[0].migs
    migs = (replace(mig, activity=busy),)
    nvml = start(put(machine.with_gpu(0, activity=Activity(dram=1), migs=migs, pcie_received_kib_s=1536)))
    of_instance = f"nvmlGpmMigSampleGet(gpu(0), {mig.gpu_instance}, {{}})"
    take_sample(nvml, "whole")
    take_sample(nvml, "part", of_instance)
    nvml("__import__('time').sleep(0.11)")
    take_sample(nvml, "later")
    take_sample(nvml, "later_part", of_instance)
    ask_gpm(nvml, "whole", "later", 1, 10, 20, 21, 4711)
    nvml("nvmlGpmMetricsGet(kept['asked']) and 0")
    assert nvml(GPM)[:4] == [[0, 0.0], [0, 0.01], [0, 0.0], [0, 1.5]]
    assert nvml(GPM)[4][0] == NOT_SUPPORTED
    ask_gpm(nvml, "part", "later_part", 1, 5, 10, 20)
    nvml("nvmlGpmMetricsGet(kept['asked']) and 0")
    assert nvml(GPM)[:3] == [[0, 99.5], [0, 40.25], [0, 0.1]]
    assert nvml(GPM)[3][0] == NOT_SUPPORTED
    ask_gpm(nvml, "later", "later_part", 1)
    assert nvml.error("nvmlGpmMetricsGet(kept['asked'])") == INVALID_ARGUMENT, "samples of two things"


@pytest.mark.slow
def test_samples_that_make_no_sense_are_refused(
    put: Callable[[Machine], Path], start: Callable[[Path], Client]
) -> None:
    nvml = start(put(models.machine("h100-80gb")))
    take_sample(nvml, "first")
    take_sample(nvml, "second")
    ask_gpm(nvml, "first", "second", 1)
    nvml("nvmlGpmMetricsGet(kept['asked']) and 0")
    assert nvml("kept['asked'].metrics[0].value != kept['asked'].metrics[0].value"), "not a number: too close together"
    ask_gpm(nvml, "second", "first", 1)
    assert nvml.error("nvmlGpmMetricsGet(kept['asked'])") == INVALID_ARGUMENT, "the later one first"
    assert nvml.error("nvmlGpmMigSampleGet(gpu(0), 1, kept['first'])") == INVALID_ARGUMENT, "no such instance"
    nvml("nvmlGpmSampleFree(kept['first'])")
    assert nvml.error("nvmlGpmSampleFree(kept['first'])") == INVALID_ARGUMENT, "freed twice"
    assert nvml.error("nvmlGpmMetricsGet(kept['asked'])") == INVALID_ARGUMENT, "used after it was freed"
