"""How a claim wants its devices shared is served, written down, or refused with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from plugin.devices.allocation.answer import Mount
from plugin.dra.configs import Ceilings, DeviceConfig
from plugin.dra.devices import DRIVER, Share
from tests.plugin.dra.claim_room import ONE, THREE, TWO, Room, claim, device, mig, room

__all__ = ["room"]  # a fixture

CONFIG = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
# As in gpu-test5 of demo/specs/quickstart/v1 of NVIDIA's driver.
LONG = {**CONFIG, "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}}
HALF = {"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi"}
BY_MPS = {**CONFIG, "sharing": {"strategy": "MPS", "mpsConfig": HALF}}


def with_config(
    parameters: object, driver: str = DRIVER, *, uid: str = ONE, devices: tuple[str, ...] = ("gpu-0",), **result: object
) -> dict[str, Any]:
    document = claim(uid, *devices, **result)
    opaque = {"driver": driver, "parameters": parameters}
    document["status"]["allocation"]["devices"]["config"] = [{"source": "FromClaim", "opaque": opaque}]
    return document


@pytest.mark.parametrize("kind", ["GpuConfig", "MigDeviceConfig"])
def test_a_config_that_asks_for_what_the_driver_does_anyway_is_served(room: Room, kind: str) -> None:
    room.claims["a"] = with_config({**CONFIG, "kind": kind, "sharing": {"strategy": "TimeSlicing"}})
    assert room.prepare(("a", ONE))[ONE].devices
    assert "sharing" not in (room.folder / f"claims/{ONE}.json").read_text()


def test_how_a_device_is_shared_is_written_down_and_known_after_a_kill(room: Room) -> None:
    room.claims |= {"a": with_config(LONG), "b": with_config(BY_MPS, uid=TWO, devices=("gpu-1",))}
    assert room.prepare(("a", ONE))[ONE].devices[0].cdi_device_ids == ("grapnel.dev/gpu=GPU-0",)
    by_mps = room.prepare(("b", TWO))[TWO].devices[0].cdi_device_ids
    assert by_mps == ("grapnel.dev/gpu=GPU-1", "grapnel.dev/gpu=mps-GPU-1")
    room.start()
    found = {each.uuid: each.sharing for _, each in room.store.held()}
    assert found == {"GPU-0": DeviceConfig("Long"), "GPU-1": DeviceConfig(mps=Ceilings(50, 10240))}
    assert room.prepare(("b", TWO))[TWO].devices[0].cdi_device_ids == by_mps


def test_a_claim_is_answered_for_when_its_devices_are_shared_as_it_asks_and_its_own_until_then(room: Room) -> None:
    room.claims |= {"a": with_config(LONG), "b": claim(TWO, "gpu-0")}
    room.node.unshared = "nvidia-smi does not answer"
    assert room.prepare(("a", ONE))[ONE].error == "nvidia-smi does not answer"
    assert "still has" in room.prepare(("b", TWO))[TWO].error
    room.node.unshared = ""
    assert room.prepare(("a", ONE))[ONE].devices


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({**CONFIG, "shring": {}}, "shring is not known"),
        ({**CONFIG, "kind": "VfioDeviceConfig"}, "VfioDeviceConfig"),
        ("text", "parameters must be an object"),
        ({**BY_MPS, "kind": "MigDeviceConfig"}, "MPS on a MIG device"),
    ],
)
def test_a_config_that_is_not_served_is_refused_with_the_reason(room: Room, parameters: object, words: str) -> None:
    room.node.devices["mig-1"] = mig(1)
    room.claims["a"] = with_config(parameters, devices=("mig-1",))
    assert words in room.prepare(("a", ONE))[ONE].error
    assert not room.store


@pytest.mark.parametrize("other", [LONG, BY_MPS, CONFIG])
def test_claims_that_share_a_gpu_have_to_agree_on_how(room: Room, other: dict[str, Any]) -> None:
    short = {**CONFIG, "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Short"}}}
    room.node.devices["gpu-0"] = device(0)._replace(share=Share(3, 3))
    room.claims |= {
        "a": with_config(short, shareID="s1"),
        "b": with_config(other, uid=TWO, shareID="s2"),
        "c": with_config(short, uid=THREE, shareID="s3"),
    }
    assert room.prepare(("a", ONE))[ONE].devices
    error = room.prepare(("b", TWO))[TWO].error
    assert "claim ml/a has it with time slices of interval Short" in error
    assert room.prepare(("c", THREE))[THREE].devices
    assert [room.unprepare(uid) for uid in (ONE, THREE)] == ["", ""]
    assert room.prepare(("b", TWO))[TWO].devices


def test_one_claim_has_to_agree_with_itself(room: Room) -> None:
    room.node.devices["gpu-0"] = device(0)._replace(share=Share(3, 3))
    room.claims["a"] = document = claim(ONE, "gpu-0", "gpu-0")
    devices = document["status"]["allocation"]["devices"]
    for number, row in enumerate(devices["results"][:2]):
        row |= {"request": f"r{number}", "shareID": f"s{number}"}
    opaque = {"driver": DRIVER, "parameters": LONG}
    devices["config"] = [{"source": "FromClaim", "requests": ["r1"], "opaque": opaque}]
    assert "interval Default and for time slices of interval Long" in room.prepare(("a", ONE))[ONE].error


def test_a_claim_has_one_gpu_by_mps_at_most(room: Room) -> None:
    room.claims["a"] = with_config(BY_MPS, devices=("gpu-0", "gpu-1"))
    assert "several gpus" in room.prepare(("a", ONE))[ONE].error


def test_what_the_node_shares_through_mps_is_shared_as_it_is_declared(room: Room) -> None:
    declared = Share(3, 3, mounts=(Mount("/pipe", "/pipe", read_only=True),))
    room.node.devices["gpu-0"] = device(0)._replace(share=declared)
    room.claims |= {"a": with_config(BY_MPS, shareID="s1"), "b": claim(TWO, "gpu-0", shareID="s2")}
    assert "as it is declared" in room.prepare(("a", ONE))[ONE].error
    assert room.prepare(("b", TWO))[TWO].devices


def test_whoever_only_sees_a_device_does_not_say_how_others_share_it(room: Room) -> None:
    room.claims["a"] = with_config(LONG, adminAccess=True)
    assert "as an admin" in room.prepare(("a", ONE))[ONE].error
    room.claims["a"] = with_config(CONFIG, adminAccess=True)
    assert room.prepare(("a", ONE))[ONE].devices


def test_a_claim_that_was_allocated_anew_with_another_config_of_its_class_gets_that(room: Room) -> None:
    room.claims["a"] = with_config(LONG)
    room.prepare(("a", ONE))
    room.claims["a"] = with_config(BY_MPS)
    assert len(room.prepare(("a", ONE))[ONE].devices[0].cdi_device_ids) == 2
    assert [each.sharing.interval for _, each in room.store.held()] == [""]


def test_configs_of_other_drivers_are_theirs(room: Room) -> None:
    room.claims["a"] = with_config("anything", driver="dra.net")
    assert room.prepare(("a", ONE))[ONE].devices
