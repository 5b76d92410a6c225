"""What engines are told of devices, and what is left of it when nobody has a claim any more."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from plugin.base.errors import ClaimError
from plugin.base.log import Logger
from plugin.devices.allocation.answer import Mount
from plugin.devices.allocation.table import NoSharing
from plugin.devices.inventory import Inventory, next_inventory
from plugin.dra.claims import ClaimName
from plugin.dra.configs import AS_IT_IS, Ceilings, DeviceConfig
from plugin.dra.driver import DriverContext
from plugin.dra.gpus.driver import GpuDriver
from plugin.dra.keeper import SliceKeeper
from plugin.dra.messages import Claim, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest
from plugin.dra.registration import Registration
from plugin.dra.store import PreparedDevice, Published, Record
from plugin.driver.snapshot import Snapshot
from plugin.settings.node_config import DRA, NodeConfig
from plugin.sharing.time_slices import TimeSlices
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

_Result = TypeVar("_Result")


async def _look_again() -> None:
    """Nobody has anything."""


def with_driver(
    folder: Path,
    act: Callable[[GpuDriver], Awaitable[_Result]],
    holder: str | None = None,
    sharing: NoSharing | None = None,
    **keys: Any,
) -> _Result:
    """Return what becomes of an act on a driver that was just started; by default nobody has said who has what."""

    async def run() -> _Result:
        config = NodeConfig(
            state_folder=folder,
            kubelet_root=folder,
            admin_socket=folder / "node.sock",
            interface=DRA,
            **{"cdi_folder": folder / "cdi", **keys},
        )
        driver = GpuDriver(
            DriverContext(config, Published("", "n1"), Logger(), {}, lambda: None),
            look_again=_look_again,
            holder=lambda _devices: holder,
            mps=sharing or NoSharing(),
            smi=folder / "nvidia-smi",
        )
        try:
            return await act(driver)
        finally:
            await driver.close()

    return asyncio.run(run())


async def prepare(driver: GpuDriver) -> None:
    driver.prepare()


async def remove(driver: GpuDriver) -> None:
    driver.remove()


async def show(driver: GpuDriver) -> None:
    driver.show(next_inventory(Inventory(), Snapshot(VERSION, gpus(2)), DictTree(set())), {}, is_offered=True)


def test_the_file_of_before_stays_until_the_devices_are_known(tmp_path: Path) -> None:
    with_driver(tmp_path, show)
    path = tmp_path / "cdi/grapnel-claims.json"
    before = path.read_text()
    uuids = [gpu(0).uuid, gpu(1).uuid]
    assert [each["name"] for each in json.loads(before)["devices"]] == [*uuids, *(f"mps-{uuid}" for uuid in uuids)]
    with_driver(tmp_path, prepare)
    assert path.read_text() == before


def test_without_devices_there_is_no_file_that_engines_refuse(tmp_path: Path) -> None:
    with pytest.raises(ClaimError, match="not known"):
        with_driver(tmp_path, prepare)
    assert not (tmp_path / "cdi").exists()


def test_a_driver_that_ends_is_asked_for_no_claim_from_its_first_step_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for time slices came first, and claims were prepared meanwhile, unknown to the device plugin."""
    seen: list[str] = []
    monkeypatch.setattr(Registration, "stop", _noting(seen, "no claims", Registration.stop))
    monkeypatch.setattr(TimeSlices, "close", _noting(seen, "no time slices", TimeSlices.close))

    with_driver(tmp_path, show)

    assert seen[:2] == ["no claims", "no time slices"]


def _noting(seen: list[str], word: str, act: Callable[..., Any]) -> Callable[..., Any]:
    def noting(*given: Any) -> Any:
        seen.append(word)
        return act(*given)

    return noting


def test_a_cdi_file_that_cannot_be_removed_keeps_no_driver_from_its_end(tmp_path: Path) -> None:
    (tmp_path / "cdi/grapnel-claims.json").mkdir(parents=True)
    (tmp_path / "claims").mkdir()
    with_driver(tmp_path, remove)
    assert not (tmp_path / "claims").exists()


def test_a_driver_is_not_done_while_a_claim_that_was_refused_is_to_be_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SliceKeeper, "is_settled", True)
    refused = NodePrepareResourcesRequest(claims=(Claim(namespace="ml", name="train", uid="u1"),))
    again = NodeUnprepareResourcesRequest(claims=refused.claims)

    async def ask(driver: GpuDriver) -> list[bool]:
        seen = [driver.is_done]
        await driver.service.prepare(refused)  # there is no API
        seen.append(driver.is_done)
        await driver.service.unprepare(again)
        return [*seen, driver.is_done]

    assert with_driver(tmp_path, ask) == [True, False, True]


@pytest.mark.parametrize(("folder", "is_published"), [("cdi", True), ("a-file/cdi", False)])
def test_what_no_claim_could_be_prepared_with_is_not_published(
    tmp_path: Path, folder: str, *, is_published: bool
) -> None:
    (tmp_path / "a-file").touch()
    with_driver(tmp_path, show, "", cdi_folder=tmp_path / folder)
    assert (tmp_path / "claims/published").exists() is is_published


class Ending(NoSharing):
    """The control daemon of a claim before still runs."""

    def ending(self, uuid: str) -> str:
        return f"{uuid} has a client"


class Up(NoSharing):
    """Every GPU has a control daemon that answers."""

    def parts(self, _uuid: str) -> tuple[tuple[tuple[str, str], ...], tuple[Mount, ...]]:
        return (), (Mount("/pipe", "/pipe", read_only=True),)


BY_MPS, LONG = DeviceConfig(mps=Ceilings(50)), DeviceConfig("Long")


@pytest.mark.parametrize(
    ("mps", "config", "words"),
    [
        (NoSharing(), BY_MPS, "is to be shared through MPS: its control daemon is about to be started"),
        (Up(), BY_MPS, ""),
        (NoSharing(), AS_IT_IS, ""),
        (Ending(), AS_IT_IS, "is still shared through MPS: "),
        (NoSharing(), LONG, "is to have time slices of interval Long: "),  # there is no nvidia-smi
    ],
)
def test_a_claim_is_answered_for_when_its_gpu_is_shared_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mps: NoSharing, config: DeviceConfig, words: str
) -> None:
    monkeypatch.setattr("plugin.dra.gpus.driver._SHARED_S", 0.0)
    found = why_not_shared(tmp_path, mps, config)
    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize("config", [BY_MPS, LONG], ids=["by MPS", "by longer time slices"])
def test_a_pod_says_what_claims_of_it_take_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: DeviceConfig
) -> None:
    monkeypatch.setattr("plugin.dra.gpus.driver._SHARED_S", 0.0)
    assert "cannot do from a pod: plugin.daemon: unit" in why_not_shared(tmp_path, Up(), config, in_pod=True)
    assert why_not_shared(tmp_path, Up(), AS_IT_IS, in_pod=True) == ""


def why_not_shared(tmp_path: Path, mps: NoSharing, config: DeviceConfig, **keys: bool) -> str:
    uuid = gpu(0).uuid
    device = PreparedDevice("gpu", "n1", uuid.lower(), uuid, (uuid,), sharing=config)
    record = Record(ClaimName("ml", "train", "u1"), (device,))

    async def ask(driver: GpuDriver) -> str:
        driver.store.put(record)
        await show(driver)
        try:
            await driver.shared(record)
        except ClaimError as error:
            return error.message
        return ""

    return with_driver(tmp_path, ask, sharing=mps, **keys)
