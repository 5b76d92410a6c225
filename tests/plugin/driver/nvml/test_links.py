"""What is read of the connections between GPUs, from the lab's C library.

Each case runs in a process of its own, as the loader's search path is fixed when a process starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.nvml import install, models
from lab.nvml.machine import FabricState, Link, NvLinkRemote

if TYPE_CHECKING:
    from lab.nvml.machine import Machine

REPOSITORY = Path(__file__).parents[4]
SCRIPT = """
import json, pynvml
from plugin.driver.nvml.loading.library import NvmlSource
calls = 0
def counted(function, own=pynvml._nvmlGetFunctionPointer):
    global calls
    calls += function.startswith(("nvmlDeviceGetNvLink", "nvmlDeviceGetTopology", "nvmlDeviceGetGpuFabric"))
    return own(function)
pynvml._nvmlGetFunctionPointer = counted
source = NvmlSource()
source.open()
links = source.snapshot().links
first = calls
for _ in range(14):
    source.snapshot()
again = calls
source.close()
print(json.dumps({
    "gpus": [None if gpu.nvlinks is None else [[link.remote.value, link.address] for link in gpu.nvlinks]
             for gpu in links.gpus],
    "levels": [level for _, _, level in links.levels],
    "fabrics": [gpu.fabric for gpu in links.gpus],
    "calls": [first, again],
}))
"""


def links_of(folder: Path, machine: Machine) -> dict[str, Any]:
    install(folder, "550.163.01", machine)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "LD_LIBRARY_PATH": str(folder)}
    command = [sys.executable, "-W", "error", "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_gpus_that_are_linked_to_each_other(tmp_path: Path) -> None:
    machine = models.machine("a100-40gb", 4)
    found = links_of(tmp_path, machine)
    first = [link.remote_pci for link in machine.gpus[0].links]
    assert found["gpus"][0] == [["gpu", address] for address in first]
    assert len(set(first)) == 3
    assert found["levels"] == [10, 50, 50, 50, 50, 10]
    assert found["fabrics"] == [None] * 4


@pytest.mark.slow
def test_gpus_that_are_linked_to_switches(tmp_path: Path) -> None:
    found = links_of(tmp_path, models.machine("h100-80gb", 8))
    assert [{kind for kind, _ in gpu} for gpu in found["gpus"]] == [{"switch"}] * 8
    assert [len(gpu) for gpu in found["gpus"]] == [18] * 8


@pytest.mark.slow
def test_gpus_without_nvlink_have_none(tmp_path: Path) -> None:
    assert links_of(tmp_path, models.machine("t4", 2))["gpus"] == [[], []]


@pytest.mark.slow
def test_a_link_that_is_down_is_left_out(tmp_path: Path) -> None:
    machine = models.machine("a100-40gb", 2)
    down, *others = machine.gpus[0].links
    changed = machine.with_gpu(0, links=(replace(down, active=False), *others))
    assert [len(gpu) for gpu in links_of(tmp_path, changed)["gpus"]] == [11, 12]


@pytest.mark.slow
def test_the_same_gpus_are_walked_once_in_a_session(tmp_path: Path) -> None:
    first, again = links_of(tmp_path, models.machine("a100-40gb", 4))["calls"]
    assert first == again == 4 * (12 * 3 + 1) + 6 + 4  # links, one number too many, pairs, fabrics


@pytest.mark.slow
@pytest.mark.parametrize(
    "machine",
    [
        pytest.param(models.machine("a100-40gb", 2).with_failure("nvmlDeviceGetNvLinkState", 999), id="links unread"),
        pytest.param(
            models.machine("a100-40gb", 2).with_failure("nvmlDeviceGetTopologyCommonAncestor", 999), id="levels unread"
        ),
        pytest.param(
            models.machine("a100-40gb", 2).with_gpu(0, fabric_state=FabricState.IN_PROGRESS), id="fabric not ready"
        ),
    ],
)
def test_what_is_missing_is_asked_for_again_later_and_not_at_every_look(tmp_path: Path, machine: Machine) -> None:
    first, again = links_of(tmp_path, machine)["calls"]
    assert again == 2 * first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "gpu", "expected"),
    [
        pytest.param("nvmlDeviceGetNvLinkState", 1, [12, None, 12], id="the state of its links"),
        pytest.param("nvmlDeviceGetTopologyCommonAncestor", 1, [12, 12, 12], id="its distance to the others"),
        pytest.param("nvmlDeviceGetNvLinkRemoteDeviceType", -1, [12, 12, 12], id="what is at the end of a link"),
        pytest.param("nvmlDeviceGetNvLinkRemotePciInfo", 1, [12, 12, 12], id="where a link ends"),
    ],
)
def test_what_cannot_be_read_costs_nothing_else(
    tmp_path: Path, function: str, gpu: int, expected: list[int | None]
) -> None:
    found = links_of(tmp_path, models.machine("a100-40gb", 3).with_failure(function, 999, gpu))
    assert [None if links is None else len(links) for links in found["gpus"]] == expected
    assert found["levels"] == ([10, 50] if function.endswith("Ancestor") else [10, 50, 50])


@pytest.mark.slow
def test_a_driver_that_does_not_say_what_a_link_ends_at_says_where(tmp_path: Path) -> None:
    machine = models.machine("a100-40gb", 2).with_failure("nvmlDeviceGetNvLinkRemoteDeviceType", 999)
    cpu = Link(remote_pci="0004:04:00.0", remote_type=NvLinkRemote.SWITCH)
    found = links_of(tmp_path, machine.with_gpu(0, links=(*machine.gpus[0].links, cpu)))
    assert [kind for kind, _ in found["gpus"][0]] == ["gpu"] * 12 + ["other"]


CLUSTER = "6ba7b812-9dad-11d1-80b4-00c04fd430c8"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(FabricState.NOT_SUPPORTED, None, id="no fabric"),
        pytest.param(FabricState.IN_PROGRESS, "", id="a fabric that is not ready"),
        pytest.param(FabricState.COMPLETED, f"{CLUSTER}.7", id="cluster and clique"),
    ],
)
def test_the_fabric_of_a_gpu(tmp_path: Path, state: FabricState, expected: str | None) -> None:
    machine = models.machine("h100-80gb", 2)
    changed = machine.with_gpu(1, fabric_state=state, fabric_cluster=CLUSTER, fabric_clique=7)
    assert links_of(tmp_path, changed)["fabrics"] == [None, expected]


@pytest.mark.slow
def test_of_a_single_gpu_only_its_fabric_is_asked_for(tmp_path: Path) -> None:
    machine = models.machine("h100-80gb", 1)
    state = {"fabric_state": FabricState.COMPLETED, "fabric_cluster": CLUSTER, "fabric_clique": 7}
    found = links_of(tmp_path, machine.with_gpu(0, **state))
    assert found["fabrics"] == [f"{CLUSTER}.7"]
    assert found["calls"] == [1, 1]


@pytest.mark.slow
def test_a_gpu_that_is_lost_is_left_out_and_the_others_are_not(tmp_path: Path) -> None:
    found = links_of(tmp_path, models.machine("a100-40gb", 4).with_gpu_lost(2))
    assert [len(gpu) for gpu in found["gpus"]] == [12, 12, 12]
    assert found["levels"] == [10, 50, 50]
