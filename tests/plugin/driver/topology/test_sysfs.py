from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.devices.inventory import HostTree
from plugin.devices.other.sysfs import HostSysfs
from plugin.driver.topology.facts import Nic, Place
from plugin.driver.topology.sysfs import read_nics, read_place

if TYPE_CHECKING:
    from pathlib import Path

BRIDGES = ("pci0000:10", "0000:10:01.0", "0000:11:00.0", "0000:12:00.0")


def add_device(sys_root: Path, *path: str, numa_node: str = "0\n") -> Path:
    """Make a PCI device with its bridges above it, as sysfs shows them."""
    device = (sys_root / "devices").joinpath(*path)
    device.mkdir(parents=True)
    (device / "numa_node").write_text(numa_node)
    by_address = sys_root / "bus/pci/devices"
    by_address.mkdir(parents=True, exist_ok=True)
    (by_address / path[-1]).symlink_to(device)
    return device


def add_nic(sys_root: Path, name: str, device: Path) -> None:
    folder = device / "infiniband" / name
    folder.mkdir(parents=True)
    (folder / "device").symlink_to("../..")
    names = sys_root / "class/infiniband"
    names.mkdir(parents=True, exist_ok=True)
    (names / name).symlink_to(folder)


def test_a_place_is_the_way_from_the_host_bridge(tmp_path: Path) -> None:
    add_device(tmp_path, *BRIDGES, "0000:13:00.0", numa_node="1\n")
    place = Place("0000:13:00.0", 1, (*BRIDGES, "0000:13:00.0"))
    assert read_place(tmp_path, "0000:13:00.0") == place
    assert HostTree(tmp_path, tmp_path).place("0000:13:00.0") == place


def test_a_device_that_sysfs_does_not_have_is_nowhere(tmp_path: Path) -> None:
    assert read_place(tmp_path, "0000:13:00.0") == Place("0000:13:00.0")
    assert read_nics(tmp_path) == ()


@pytest.mark.parametrize(
    ("said", "with_cpus", "distances", "expected"),
    [
        pytest.param("9", "0-1", "40 80 10 40", 0, id="memory of a GPU beside the first processor"),
        pytest.param("9", "0-1", "80 40 10 40", 1, id="beside the second one"),
        pytest.param("1", "0-1", "80 10 40 40", 1, id="a node with CPUs"),
        pytest.param("9", "0-1", "40 80", 9, id="distances that are not those of all nodes"),
        pytest.param("9", "", "40 80 10 40", 9, id="no CPUs anywhere"),
        pytest.param("9", "0-x", "40 80 10 40", 9, id="no list"),
    ],
)
def test_a_device_of_a_node_without_cpus_is_at_the_nearest_that_has_some(
    tmp_path: Path, said: str, with_cpus: str, distances: str, expected: int
) -> None:
    """A kubelet that aligns CPUs with devices would admit no pod."""
    nodes = tmp_path / "devices/system/node"
    (nodes / f"node{said}").mkdir(parents=True)
    (nodes / f"node{said}/distance").write_text(f"{distances}\n")
    (nodes / "has_cpu").write_text(f"{with_cpus}\n")
    (nodes / "online").write_text("0-1,9-10\n")
    add_device(tmp_path, *BRIDGES, "0000:13:00.0", numa_node=f"{said}\n")

    assert HostTree(tmp_path, tmp_path).numa_node("0000:13:00.0") == expected
    assert read_place(tmp_path, "0000:13:00.0").numa_node == expected
    [other] = HostSysfs(tmp_path, tmp_path).devices("bus/pci/devices")
    assert other.numa_node == expected


def test_rdma_devices_are_those_on_a_bus(tmp_path: Path) -> None:
    device = add_device(tmp_path, *BRIDGES, "0000:14:00.0", numa_node="-1\n")
    add_nic(tmp_path, "mlx5_0", device)
    virtual = tmp_path / "devices/virtual/net/rxe0"
    virtual.mkdir(parents=True)
    add_nic(tmp_path, "rxe0", virtual)
    expected = (Nic("mlx5_0", Place("0000:14:00.0", None, (*BRIDGES, "0000:14:00.0"))),)
    assert read_nics(tmp_path) == expected
    assert HostTree(tmp_path, tmp_path).nics() == expected
