"""Who has a device already: the cases of docs/device-plugin/explain.md, against a device manager like the kubelet's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lab.kubelet import INIT, SIDECAR, AllocationRefused, Container
from plugin.base.errors import KubeletError
from plugin.base.log import Logger
from plugin.devices.resources import OfferRules, plan_offers
from plugin.kubelet.hold_back import hold_back
from plugin.kubelet.pod_resources.attribution import DeviceAssignment, PodContainer
from plugin.kubelet.pod_resources.holdings import DOUBT_S, Held, HoldingsView, Pace
from tests.plugin.devices.test_resources import EVERY, inventory, sliced
from tests.plugin.fakes import gpu
from tests.plugin.kubelet_pods import NodeOfPods, pod, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

A, B, C = (gpu(index).uuid for index in range(3))


def init_container_and_app(node: NodeOfPods) -> None:
    one = pod("train", Container("fetch", 1, INIT), Container("main", 1))
    node.meanwhile = node.refresh  # whatever is seen, whenever it is looked at
    assert node.admit(one) == (A, A)


def init_container_with_more_than_the_app(node: NodeOfPods) -> None:
    node.meanwhile = node.refresh
    one = pod("train", Container("fetch", 2, INIT), Container("main", 1), Container("other", 1))
    assert node.admit(one) == (A, B, A, B)


def sidecar_keeps_its_own(node: NodeOfPods) -> None:
    node.meanwhile = node.refresh
    assert node.admit(pod("train", Container("log", 1, SIDECAR), Container("main", 1))) == (A, B)


def sidecar_takes_over_from_an_init_container(node: NodeOfPods) -> None:
    node.meanwhile = node.refresh
    one = pod("train", Container("fetch", 1, INIT), Container("log", 1, SIDECAR), Container("main", 1))
    assert node.admit(one) == (A, A, B)


def kubelet_restarts_between_init_container_and_app(node: NodeOfPods) -> None:
    fetch, main = Container("fetch", 1, INIT), Container("main", 1)
    assert node.admit(pod("train", fetch)) == (A,)
    node.refresh()
    node.device_manager.restart()
    assert node.admit(pod("train", fetch, main)) == (A,)


def pod_that_ended_a_moment_ago(node: NodeOfPods) -> None:
    first, second = pod("first"), pod("second", Container("main", 2))
    node.admit(first)
    node.refresh()
    node.device_manager.end(first)
    assert node.admit(second) == (A, B)
    assert node.asked[-1] == DOUBT_S


def pod_of_the_same_name_again(node: NodeOfPods) -> None:
    before, after = pod("train-0", uid="1"), pod("train-0", uid="2")
    node.admit(before)
    node.admit(pod("beside"))
    node.refresh()
    node.device_manager.end(before)
    node.device_manager.remove(before)
    assert node.admit(after) == (A,)
    node.refresh()
    assert node.view.held.holder(A) == "default/train-0 as nvidia.com/gpu"


def pod_that_was_refused_halfway(node: NodeOfPods) -> None:
    with pytest.raises(AllocationRefused, match="requested 2"):
        node.admit(pod("greedy", Container("main", 1), Container("more", 2)))
    node.refresh()
    assert node.admit(pod("next", Container("main", 2))) == (A, B)


def kubelet_that_restarted_and_knows_no_pods_yet(node: NodeOfPods) -> None:
    node.admit(pod("first"))
    node.refresh()
    node.device_manager.restart()
    assert node.admit(pod("second")) == (B,)


def kubelet_that_lost_its_checkpoint(node: NodeOfPods) -> None:
    """Lists nobody any more: what was known before is not held against a pod."""
    node.admit(pod("first"))
    node.admit(pod("beside"))
    node.refresh()
    node.device_manager.restart()
    node.device_manager.given.clear()
    node.device_manager.allocated.clear()
    assert node.admit(pod("second")) == (A,)


def kubelet_that_does_not_answer(node: NodeOfPods) -> None:
    first = pod("first")
    node.admit(first)
    node.admit(pod("beside"))
    node.refresh()
    node.device_manager.end(first)
    node.answer = unreachable
    assert node.admit(pod("second")) == (A,)


@pytest.mark.slow
@pytest.mark.parametrize("lists_ended_pods", [False, True], ids=["since 1.34", "before 1.34"])
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(init_container_and_app, id="an init container's device is used again by its pod"),
        pytest.param(init_container_with_more_than_the_app, id="by two containers"),
        pytest.param(sidecar_keeps_its_own, id="a sidecar keeps its own"),
        pytest.param(sidecar_takes_over_from_an_init_container, id="a sidecar uses one again"),
        pytest.param(kubelet_restarts_between_init_container_and_app, id="kubelet restarts in between"),
        pytest.param(pod_that_ended_a_moment_ago, id="a pod ended a moment ago"),
        pytest.param(pod_of_the_same_name_again, id="a pod of the same name again"),
        pytest.param(pod_that_was_refused_halfway, id="a pod was refused halfway"),
        pytest.param(kubelet_that_restarted_and_knows_no_pods_yet, id="kubelet has just started"),
        pytest.param(kubelet_that_lost_its_checkpoint, id="kubelet lost its checkpoint"),
        pytest.param(kubelet_that_does_not_answer, id="kubelet does not answer"),
    ],
)
def test_a_pod_is_admitted_where(case: Callable[[NodeOfPods], None], *, lists_ended_pods: bool) -> None:
    with NodeOfPods(2, lists_ended_pods=lists_ended_pods) as node:
        case(node)


def forgotten(node: NodeOfPods) -> None:
    """Have a kubelet forget that it has given B away: it recomputes as an allocation goes on (`List`)."""
    old = pod("old")
    node.admit(old)

    def somebody_lists_as_a_pod_ends() -> None:
        node.device_manager.end(old)
        node.device_manager.list_response()

    node.meanwhile = somebody_lists_as_a_pod_ends
    assert node.admit(pod("first")) == (B,)
    node.meanwhile = lambda: None


@pytest.mark.parametrize("is_listed", [True, False], ids=["listed since", "not listed since"])
def test_a_device_that_the_kubelet_gives_away_twice_is_refused_and_the_next_pod_gets_another(
    *, is_listed: bool
) -> None:
    """Two pods shared a GPU where the second came before the daemon had asked who has what."""
    with NodeOfPods(2) as node:
        node.refresh()
        forgotten(node)
        node.admit(pod("takes the free one"))
        if is_listed:
            node.refresh()
        with pytest.raises(AllocationRefused, match=f"device '{B}' is held by 'default/first as nvidia.com/gpu'"):
            node.admit(pod("second"))
        with pytest.raises(AllocationRefused, match="available 0"):
            node.admit(pod("third"))


def test_a_device_that_was_given_away_a_moment_ago_is_preferred_last() -> None:
    """The kubelet takes it for free as well, and the pod would be refused."""
    with NodeOfPods(3) as node:
        node.refresh()
        forgotten(node)
        node.device_manager.allocated.clear()
        assert node.admit(pod("second")) == (C,), "A and B were given away"


def test_a_device_that_is_held_under_another_resource_is_refused() -> None:
    with NodeOfPods(1) as node:
        node.admit(pod("before", resource="example.com/old"))
        node.refresh()
        with pytest.raises(AllocationRefused, match=r"held by 'default/before as example\.com/old'"):
            node.admit(pod("after"))


def given(holder: str, *device_ids: str) -> DeviceAssignment:
    return DeviceAssignment(PodContainer("default", holder, "main"), "nvidia.com/gpu", device_ids)


@pytest.mark.parametrize(
    ("held", "asked", "is_held"),
    [
        pytest.param("GPU-a", "GPU-a", True, id="the same"),
        pytest.param("GPU-a", "GPU-b", False, id="another"),
        pytest.param("GPU-a::0", "GPU-a::0", True, id="the same share"),
        pytest.param("GPU-a::0", "GPU-a::1", False, id="another share"),
        pytest.param("GPU-a::0", "GPU-a", True, id="the whole of which a share is held"),
        pytest.param("GPU-a", "GPU-a::1", True, id="a share of one that is held whole"),
    ],
)
def test_shares_and_whole_gpus_keep_each_other_out(held: str, asked: str, *, is_held: bool) -> None:
    assert bool(Held([given("a", held)]).holder(asked)) is is_held


def test_nobody_is_asked_where_nobody_seems_to_hold_anything() -> None:
    with NodeOfPods(2) as node:
        node.refresh()
        node.admit(pod("first"))
        assert node.asked == [5.0]


def test_a_daemon_that_has_just_started_asks_before_it_gives_anything_away() -> None:
    """What it offers may be GPUs that somebody still has in another way."""

    async def scenario() -> None:
        kubelet = Questions()
        view = HoldingsView(kubelet.ask, lambda _given, _at: None, lambda: False, Logger())
        first = asyncio.ensure_future(view.holdings([f"{A}::0"]))
        await kubelet.wait_for(1)
        kubelet.open[0].set_result((given("train", A),))
        assert "default/train" in (await first).holder(f"{A}::0")
        assert (await view.holdings([f"{B}::0"])).holder(f"{B}::0") == ""
        assert len(kubelet.open) == 1

    asyncio.run(scenario())


def test_a_kubelet_that_does_not_say_is_asked_once_and_not_for_every_pod() -> None:
    with NodeOfPods(2) as node:
        node.answer = unreachable
        node.admit(pod("first"))
        node.admit(pod("second"))
        assert node.asked == [DOUBT_S]


class Questions:
    """A kubelet that answers when it is told to."""

    def __init__(self) -> None:
        self.open: list[asyncio.Future[tuple[DeviceAssignment, ...]]] = []

    async def ask(self, _deadline_s: float) -> tuple[DeviceAssignment, ...]:
        answer: asyncio.Future[tuple[DeviceAssignment, ...]] = asyncio.get_running_loop().create_future()
        self.open.append(answer)
        return await answer

    async def wait_for(self, count: int) -> None:
        while len(self.open) < count:  # noqa: ASYNC110 - nothing else happens in this loop
            await asyncio.sleep(0)


def test_an_answer_that_is_overtaken_does_not_count() -> None:
    async def scenario() -> None:
        kubelet = Questions()
        view = HoldingsView(kubelet.ask, lambda _given, _at: None, lambda: False, Logger())
        view.held = Held([given("ended", A)])
        slow = asyncio.ensure_future(view.ask_now(5))
        await kubelet.wait_for(1)
        doubt = asyncio.ensure_future(view.holdings([A]))
        await kubelet.wait_for(2)
        kubelet.open[1].set_result(())
        assert (await doubt).holder(A) == ""
        kubelet.open[0].set_result((given("ended", A),))
        await slow
        assert view.held.holder(A) == ""

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("holder", "is_expected", "rests"),
    [
        pytest.param((), False, True, id="not while nothing is held or expected"),
        pytest.param((), True, False, id="while a container is looked for"),
        pytest.param((given("first", A),), False, False, id="while something is held"),
    ],
)
def test_questions_go_on(holder: tuple[DeviceAssignment, ...], *, is_expected: bool, rests: bool) -> None:
    async def scenario() -> None:
        asked = asyncio.Semaphore(0)

        async def ask(_deadline_s: float) -> tuple[DeviceAssignment, ...]:
            asked.release()
            return holder

        pace = Pace(after_s=(0.0, 0.0), slow_s=0.0 if not rests else 3600.0)
        view = HoldingsView(ask, lambda _given, _at: None, lambda: is_expected, Logger(), pace)
        assert view.is_resting
        view.kubelet_came()
        for _ in range(3 if rests else 10):
            await asyncio.wait_for(asked.acquire(), 10)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert view.is_resting is rests
        view.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "pace",
    [
        pytest.param(Pace(first_s=0.0, latest_s=3600.0), id="soon"),
        pytest.param(Pace(first_s=3600.0, latest_s=0.0), id="at the latest, however many follow"),
    ],
)
def test_an_allocation_leads_to_a_question(pace: Pace) -> None:
    async def scenario() -> None:
        kubelet = Questions()
        view = HoldingsView(kubelet.ask, lambda _given, _at: None, lambda: False, Logger(), pace)
        view.changed()
        view.changed()
        await asyncio.wait_for(kubelet.wait_for(1), 10)
        view.stop()

    asyncio.run(scenario())


def test_each_further_allocation_puts_the_question_off() -> None:
    async def scenario() -> None:
        kubelet = Questions()
        pace = Pace(first_s=3600.0, latest_s=3600.0)
        view = HoldingsView(kubelet.ask, lambda _given, _at: None, lambda: False, Logger(), pace)
        view.kubelet_came()
        view.changed()
        for _ in range(10):
            await asyncio.sleep(0)
        assert (kubelet.open, view.is_resting) == ([], False)
        view.stop()
        assert view.is_resting

    asyncio.run(scenario())


def test_a_silent_kubelet_is_told_once_and_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async def ask(_deadline_s: float) -> tuple[DeviceAssignment, ...]:
            raise KubeletError("no kubelet", "")

        view = HoldingsView(ask, lambda _given, _at: None, lambda: False, Logger())
        for _ in range(3):
            assert not await view.ask_now(1)
        assert view.problem == "no kubelet"

    asyncio.run(scenario())
    assert caplog.messages == ["no kubelet"]


def test_a_kubelet_that_is_only_late_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        answers = iter([KubeletError("no kubelet", ""), KubeletError("no kubelet", ""), None])
        is_there = asyncio.Event()

        async def ask(_deadline_s: float) -> tuple[DeviceAssignment, ...]:
            error = next(answers)
            if error is not None:
                raise error
            is_there.set()
            return ()

        pace = Pace(after_s=(0.0, 0.0))
        view = HoldingsView(ask, lambda _given, _at: None, lambda: False, Logger(), pace)
        view.kubelet_came()
        await asyncio.wait_for(is_there.wait(), 10)
        view.stop()

    asyncio.run(scenario())
    assert caplog.messages == []


def test_a_kubelet_that_starts_and_lists_nobody_frees_no_device_for_claims() -> None:
    """What a pod had by the device plugin was published for claims for as long as the new kubelet listed no pods."""

    async def scenario() -> list[tuple[str | None, set[str] | None]]:
        answers = iter([(given("first", A),), (), (given("first", A),), (), ()])

        async def ask(_deadline_s: float) -> tuple[DeviceAssignment, ...]:
            return next(answers)

        loop = asyncio.get_running_loop()
        view = HoldingsView(ask, lambda _given, _at: None, lambda: False, Logger())
        found = [(view.holder_of((A,)), view.units_of(A))]
        for after_s in (0.0, 3.0, 2.0, 7.0, 2.0):
            now = loop.time()
            loop.time = lambda now=now, after_s=after_s: now + after_s  # type: ignore[method-assign]
            assert await view.ask_now(1.0)
            found.append((view.holder_of((A,)), view.units_of(A)))
        return found

    had: tuple[str, set[str]] = "default/first as nvidia.com/gpu", {A}
    assert asyncio.run(scenario()) == [(None, None), had, had, had, had, ("", set())]


def test_a_gpu_that_a_pod_has_whole_is_in_no_shares_while_a_kubelet_that_starts_lists_nobody() -> None:
    """Sharing was declared while the pod ran; a kubelet that was restarted then was shown shares that are free."""
    shares = plan_offers(inventory(gpu(0)), OfferRules(EVERY, shares=(sliced(replicas=3),)))

    async def scenario() -> list[bool]:
        answers = iter([(given("first", A),), (), ()])

        async def ask(_deadline_s: float) -> tuple[DeviceAssignment, ...]:
            return next(answers)

        loop = asyncio.get_running_loop()
        view = HoldingsView(ask, lambda _given, _at: None, lambda: False, Logger())
        waits = []
        for after_s in (0.0, 3.0, 9.0):
            now = loop.time()
            loop.time = lambda now=now, after_s=after_s: now + after_s  # type: ignore[method-assign]
            assert await view.ask_now(1.0)
            waits.append(bool(hold_back(shares, view.known, {}).waits))
        return waits

    assert asyncio.run(scenario()) == [True, True, False]
