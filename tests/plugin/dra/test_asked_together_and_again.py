"""Claims that the kubelet asks for many times, for many pods, or after a failure, as suites of others have it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import ClaimError, ClusterError
from plugin.dra import messages as api
from plugin.dra import service
from tests.plugin.dra.claim_room import ONE, TWO, FakeNode, Room, claim
from tests.plugin.mps.node import until

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.dra.store import Record

PODS = 15  # of gpu_stress.bats of NVIDIA's driver, which have one claim


def test_pods_that_have_one_claim_have_one_device_and_it_is_given_back_once(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.claims["a"] = claim(ONE, "gpu-0")
    asked = api.NodePrepareResourcesRequest(claims=(api.Claim(namespace="ml", name="a", uid=ONE),))

    async def together() -> list[api.NodePrepareResourcesResponse]:
        return await asyncio.gather(*(room.service.prepare(asked) for _ in range(PODS)))

    answers = asyncio.run(together())

    assert all(each == answers[0] for each in answers)
    assert not any(each.value is None or each.value.error for answer in answers for each in answer.claims)
    assert room.held() == {"GPU-0": "a"}
    assert room.unprepare(ONE) == ""
    assert room.held() == {}


def test_claims_of_one_call_that_were_given_one_device_do_not_both_have_it(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.claims |= {"a": claim(ONE, "gpu-0"), "b": claim(TWO, "gpu-0")}

    answers = room.prepare(("a", ONE), ("b", TWO))

    assert sorted(bool(each.error) for each in answers.values()) == [False, True]
    assert len(room.held()) == 1


def test_requests_of_a_claim_have_their_own_devices(tmp_path: Path) -> None:
    room = Room(tmp_path)
    both = claim(ONE, "gpu-0", "gpu-1")
    for result, name in zip(both["status"]["allocation"]["devices"]["results"], ("small", "large/first"), strict=False):
        result["request"] = name
    room.claims["a"] = both

    found = {each.request_names: each.cdi_device_ids for each in room.prepare(("a", ONE))[ONE].devices}

    assert found == {("small",): ("grapnel.dev/gpu=GPU-0",), ("large",): ("grapnel.dev/gpu=GPU-1",)}


def test_what_failed_is_done_when_it_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(tmp_path)
    room.claims["a"] = ClusterError("no answer")
    assert room.prepare(("a", ONE))[ONE].error == "no answer"
    room.claims["a"] = claim(ONE, "gpu-0")
    assert room.prepare(("a", ONE))[ONE].error == ""

    def fails(_uid: str) -> bool:
        raise ClaimError("read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(room.store, "remove", fails)
        assert room.unprepare(ONE) == "read-only file system"
    assert room.held() == {"GPU-0": "a"}
    assert room.unprepare(ONE) == ""
    assert room.held() == {}


@pytest.mark.parametrize(("status", "is_given"), [(0, True), (429, True), (503, True), (403, False), (404, False)])
def test_what_was_prepared_stays_so_unless_the_api_says_something_of_it(
    tmp_path: Path, status: int, *, is_given: bool
) -> None:
    """What balances the load in front of an API server that is away answers by itself."""
    room = Room(tmp_path)
    room.claims["a"] = claim(ONE, "gpu-0")
    before = room.prepare(("a", ONE))[ONE]
    room.claims["a"] = ClusterError("no backend", status=status)
    assert (room.prepare(("a", ONE))[ONE] == before) is is_given
    room.claims["b"] = ClusterError("no backend", status=status)
    assert room.prepare(("b", TWO))[TWO].error == "no backend"


def test_claims_that_are_prepared_are_answered_for_while_the_api_server_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was read for itself, so most of them had no answer in the time that the kubelet gives."""
    monkeypatch.setattr(service, "_API_S", 0.01)
    room = Room(tmp_path)
    names = [(f"c{number}", f"11111111-aaaa-bbbb-cccc-00000000000{number}") for number in range(4)]
    room.claims |= {name: claim(uid, f"gpu-{number}") for number, (name, uid) in enumerate(names)}
    before = room.prepare(*names)
    answers = threading.Event()
    monkeypatch.setattr(room.service, "_read_claim", lambda _claim: answers.wait())
    asked = api.NodePrepareResourcesRequest(
        claims=tuple(api.Claim(namespace="ml", name=name, uid=uid) for name, uid in names)
    )

    async def answered() -> dict[str, api.NodePrepareResourceResponse | None]:
        try:
            return {each.key: each.value for each in (await room.service.prepare(asked)).claims}
        finally:
            answers.set()

    assert asyncio.run(answered()) == before


