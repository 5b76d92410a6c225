from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from plugin.devices.inventory import HostTree, Inventory, next_inventory, without_driver
from plugin.driver.snapshot import LostGpu, Snapshot
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus

if TYPE_CHECKING:
    from pathlib import Path


def health(inventory: Inventory) -> dict[int, str]:
    return {device.gpu.index: device.unhealthy for device in inventory.devices}


def start(count: int) -> Inventory:
    return next_inventory(Inventory(), Snapshot(VERSION, gpus(count)), DictTree())


def test_every_gpu_with_a_node_is_offered_in_the_drivers_order() -> None:
    snapshot = Snapshot(VERSION, (gpu(1), gpu(0, minor=5)))
    inventory = next_inventory(Inventory(), snapshot, DictTree(numa={gpu(1).pci_address: 1}))
    assert [(device.gpu.index, device.path, device.numa_node) for device in inventory.devices] == [
        (0, "/dev/nvidia5", None),
        (1, "/dev/nvidia1", 1),
    ]
    assert [node.name for node in inventory.control] == ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"]
    assert inventory.findings == ()


def test_a_gpu_without_its_node_is_not_offered_and_is_reported() -> None:
    inventory = next_inventory(Inventory(), Snapshot(VERSION, gpus(2)), DictTree({"nvidia1"}))
    assert health(inventory) == {0: ""}
    assert inventory.findings == (("nvidia1", f"{gpu(1).uuid} is not offered: it has no device node nvidia1"),)


def test_a_control_node_that_is_missing_is_left_out_and_reported() -> None:
    inventory = next_inventory(Inventory(), Snapshot(VERSION, gpus(1)), DictTree({"nvidia-uvm"}))
    assert [node.name for node in inventory.control] == ["nvidiactl", "nvidia-uvm-tools"]
    assert [topic for topic, _ in inventory.findings] == ["nvidia-uvm"]


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        pytest.param((LostGpu(1, gpu(1).uuid, "gpu is lost"),), "gpu is lost", id="named by its uuid"),
        pytest.param((LostGpu(1, None, "unknown error"),), "unknown error", id="known by its index alone"),
        pytest.param((), "nvml does not list it any more", id="no longer counted"),
    ],
)
def test_a_gpu_that_is_lost_is_unhealthy_and_the_others_are_not(lost: tuple[LostGpu, ...], reason: str) -> None:
    inventory = next_inventory(start(3), Snapshot(VERSION, (gpu(0), gpu(2)), lost), DictTree())
    assert health(inventory) == {0: "", 1: reason, 2: ""}


def test_an_index_that_another_gpu_took_over_does_not_explain_a_loss() -> None:
    lost = (LostGpu(1, gpu(7).uuid, "gpu is lost"),)
    inventory = next_inventory(start(2), Snapshot(VERSION, (gpu(0),), lost), DictTree())
    assert health(inventory)[1] == "nvml does not list it any more"


def test_a_gpu_that_is_back_is_healthy_again() -> None:
    without = next_inventory(start(2), Snapshot(VERSION, (gpu(0),)), DictTree())
    assert health(next_inventory(without, Snapshot(VERSION, gpus(2)), DictTree())) == {0: "", 1: ""}


def test_a_node_that_goes_makes_its_gpu_unhealthy() -> None:
    inventory = next_inventory(start(2), Snapshot(VERSION, gpus(2)), DictTree({"nvidia0"}))
    assert health(inventory) == {0: "its device node /dev/nvidia0 is gone", 1: ""}


def test_without_the_driver_everything_known_is_unhealthy() -> None:
    gone = without_driver(start(2), "driver not loaded")
    assert health(gone) == {0: "driver not loaded", 1: "driver not loaded"}
    assert health(next_inventory(gone, Snapshot(VERSION, gpus(2)), DictTree())) == {0: "", 1: ""}


def test_a_gpu_in_whose_place_there_is_another_one_goes_from_the_list() -> None:
    other = replace(gpu(7), index=1, minor=1, pci_address=gpu(1).pci_address)
    inventory = next_inventory(start(3), Snapshot(VERSION, (gpu(0), other, gpu(2))), DictTree())
    assert [device.gpu.uuid for device in inventory.devices] == [gpu(0).uuid, other.uuid, gpu(2).uuid]


def test_a_gpu_that_was_unplugged_keeps_its_place_until_it_is_back() -> None:
    unplugged = next_inventory(start(3), Snapshot(VERSION, (gpu(0), replace(gpu(2), index=1))), DictTree())
    assert [bool(device.unhealthy) for device in unplugged.devices] == [False, True, False]
    assert health(next_inventory(unplugged, Snapshot(VERSION, gpus(3)), DictTree())) == {0: "", 1: "", 2: ""}


def test_with_another_driver_the_list_starts_over() -> None:
    inventory = next_inventory(start(3), Snapshot("560.35.05", gpus(2)), DictTree())
    assert health(inventory) == {0: "", 1: ""}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("1\n", 1, id="a node"),
        pytest.param("-1\n", None, id="the firmware does not say"),
        pytest.param("?", None, id="not a number"),
        pytest.param(None, None, id="no such device"),
    ],
)
def test_numa_node_is_read_from_sysfs(tmp_path: Path, content: str | None, expected: int | None) -> None:
    folder = tmp_path / "bus/pci/devices/0000:10:00.0"
    folder.mkdir(parents=True)
    if content is not None:
        (folder / "numa_node").write_text(content)
    assert HostTree(tmp_path, tmp_path).numa_node("0000:10:00.0") == expected


def test_a_file_in_the_place_of_a_node_is_not_a_node(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").write_text("")
    assert HostTree(tmp_path, tmp_path).device_path("nvidia0") is None


def test_nodes_of_gpus_are_told_from_others_by_their_names(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia15", "nvidiactl", "nvidia-uvm", "nvidia0x", "anvidia1"):
        (tmp_path / name).touch()
    assert HostTree(tmp_path, tmp_path).gpu_nodes() == {"nvidia0", "nvidia15"}
    assert HostTree(tmp_path / "nowhere", tmp_path).gpu_nodes() == frozenset()
