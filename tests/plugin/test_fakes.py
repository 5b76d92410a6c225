"""The fakes keep the promises of what they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import DriverNotReady
from plugin.devices.inventory import HostTree
from plugin.driver.snapshot import LostGpu, Snapshot
from tests.plugin.fakes import VERSION, FileSource, gpus, make_dev, write_driver

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_written_is_what_a_session_says(tmp_path: Path) -> None:
    state = Snapshot(VERSION, gpus(2), (LostGpu(2, None, "gpu is lost"),))
    write_driver(tmp_path / "driver.json", state)
    source = FileSource(tmp_path / "driver.json")
    source.open()
    assert source.snapshot() == state
    source.close()


def test_without_a_file_there_is_no_driver(tmp_path: Path) -> None:
    with pytest.raises(DriverNotReady, match="driver not loaded"):
        FileSource(tmp_path / "driver.json").open()


def test_a_driver_can_go_during_a_session(tmp_path: Path) -> None:
    write_driver(tmp_path / "driver.json", Snapshot(VERSION, gpus(1)))
    source = FileSource(tmp_path / "driver.json")
    source.open()
    write_driver(tmp_path / "driver.json", None)
    with pytest.raises(DriverNotReady):
        source.snapshot()


def test_made_device_nodes_count_as_device_nodes(tmp_path: Path) -> None:
    make_dev(tmp_path / "dev", 1)
    tree = HostTree(tmp_path / "dev", tmp_path)
    assert tree.device_path("nvidia0") == str(tmp_path / "dev/nvidia0")
    assert tree.device_path("nvidia1") is None
