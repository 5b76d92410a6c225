"""Claims are prepared and given back: by the scheduler's word alone, each device to one of them at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from plugin.base.errors import ClaimError, ClusterError, KubeletError
from plugin.base.log import Logger
from plugin.devices.allocation.answer import Mount
from plugin.dra import messages as api
from plugin.dra.configs import Ceilings, DeviceConfig
from plugin.dra.devices import DRIVER, DraDevice, Share
from plugin.dra.service import ClaimService, Health
from plugin.dra.store import ClaimStore, Record

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.dra.claims import ClaimName

GIB = 2**30
ONE, TWO, THREE = (f"11111111-aaaa-bbbb-cccc-00000000000{number}" for number in (1, 2, 3))


def device(number: int, unhealthy: str = "") -> DraDevice:
    uuid = f"GPU-{number}"
    return DraDevice(uuid.lower(), uuid, (uuid,), (), {"type": {"string": "gpu"}}, {}, unhealthy)


def mig(number: int) -> DraDevice:
    uuid = f"MIG-{number}"
    return DraDevice(uuid.lower(), uuid, (uuid, "GPU-0"), (), {"type": {"string": "mig"}}, {})


def claim(uid: str, *devices: str, **result: object) -> dict[str, Any]:
    """Return a claim as the scheduler leaves it."""
    results = [{"request": "gpu", "driver": DRIVER, "pool": "n1", "device": each, **result} for each in devices]
    others = [{"request": "nic", "driver": "dra.net", "pool": "n1", "device": "nic-0"}]
    allocation = {"devices": {"results": [*results, *others]}}
    return {"metadata": {"uid": uid}, "status": {"allocation": allocation} if devices else {}}


@dataclass
class FakeNode:
    devices: dict[str, DraDevice] = field(default_factory=lambda: {f"gpu-{n}": device(n) for n in range(4)})
    held: dict[str, str] = field(default_factory=dict)
    silent: bool = False
    unshared: str = ""  # why devices are not shared yet as claims ask
    changes: int = 0

    async def look_again(self) -> None:
        if self.silent:
            raise KubeletError("the kubelet does not answer")
        await asyncio.sleep(0)

    def holder(self, device: DraDevice) -> str:
        return self.held.get(device.uuid, "")

    def prepare(self) -> None:
        """Nothing is written."""

    async def ready(self, record: Record) -> Record:
        """Return it: whole GPUs are there."""
        return record

    async def shared(self, record: Record) -> None:
        if self.unshared:
            raise ClaimError(self.unshared)

    def prepared(self, record: Record) -> None:
        """Nobody keeps a history."""

    def changed(self) -> None:
        self.changes += 1


@dataclass
class Room:
    """A service with its node, its folder and the API's claims."""

    folder: Path
    node: FakeNode = field(default_factory=FakeNode)
    claims: dict[str, dict[str, Any] | ClusterError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start()

    def start(self, patience_s: float = 0.0) -> None:
        """Begin again, as a daemon that was killed does."""
        self.store = ClaimStore(self.folder, Logger())
        self.store.load()
        self.service = ClaimService(self.node, self.store, Health(), self._read, Logger(), patience_s=patience_s)

    def _read(self, name: ClaimName) -> dict[str, Any]:
        found = self.claims.get(name.name, ClusterError("not found", status=404))
        if isinstance(found, ClusterError):
            raise found
        return found

    def held(self) -> dict[str, str]:
        """Return which claim has which device."""
        return {each.uuid: claim.name for claim, each in self.store.held()}

    def prepare(self, *asked: tuple[str, str]) -> dict[str, api.NodePrepareResourceResponse]:
        names = tuple(api.Claim(namespace="ml", name=name, uid=uid) for name, uid in asked)
        answer = asyncio.run(self.service.prepare(api.NodePrepareResourcesRequest(claims=names)))
        assert [each.key for each in answer.claims] == [uid for _, uid in asked]
        return {each.key: each.value for each in answer.claims if each.value is not None}

    def unprepare(self, uid: str) -> str:
        asked = api.NodeUnprepareResourcesRequest(claims=(api.Claim(namespace="ml", name="any", uid=uid),))
        (answer,) = asyncio.run(self.service.unprepare(asked)).claims
        assert answer.key == uid
        return "" if answer.value is None else answer.value.error


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def test_a_claim_gets_the_devices_that_the_scheduler_gave_it(room: Room) -> None:
    room.claims["a"] = claim(ONE, "gpu-0", "gpu-2")
    found = room.prepare(("a", ONE))[ONE]
    assert [each.cdi_device_ids for each in found.devices] == [("grapnel.dev/gpu=GPU-0",), ("grapnel.dev/gpu=GPU-2",)]
    assert {each.request_names for each in found.devices} == {("gpu",)}
    assert room.held() == {"GPU-0": "a", "GPU-2": "a"}
    assert room.node.changes == 1


def test_the_same_question_has_the_same_answer_also_after_a_kill_and_without_the_api(room: Room) -> None:
    room.claims["a"] = claim(ONE, "gpu-0")
    before = room.prepare(("a", ONE))
    room.start()
    room.claims["a"] = ClusterError("no answer")
    assert room.prepare(("a", ONE)) == before


def test_the_name_of_an_alternative_is_cut_off(room: Room) -> None:
    room.claims["a"] = claim(ONE, "gpu-0", request="gpu/big")
    assert room.prepare(("a", ONE))[ONE].devices[0].request_names == ("gpu",)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (claim(TWO, "gpu-0"), "another one"),
        (claim(ONE), "nothing of"),
        (claim(ONE, "gpu-9"), "does not have"),
        (ClusterError("the api server is away"), "away"),
        ({"metadata": {"uid": ONE}, "status": {"allocation": {"devices": {"results": "none"}}}}, "form"),
    ],
)
def test_what_cannot_be_prepared_is_an_error_of_this_claim_alone(
    room: Room, found: dict[str, Any] | ClusterError, words: str
) -> None:
    room.claims |= {"a": found, "b": claim(TWO, "gpu-1")}
    answers = room.prepare(("a", ONE), ("b", TWO))
    assert words in answers[ONE].error
    assert not answers[ONE].devices
    assert answers[TWO].devices
    assert set(room.held()) == {"GPU-1"}


