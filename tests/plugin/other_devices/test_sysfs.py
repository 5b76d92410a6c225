from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lab.sysfs import INTEL, Tree, bare, gpu, rdma_nic, virtual_function
from plugin.devices.other.sysfs import FoundDevice, HostSysfs

if TYPE_CHECKING:
    from pathlib import Path

ADDRESS = "0000:3b:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.add(rdma_nic(ADDRESS, 0))
    return tree


def device(tree: Tree) -> FoundDevice:
    (found,) = HostSysfs(tree.sys_root, tree.dev_root).devices("bus/pci/devices")
    return found


def test_a_device_of_a_class_is_the_one_of_its_bus(tree: Tree) -> None:
    host = HostSysfs(tree.sys_root, tree.dev_root)
    (of_class,), (of_bus,) = host.devices("class/infiniband"), host.devices("bus/pci/devices")
    assert (of_class.name, of_bus.name) == ("mlx5_0", ADDRESS)
    assert of_class.path == of_bus.path
    assert of_class.address == of_bus.address == ADDRESS


def test_several_entries_of_one_device_are_the_first_one(tree: Tree) -> None:
    found = HostSysfs(tree.sys_root, tree.dev_root).devices("class/infiniband_mad")
    assert [one.name for one in found] == ["issm0"]


def test_devices_come_in_the_order_in_which_people_count(tree: Tree) -> None:
    tree.add(*(rdma_nic(f"0000:{n:02x}:00.0", n) for n in (10, 2, 9)))
    found = HostSysfs(tree.sys_root, tree.dev_root).devices("class/infiniband")
    assert [one.name for one in found] == ["mlx5_0", "mlx5_2", "mlx5_9", "mlx5_10"]


def test_a_connector_of_a_card_is_the_cards_device(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.add(gpu("0000:03:00.0", INTEL, "xe", 0))
    connector = tree.folder("0000:03:00.0") / "drm/card0/card0-DP-1"
    connector.mkdir()
    (connector / "device").symlink_to(connector.parent)
    (tree.sys_root / "class/drm/card0-DP-1").symlink_to(connector)
    (tree.sys_root / "class/drm/version").write_text("drm 1.1.0 20060810\n")
    (found,) = HostSysfs(tree.sys_root, tree.dev_root).devices("class/drm")
    assert (found.name, found.address) == ("card0", "0000:03:00.0")


def test_links_that_lead_in_a_circle_end(tree: Tree) -> None:
    circle = tree.sys_root / "class/odd/one"
    circle.mkdir(parents=True)
    (circle / "device").symlink_to(circle)
    assert [one.name for one in HostSysfs(tree.sys_root, tree.dev_root).devices("class/odd")] == ["one"]


def test_an_entry_that_belongs_to_no_device_is_one_itself(tree: Tree) -> None:
    (tree.sys_root / "class/misc/fuse").mkdir(parents=True)
    (found,) = HostSysfs(tree.sys_root, tree.dev_root).devices("class/misc")
    assert (found.name, found.address, found.numa_node) == ("fuse", "", None)


@pytest.mark.parametrize("folder", ["class/nothing", "bus/nothing/devices", "bus/pci/devices/0000:3b:00.0/vendor"])
def test_a_folder_that_is_none_has_no_devices(tree: Tree, folder: str) -> None:
    assert HostSysfs(tree.sys_root, tree.dev_root).devices(folder) == ()


def test_paths_may_have_wildcards_and_follow_links_within_sysfs(tree: Tree) -> None:
    tree.add(virtual_function("0000:3b:00.2", 2, ADDRESS))
    function = HostSysfs(tree.sys_root, tree.dev_root).devices("bus/pci/devices")[1]
    assert function.values("infiniband/*/ports/?/state") == ("4: ACTIVE",)
    assert function.names("physfn/net/*") == ("ib0",)
    assert function.link("physfn") == ADDRESS
    assert function.link("nothing") == ""


def test_a_link_out_of_sysfs_is_not_followed(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    (tree.folder(ADDRESS) / "leak").symlink_to(tmp_path / "secret")
    (tree.folder(ADDRESS) / "folder").symlink_to(tmp_path)
    found = device(tree)
    assert found.values("leak") == ()
    assert found.values("folder/secret") == ()
    assert found.names("folder/*") == ()


def test_an_entry_that_leads_out_of_sysfs_is_no_device(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tree.sys_root / "bus/pci/devices/0000:00:00.0").symlink_to(tmp_path / "elsewhere")
    assert device(tree).address == ADDRESS


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param("größe".encode(), id="not ascii"),
        pytest.param(b"a\nb", id="two lines"),
        pytest.param(b"a\0b", id="a zero byte"),
        pytest.param(b"x" * 257, id="too long"),
        pytest.param(b"x" * 100_000, id="far too long"),
    ],
)
def test_what_is_no_short_text_is_not_there(tree: Tree, content: bytes) -> None:
    (tree.folder(ADDRESS) / "odd").write_bytes(content)
    assert device(tree).values("odd") == ()


def test_a_file_that_never_ends_is_not_waited_for(tree: Tree) -> None:
    os.mkfifo(tree.folder(ADDRESS) / "pipe")
    assert device(tree).values("pipe") == ()


def test_what_a_path_finds_is_bounded(tree: Tree) -> None:
    for number in range(200):
        tree.write(ADDRESS, f"many/{number}", str(number))
    assert len(device(tree).values("many/*")) == 64


@pytest.mark.parametrize(
    ("said", "numa_node"), [("0", 0), ("1", 1), ("-1", None), ("x", None), ("99999", None), ("", None)]
)
def test_a_numa_node_is_a_small_number(tree: Tree, said: str, numa_node: int | None) -> None:
    tree.write(ADDRESS, "numa_node", said)
    assert device(tree).numa_node == numa_node


def test_nodes_are_devices_and_nothing_else(tree: Tree) -> None:
    (tree.dev_root / "file").write_text("")
    (tree.dev_root / "folder").mkdir()
    host = HostSysfs(tree.sys_root, tree.dev_root)
    assert host.node("infiniband/uverbs0") == str(tree.dev_root / "infiniband/uverbs0")
    assert [host.node(name) for name in ("file", "folder", "nothing", "a\0b")] == [None] * 4


def test_every_device_of_a_large_machine_is_found(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.add(*(bare(f"0000:{n // 8:02x}:{n % 8:02x}.0", INTEL, "0x060400") for n in range(500)))
    assert len(HostSysfs(tree.sys_root, tree.dev_root).devices("bus/pci/devices")) == 500
