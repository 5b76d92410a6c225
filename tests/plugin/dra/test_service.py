"""Claims are prepared and given back: by the scheduler's word alone, each device to one of them at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plugin.base.errors import ClusterError
from plugin.dra import messages as api
from plugin.dra.devices import Share
from plugin.dra.service import Health
from tests.plugin.dra.claim_room import GIB, ONE, THREE, TWO, Room, claim, device, mig, room

__all__ = ["room"]  # a fixture


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


@pytest.mark.parametrize(
    ("share", "consumed", "fits"),
    [
        (Share(4, 4), {"shares": "2"}, True),
        (Share(3, 3), {"shares": "2"}, False),
        (Share(40, 40, unit_bytes=GIB), {"memory": "20Gi"}, True),
        (Share(30, 30, unit_bytes=GIB), {"memory": "20Gi"}, False),
        (Share(10, 10, unit_bytes=GIB), {"memory": "20Gi"}, False),
    ],
)
def test_all_that_a_claim_has_of_a_device_counts_together(
    room: Room, share: Share, consumed: dict[str, str], *, fits: bool
) -> None:
    """A device has less to give than the scheduler saw: somebody has some of it in another way by now."""
    room.node.devices["gpu-0"] = device(0)._replace(share=share)
    of_both = [claim(ONE, "gpu-0", shareID=each, consumedCapacity=consumed) for each in (TWO, THREE)]
    results = [each["status"]["allocation"]["devices"]["results"][0] for each in of_both]
    room.claims["a"] = {"metadata": {"uid": ONE}, "status": {"allocation": {"devices": {"results": results}}}}
    found = room.prepare(("a", ONE))[ONE]
    assert (len(found.devices), bool(found.error)) == ((2, False) if fits else (0, True))


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


def test_parts_of_one_size_have_names_of_their_own_as_a_container_may_have_several(room: Room) -> None:
    """Engines add each name once: two parts of 4 GiB of one GPU were a limit of 4."""
    room.node.devices["gpu-0"] = device(0)._replace(share=Share(80, 80, unit_bytes=GIB))

    def names(name: str, uid: str) -> list[str]:
        return [each.cdi_device_ids[1].partition("=")[2] for each in room.prepare((name, uid))[uid].devices]

    four = claim(ONE, "gpu-0", consumedCapacity={"memory": "4Gi"})
    results = four["status"]["allocation"]["devices"]["results"]
    results[0]["shareID"] = "s1"
    results.append({**results[0], "shareID": "s2", "request": "more"})
    room.claims |= {"a": four, "b": claim(TWO, "gpu-0", shareID="s3", consumedCapacity={"memory": "4Gi"})}
    room.claims["c"] = claim(THREE, "gpu-0", shareID="s4", consumedCapacity={"memory": "4Gi"})
    first, second, third = (f"memory-{4 * GIB}{number}-GPU-0" for number in ("", ".1", ".2"))
    assert names("a", ONE) == [first, second]
    assert names("b", TWO) == [third]
    room.start()
    assert room.unprepare(ONE) == ""
    assert names("b", TWO) == [third]
    assert names("c", THREE) == [first]


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