def test_no_device_is_given_twice(room: Room) -> None:
    room.claims |= {"a": claim(ONE, "gpu-0"), "b": claim(TWO, "gpu-0")}
    answers = room.prepare(("a", ONE), ("b", TWO))  # at the same time
    assert sorted(bool(each.error) for each in answers.values()) == [False, True]
    loser = next(uid for uid, each in answers.items() if each.error)
    winner = ONE if loser == TWO else TWO
    assert room.unprepare(winner) == ""
    assert room.prepare(("a" if loser == ONE else "b", loser))[loser].devices


def test_mig_devices_of_one_gpu_are_given_to_several_claims_and_the_gpu_to_none_meanwhile(room: Room) -> None:
    slices = {f"mig-{n}": mig(n) for n in (1, 2)}
    room.node.devices |= slices
    room.claims |= {"a": claim(ONE, "mig-1"), "b": claim(TWO, "mig-2"), "c": claim(THREE, "gpu-0")}
    assert room.prepare(("a", ONE))[ONE].devices
    assert room.prepare(("b", TWO))[TWO].devices
    assert "still has" in room.prepare(("c", THREE))[THREE].error


def test_a_gpu_that_is_divided_under_a_claim_keeps_its_mig_devices_from_others(room: Room) -> None:
    room.claims |= {"a": claim(ONE, "gpu-0"), "b": claim(TWO, "mig-1")}
    assert room.prepare(("a", ONE))[ONE].devices
    room.node.devices = {"mig-1": mig(1)}
    assert "still has" in room.prepare(("b", TWO))[TWO].error


def test_what_a_pod_has_by_the_device_plugin_is_not_given(room: Room) -> None:
    room.claims["a"] = claim(ONE, "gpu-0")
    room.node.held["GPU-0"] = "ml/old as nvidia.com/gpu"
    assert "ml/old" in room.prepare(("a", ONE))[ONE].error
    assert not room.store
    room.node.held.clear()
    assert room.prepare(("a", ONE))[ONE].devices


def test_while_the_kubelet_does_not_say_who_has_what_nothing_is_given(room: Room) -> None:
    room.claims["a"] = claim(ONE, "gpu-0")
    room.node.silent = True
    assert room.prepare(("a", ONE))[ONE].error


def test_an_unhealthy_device_is_not_given(room: Room) -> None:
    room.node.devices["gpu-0"] = device(0, "xid 79")
    room.claims["a"] = claim(ONE, "gpu-0")
    assert "xid 79" in room.prepare(("a", ONE))[ONE].error


