"""What the device plugin may give away while GPUs are given by claims, or still are somebody's by one."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.sysfs import Tree
from plugin.base.log import Logger
from plugin.daemon.optional.claims import Claims
from plugin.daemon.tasks import Tasks
from plugin.devices.allocation.table import NoSharing
from plugin.devices.inventory import Inventory, next_inventory
from plugin.devices.resources import plan_offers
from plugin.dra.store import Published, as_published
from plugin.driver.snapshot import Snapshot
from plugin.holdings.history.keeper import HistoryKeeper
from plugin.settings.node_config import DEVICE_PLUGIN, DRA, IN_CLUSTER, LIMITS_REQUIRED, NodeConfig
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus
from tests.plugin.other_devices.test_plan import look, made

if TYPE_CHECKING:
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment

RECORD = f"""{{"schema": "grapnel.dev/claim/v1alpha1", "namespace": "ml", "name": "train", "uid": "u1", "devices": [
    {{"request": "gpu", "pool": "n1", "device": "gpu-0", "uuid": "{gpu(0).uuid}", "parts": ["{gpu(0).uuid}"],
      "adminAccess": false, "shareId": "", "shares": 1}}]}}"""


async def _nobody(_deadline_s: float) -> tuple[DeviceAssignment, ...]:
    return ()


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    (tmp_path / "state/claims").mkdir(parents=True)
    (tmp_path / "state/claims/u1.json").write_text(RECORD)
    return NodeConfig(state_folder=tmp_path / "state", kubelet_root=tmp_path, cdi_folder=tmp_path, interface=DRA)


class Room:
    """What the daemon has of claims, with two GPUs."""

    def __init__(self, config: NodeConfig) -> None:
        self.inventory = next_inventory(Inventory(), Snapshot(VERSION, gpus(2)), DictTree(set()))
        self.history = HistoryKeeper(config.state_folder, _nobody, Logger())
        self.claims = Claims(self.history, NoSharing(), config.state_folder / "nvidia-smi", Tasks().spawn, Logger())
        self.claims.on_change, self.claims.on_state = lambda: None, lambda _waiting_for: None
        self.claims.others.on_change = self.claims.on_change

    def given(self, config: NodeConfig) -> set[str]:
        """Return what is left to the device plugin."""
        left = self.claims.show(config, self.inventory, lambda: plan_offers(self.inventory, config.offer_rules))
        return {each.gpu.uuid for each in left.devices if not each.unhealthy}


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param(None, "kubelet.conf", "kubelet.conf", id="nothing was published"),
        pytest.param("old.conf", "kubelet.conf", "old.conf", id="where they are, although another is declared"),
        pytest.param("old.conf", "", "old.conf", id="where they are, although none is declared"),
        pytest.param("old.conf", IN_CLUSTER, IN_CLUSTER, id="a pod has no kubeconfig"),
        pytest.param(IN_CLUSTER, "kubelet.conf", "kubelet.conf", id="a unit has no account"),
        pytest.param(IN_CLUSTER, IN_CLUSTER, IN_CLUSTER, id="a pod after a pod"),
    ],
)
def test_slices_are_taken_back_by_what_reaches_the_api(before: str | None, now: str, expected: str) -> None:
    noted = None if before is None else Published(before, "n1")
    assert as_published(noted, Published(now, "n1")).api == expected


@pytest.mark.parametrize(("interface", "left"), [(DRA, set()), (DEVICE_PLUGIN, {gpu(1).uuid})])
def test_the_device_plugin_gets_no_more_while_a_driver_is_made_anew(
    config: NodeConfig, interface: str, left: set[str]
) -> None:
    async def reload() -> list[set[str]]:
        before = replace(config, interface=interface)
        after = replace(before, node_name="another", kubelet_root=config.kubelet_root / "another")
        room = Room(before)
        await room.claims.follow(before)
        seen = [room.given(before)]
        reloading = asyncio.ensure_future(room.claims.follow(after))
        while not reloading.done():
            await asyncio.sleep(0)
            seen.append(room.given(after))
        await room.claims.close()
        return seen

    seen = asyncio.run(reload())
    assert len(seen) > 2
    assert all(each == left for each in seen)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"memory_limits": LIMITS_REQUIRED}, "required,"),
        ({"admin_socket": Path("/run/other/node.sock")}, "/run/other/"),
    ],
)
def test_what_engines_are_told_follows_the_configuration(config: NodeConfig, keys: dict[str, Any], told: str) -> None:
    record = config.state_folder / "claims/u1.json"
    record.write_text(RECORD.replace('"shares": 1', '"shares": 1, "memoryBytes": 1024'))
    file = config.cdi_folder / "grapnel-claims.json"

    async def reload() -> list[bool]:
        room, seen = Room(config), []
        for each in (config, replace(config, **keys)):
            await room.claims.follow(each)
            room.given(each)
            seen.append(told in file.read_text())
        await room.claims.close()
        return seen

    assert asyncio.run(reload()) == [False, True]


def test_a_driver_that_took_back_slices_of_before_publishes_as_the_node_that_is_declared(config: NodeConfig) -> None:
    published = config.state_folder / "claims/published"
    published.write_text('{"kubernetesApi": "old.conf", "nodeName": "old"}')

    async def change_over() -> None:
        room, declared = Room(config), replace(config, kubernetes_api="new.conf", node_name="new")
        before = replace(declared, interface=DEVICE_PLUGIN)
        await room.claims.follow(before)
        room.given(before)
        await room.claims.follow(declared)
        await room.history.view.look_again()
        room.given(declared)
        await room.claims.close()

    asyncio.run(change_over())
    assert json.loads(published.read_text()) == {"kubernetesApi": "new.conf", "nodeName": "new"}


def test_the_driver_of_other_devices_publishes_as_the_node_that_is_declared_as_well(tmp_path: Path) -> None:
    published = tmp_path / "other-claims/published"
    published.parent.mkdir()
    published.write_text('{"kubernetesApi": "old.conf", "nodeName": "old"}')
    declared = NodeConfig(
        state_folder=tmp_path,
        kubelet_root=tmp_path,
        cdi_folder=tmp_path,
        interface=DRA,
        kubernetes_api="new.conf",
        node_name="new",
    )

    async def change_over() -> None:
        room, plan = Room(declared), look(Tree(tmp_path), made("few", match=None, unit={"count": 4}))
        before = replace(declared, interface=DEVICE_PLUGIN)
        await room.claims.others.follow(before)
        room.claims.others.show(before, plan)
        await room.claims.others.follow(declared)
        await room.history.view.look_again()
        room.claims.others.show(declared, plan)
        await room.claims.close()

    asyncio.run(change_over())
    assert json.loads(published.read_text()) == {"kubernetesApi": "new.conf", "nodeName": "new"}