def test_a_pod_that_is_deleted_before_its_claim_was_prepared_leaves_nothing(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.claims["a"] = ClusterError("no answer")
    assert room.prepare(("a", ONE))[ONE].error
    assert room.unprepare(ONE) == ""
    assert not room.service.pending
    assert room.held() == {}


def test_a_claim_of_before_keeps_the_next_one_out_until_it_is_given_back(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.claims["old"] = claim(ONE, "gpu-0")
    room.prepare(("old", ONE))
    room.start()  # its pod was deleted by force, and the daemon exchanged
    del room.claims["old"]
    room.claims["new"] = claim(TWO, "gpu-0")
    assert "claim ml/old still has" in room.prepare(("new", TWO))[TWO].error
    assert room.unprepare(ONE) == ""
    assert room.prepare(("new", TWO))[TWO].error == ""


class Slow(FakeNode):
    """A node whose kubelet answers when a test says so, and which makes devices while it is `able`."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.answers: list[asyncio.Event] = []
        self.able = True

    async def look_again(self) -> None:
        self.asked += 1
        self.answers.append(asyncio.Event())
        await self.answers[-1].wait()

    async def ready(self, record: Record) -> Record:
        await asyncio.sleep(0)
        if not self.able:
            raise ClaimError("the driver does not answer")
        return record._replace()


def asked_for(uid: str) -> api.NodePrepareResourcesRequest:
    return api.NodePrepareResourcesRequest(claims=(api.Claim(namespace="ml", name="a", uid=uid),))


def error_of(answer: api.NodePrepareResourcesResponse) -> str:
    (found,) = answer.claims
    assert found.value is not None
    return found.value.error


def test_a_claim_that_is_given_back_while_it_is_prepared_is_nobodys(tmp_path: Path) -> None:
    node = Slow()
    room = Room(tmp_path, node, {"a": claim(ONE, "gpu-0")})

    async def overtaken() -> str:
        preparing = asyncio.ensure_future(room.service.prepare(asked_for(ONE)))
        await until(lambda: node.asked == 1)
        back = api.NodeUnprepareResourcesRequest(claims=asked_for(ONE).claims)
        await room.service.unprepare(back)
        node.answers[0].set()
        return error_of(await preparing)

    assert "given back" in asyncio.run(overtaken())
    assert room.held() == {}
    assert not list((tmp_path / "claims").glob("*.json"))


def test_a_claim_that_one_pod_has_is_not_lost_where_another_one_is_refused_it(tmp_path: Path) -> None:
    node = Slow()
    room = Room(tmp_path, node, {"a": claim(ONE, "gpu-0")})

    async def together() -> list[str]:
        pods = [asyncio.ensure_future(room.service.prepare(asked_for(ONE))) for _ in range(2)]
        await until(lambda: node.asked == 2)
        node.answers[0].set()
        first = error_of(await next(asyncio.as_completed(pods)))
        node.able = False
        node.answers[1].set()
        return [first, *sorted(map(error_of, await asyncio.gather(*pods)))]

    assert asyncio.run(together()) == ["", "", "the driver does not answer"]
    assert room.held() == {"GPU-0": "a"}


class Turns(FakeNode):
    """A node that is ready for each question when a test says so, or says why not."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[asyncio.Future[str]] = []

    async def ready(self, record: Record) -> Record:
        turn: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.turns.append(turn)
        if why := await turn:
            raise ClaimError(why)
        return record


@pytest.mark.parametrize("asks_again", [False, True])
def test_a_claim_that_another_pod_has_meanwhile_is_not_lost_where_the_first_question_fails(
    tmp_path: Path, *, asks_again: bool
) -> None:
    """What a ComputeDomain's claim needs is asked of the API each time, which answers one and not the other."""
    node = Turns()
    room = Room(tmp_path, node, {"a": claim(ONE, "gpu-0")})

    async def together() -> list[str]:
        pods = [asyncio.ensure_future(room.service.prepare(asked_for(ONE)))]
        await until(lambda: len(node.turns) == 1)
        pods.append(asyncio.ensure_future(room.service.prepare(asked_for(ONE))))
        await until(lambda: len(node.turns) == 2)
        node.turns[1].set_result("")
        await pods[1]
        if asks_again:
            pods.append(asyncio.ensure_future(room.service.prepare(asked_for(ONE))))
            await until(lambda: len(node.turns) == 3)
        node.turns[0].set_result("the api server does not answer")
        await pods[0]
        if asks_again:
            node.turns[2].set_result("")
        return [error_of(each) for each in await asyncio.gather(*pods)]

    first, *others = asyncio.run(together())
    assert (first, set(others)) == ("the api server does not answer", {""})
    assert room.held() == {"GPU-0": "a"}