def test_whoever_sees_a_device_as_admin_keeps_it_from_nobody(room: Room) -> None:
    room.claims |= {"a": claim(ONE, "gpu-0", adminAccess=True), "b": claim(TWO, "gpu-0")}
    assert room.prepare(("a", ONE))[ONE].devices
    assert room.prepare(("b", TWO))[TWO].devices
    assert room.held() == {"GPU-0": "b"}


def test_a_claim_waits_a_moment_for_the_one_before_it(room: Room) -> None:
    """The scheduler gives a device away before the kubelet has given the ended pod's claim back."""
    room.start(patience_s=10.0)
    room.claims |= {"a": claim(ONE, "gpu-0"), "b": claim(TWO, "gpu-0")}
    assert room.prepare(("a", ONE))[ONE].devices

    async def both() -> api.NodePrepareResourcesResponse:
        asked = api.NodePrepareResourcesRequest(claims=(api.Claim(namespace="ml", name="b", uid=TWO),))
        preparing = asyncio.ensure_future(room.service.prepare(asked))
        await asyncio.sleep(0.1)
        assert not preparing.done()
        before = api.NodeUnprepareResourcesRequest(claims=(api.Claim(namespace="ml", name="a", uid=ONE),))
        await room.service.unprepare(before)
        return await asyncio.wait_for(preparing, 2.0)

    (answer,) = asyncio.run(both()).claims
    assert answer.value is not None
    assert answer.value.devices
    assert room.held() == {"GPU-0": "b"}


def test_shares_of_a_device_are_given_to_several_claims_and_no_more_than_there_are(room: Room) -> None:
    room.node.devices["gpu-0"] = device(0)._replace(share=Share(3, 3))
    share = {"consumedCapacity": {"shares": "1"}}
    room.claims |= {
        "a": claim(ONE, "gpu-0", shareID="s1", consumedCapacity={"shares": "2"}),
        "b": claim(TWO, "gpu-0", shareID="s2", **share),
        "c": claim(THREE, "gpu-0", shareID="s3", **share),
    }
    assert room.prepare(("a", ONE))[ONE].devices[0].share_id == "s1"
    assert room.prepare(("b", TWO))[TWO].devices
    assert "still has" in room.prepare(("c", THREE))[THREE].error
    assert room.unprepare(ONE) == ""
    assert room.prepare(("c", THREE))[THREE].devices


def test_memory_of_a_gpu_is_given_to_several_claims_and_no_more_than_it_has(room: Room) -> None:
    room.node.devices["gpu-0"] = device(0)._replace(share=Share(80, 80, unit_bytes=GIB))

    def part(uid: str, share: str, gib: int) -> dict[str, Any]:
        return claim(uid, "gpu-0", shareID=share, consumedCapacity={"memory": f"{gib}Gi"})

    room.claims |= {"a": part(ONE, "s1", 10), "b": part(TWO, "s2", 60), "c": part(THREE, "s3", 11)}
    names = room.prepare(("a", ONE))[ONE].devices[0].cdi_device_ids
    assert names == ("grapnel.dev/gpu=GPU-0", f"grapnel.dev/gpu=memory-{10 * GIB}-GPU-0")
    assert room.prepare(("b", TWO))[TWO].devices
    assert "still has" in room.prepare(("c", THREE))[THREE].error
    room.start()
    assert sorted(each.memory_bytes for _, each in room.store.held()) == [10 * GIB, 60 * GIB]
    assert room.unprepare(ONE) == ""
    assert room.prepare(("c", THREE))[THREE].devices


@pytest.mark.parametrize(
    ("share", "consumed", "words"),
    [
        (Share(80, 80, unit_bytes=2**30), {"shares": "1"}, "is shared by its memory by now"),
        (Share(3, 3), {"memory": "1Gi"}, "is not shared by its memory any more"),
        (None, {"memory": "1Gi"}, "is not shared by its memory any more"),
    ],
)
def test_a_claim_whose_gpu_is_shared_in_another_way_by_now_is_refused(
    room: Room, share: Share | None, consumed: dict[str, str], words: str
) -> None:
    room.node.devices["gpu-0"] = device(0)._replace(share=share)
    room.claims["a"] = claim(ONE, "gpu-0", shareID="s1", consumedCapacity=consumed)
    assert words in room.prepare(("a", ONE))[ONE].error


