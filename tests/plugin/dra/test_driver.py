"""What engines are told of devices, and what is left of it when nobody has a claim any more."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, TypeVar

import pytest

from plugin.base.errors import ClaimError
from plugin.base.log import Logger
from plugin.devices.inventory import Inventory, next_inventory
from plugin.dra.driver import Driver
from plugin.dra.store import Published
from plugin.driver.snapshot import Snapshot
from plugin.settings.node_config import DRA, NodeConfig
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_Result = TypeVar("_Result")


async def _look_again() -> None:
    """Nobody has anything."""


def with_driver(folder: Path, act: Callable[[Driver], _Result]) -> _Result:
    """Return what becomes of an act on a driver that was just started; nobody has said who has what."""

    async def run() -> _Result:
        driver = Driver(
            NodeConfig(state_folder=folder, kubelet_root=folder, cdi_folder=folder / "cdi", interface=DRA),
            Published("", "n1"),
            Logger(),
            environment={},
            look_again=_look_again,
            holder=lambda _devices: None,
            changed=lambda: None,
            registered=lambda: None,
            report=lambda _problem: None,
        )
        try:
            return act(driver)
        finally:
            await driver.close()

    return asyncio.run(run())


def show(driver: Driver) -> None:
    driver.show(next_inventory(Inventory(), Snapshot(VERSION, gpus(2)), DictTree(set())), {}, is_offered=True)


def test_the_file_of_before_stays_until_the_devices_are_known(tmp_path: Path) -> None:
    with_driver(tmp_path, show)
    path = tmp_path / "cdi/grapnel-claims.json"
    before = path.read_text()
    assert [each["name"] for each in json.loads(before)["devices"]] == [gpu(0).uuid, gpu(1).uuid]
    with_driver(tmp_path, Driver.prepare)
    assert path.read_text() == before


def test_without_devices_there_is_no_file_that_engines_refuse(tmp_path: Path) -> None:
    with pytest.raises(ClaimError, match="not known"):
        with_driver(tmp_path, Driver.prepare)
    assert not (tmp_path / "cdi").exists()


def test_a_cdi_file_that_cannot_be_removed_keeps_no_driver_from_its_end(tmp_path: Path) -> None:
    (tmp_path / "cdi/grapnel-claims.json").mkdir(parents=True)
    (tmp_path / "claims").mkdir()
    with_driver(tmp_path, Driver.remove)
    assert not (tmp_path / "claims").exists()
