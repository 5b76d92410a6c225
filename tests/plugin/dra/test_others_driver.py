"""The driver of other devices says why claims cannot be given them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from plugin.base.log import Logger
from plugin.dra import driver as shared
from plugin.dra.claims import ClaimName
from plugin.dra.others import driver as module
from plugin.dra.others.devices import FILE
from plugin.dra.store import ClaimStore, Edits, PreparedDevice, Published, Record
from plugin.kubelet.pod_resources.holdings import HoldingsView
from plugin.settings.node_config import DRA, NodeConfig
from tests.plugin.dra.test_others_given_twice import Registration, Slices

if TYPE_CHECKING:
    from pathlib import Path

WHY = "nothing keeps this pod's account from slices of other nodes"


class Refused(Slices):
    """Stands for who writes slices, and may not."""

    is_settled, problem = False, WHY


def made(folder: Path) -> module.OtherDriver:
    unused: Any = None
    config = NodeConfig(state_folder=folder, cdi_folder=folder / "cdi", interface=DRA)
    view = HoldingsView(unused, unused, unused, Logger())
    return module.OtherDriver(shared.DriverContext(config, Published("", "n1"), Logger(), {}, view.kubelet_came), view)


def test_it_says_what_keeps_its_slices_from_being_written(tmp_path: Path) -> None:
    """Where a node has no GPU, nobody else says it."""

    async def problem() -> str:
        driver = made(tmp_path)
        said = driver.problem(is_offered=True)
        await driver.close()
        return said

    with patch.object(shared, "SliceKeeper", Refused), patch.object(shared, "Registration", Registration):
        assert WHY in asyncio.run(problem())


def test_a_daemon_that_was_killed_after_the_record_writes_the_file_of_engines_though_it_knows_no_device_yet(
    tmp_path: Path,
) -> None:
    """The kubelet asks again at once, and the engine was asked for a name that stood in no file."""
    device = PreparedDevice("nic", "n1", "nic", "nic", ("nic",), edits=(Edits("nic.0a1b", '{"env": ["X=1"]}'),))
    ClaimStore(tmp_path, Logger(), module.FOLDER).put(Record(ClaimName("ml", "a", "u1"), (device,)))
    before = tmp_path / "cdi" / FILE
    before.parent.mkdir()
    before.write_text('{"kind": "grapnel.dev/device", "devices": []}')

    async def prepare() -> None:
        driver = made(tmp_path)
        driver.prepare()
        await driver.close()

    with patch.object(shared, "SliceKeeper", Slices), patch.object(shared, "Registration", Registration):
        asyncio.run(prepare())
    assert [each["name"] for each in json.loads(before.read_text())["devices"]] == ["nic.0a1b"]