@pytest.mark.parametrize("was_shared", [True, False])
def test_a_device_is_not_given_whole_and_in_shares_at_the_same_time(room: Room, *, was_shared: bool) -> None:
    share = {"shareID": "s1", "consumedCapacity": {"shares": "1"}}
    before, after = (share, {}) if was_shared else ({}, share)
    forms = {True: device(0)._replace(share=Share(3, 3)), False: device(0)}
    room.claims |= {"a": claim(ONE, "gpu-0", **before), "b": claim(TWO, "gpu-0", **after)}
    room.node.devices["gpu-0"] = forms[was_shared]
    assert room.prepare(("a", ONE))[ONE].devices
    room.node.devices["gpu-0"] = forms[not was_shared]
    assert room.prepare(("b", TWO))[TWO].error
    assert room.unprepare(ONE) == ""
    assert room.prepare(("b", TWO))[TWO].devices


def test_a_claim_that_was_allocated_anew_gets_its_new_device(room: Room) -> None:
    room.claims["a"] = claim(ONE, "gpu-0")
    room.prepare(("a", ONE))
    room.claims["a"] = claim(ONE, "gpu-1")
    assert room.prepare(("a", ONE))[ONE].devices[0].device_name == "gpu-1"
    assert set(room.held()) == {"GPU-1"}


def test_a_claim_that_was_refused_is_waited_for_until_it_is_given_back(room: Room) -> None:
    """Its pod ends no sooner."""
    room.claims |= {"a": claim(ONE, "gpu-0"), "b": claim(TWO, "gpu-0")}
    room.prepare(("a", ONE))
    assert room.prepare(("b", TWO))[TWO].error
    assert room.service.pending == {TWO}
    changes = room.node.changes
    assert room.unprepare(TWO) == ""
    assert not room.service.pending
    assert room.node.changes == changes + 1


def test_giving_back_needs_neither_driver_nor_api_and_may_be_asked_twice(room: Room) -> None:
    room.claims["a"] = claim(ONE, "gpu-0")
    room.prepare(("a", ONE))
    room.claims.clear()
    room.node.devices = {}
    room.start()
    assert room.unprepare(ONE) == ""
    assert room.unprepare(ONE) == ""
    assert not room.store
    assert not list(room.folder.glob("claims/*"))


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": "of another time"}', b"\xff"])
def test_a_file_that_cannot_be_read_costs_its_own_claim_alone(room: Room, content: bytes) -> None:
    room.claims |= {"a": claim(ONE, "gpu-0"), "b": claim(TWO, "gpu-1")}
    before = room.prepare(("a", ONE), ("b", TWO))
    (room.folder / f"claims/{ONE}.json").write_bytes(content)
    room.start()
    assert room.store.unknown.endswith(f"{ONE}.json")
    assert set(room.held()) == {"GPU-1"}
    assert room.prepare(("a", ONE))[ONE] == before[ONE]
    assert room.store.unknown == ""
    room.start()
    assert set(room.held()) == {"GPU-0", "GPU-1"}


def test_what_cannot_be_written_down_is_not_given(room: Room) -> None:
    room.claims["a"] = claim(ONE, "gpu-0")
    (room.folder / "claims").write_text("no folder")
    assert "cannot be written" in room.prepare(("a", ONE))[ONE].error
    assert not room.store


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", "a/b", "x" * 100])
def test_a_uid_that_is_none_names_no_file(room: Room, uid: str) -> None:
    room.claims["a"] = claim(uid, "gpu-0")
    assert room.prepare(("a", uid))[uid].error
    assert room.unprepare(uid) == ""
    assert not (room.folder / "claims").exists()


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


def test_health_is_told_at_once_and_when_it_changes() -> None:
    async def watch() -> list[list[tuple[str, int, str]]]:
        health, told = Health(), asyncio.Queue[api.NodeWatchResourcesResponse]()
        health.show("n1", (device(0),))
        watching = asyncio.ensure_future(health.watch(api.NodeWatchResourcesRequest(), told.put))
        first = await told.get()
        health.show("n1", (device(0, "xid 79"),))
        second = await told.get()
        watching.cancel()
        return [
            [(str(each.device and each.device.device_name), each.health, each.message) for each in one.devices]
            for one in (first, second)
        ]

    assert asyncio.run(watch()) == [[("gpu-0", 1, "")], [("gpu-0", 2, "xid 79")]]
