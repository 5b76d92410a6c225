"""The extender over HTTP, with an API server: placed, bound in one write, corrected, and taken up again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from plugin import __version__
from plugin.gpushare.books import pod_annotations
from tests.plugin.gpushare.documents import cards, node_document, pod_document
from tests.plugin.gpushare.kubelet import Kubelet
from tests.plugin.gpushare.stage import Stage, api_server, until, write_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    from lab.cluster.certificates import Certificates

pytestmark = pytest.mark.slow


@pytest.fixture
def stage(certificates: Certificates, tmp_path: Path) -> Iterator[Stage]:
    with api_server(certificates) as server:
        yield Stage(server, write_kubeconfig(tmp_path / "kubeconfig", server.url, certificates))


def played(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


def index_of(stage: Stage, name: str) -> str:
    return str(stage.pod(name)["metadata"].get("annotations", {}).get(pod_annotations.INDEX))


def test_a_pod_is_filtered_bound_and_annotated_in_one_write(stage: Stage) -> None:
    async def scene() -> None:
        stage.add_node("small", 4)
        stage.add_node("full", 10, 10)
        stage.add_node("n1", 10, 16)
        stage.add_pod("old", 9, 9, node="full")
        pod = stage.add_pod("p", 12)
        async with stage.extender() as (_, scheduler):
            answer = await scheduler.filter(pod, "small", "full", "n1", "strange")
            assert answer["NodeNames"] == ["n1"]
            assert answer["FailedNodes"] == {}
            assert answer["FailedAndUnresolvableNodes"] == {
                "small": "no card has 12 units: the largest one has 4",
                "full": "no card has 12 units: the largest one has 10",
                "strange": "the node is not known",
            }
            assert await scheduler.bind(pod, "n1") == ""
        bound = stage.pod("p")
        assert bound["spec"]["nodeName"] == "n1"
        found = bound["metadata"]["annotations"]
        assert found.pop(pod_annotations.ASSUME_TIME).isdigit()
        assert found == {
            "ALIYUN_COM_GPU_MEM_IDX": "1",
            "ALIYUN_COM_GPU_MEM_DEV": "16",
            "ALIYUN_COM_GPU_MEM_POD": "12",
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        }
        assert stage.server.requests["patch pods"] == 0

    played(scene)


def test_annotations_follow_what_the_kubelet_gave(stage: Stage) -> None:
    """Two equal pods are admitted the other way round."""

    async def scene() -> None:
        stage.add_node("n1", 10, 10)
        pods = [stage.add_pod(name, 6) for name in ("a", "b")]
        async with stage.extender() as (extender, scheduler):
            for pod in pods:
                assert await scheduler.bind(pod, "n1") == ""
            assert [index_of(stage, name) for name in ("a", "b")] == ["0", "1"]
            stage.admit("b", "a")
            await until(lambda: [index_of(stage, name) for name in ("a", "b")] == ["1", "0"])
            assert stage.pod("a")["metadata"]["annotations"][pod_annotations.ASSIGNED] == "true"
            assert extender.inspect("n1")["nodes"][0]["devs"] == [
                {"id": 0, "totalGPU": 10, "usedGPU": 6, "pods": [{"name": "b", "namespace": "jobs", "usedGPU": 6}]},
                {"id": 1, "totalGPU": 10, "usedGPU": 6, "pods": [{"name": "a", "namespace": "jobs", "usedGPU": 6}]},
            ]

    played(scene)


def test_nobody_is_evicted_from_a_card_on_which_the_other_pod_would_not_fit(stage: Stage) -> None:
    async def scene() -> None:
        for name in ("n1", "n2"):
            stage.add_node(name, 10, 10)
            for number, units in enumerate((6, 6, 4, 4)):
                stage.add_pod(f"{name}-{number}", units, node=name)
            stage.admit(*(f"{name}-{number}" for number in range(4)))  # 6 and 4 on each card
        pod = stage.add_pod("p", 8)
        victims = {
            "n1": {"Pods": [{"UID": "uid-n1-2"}, {"UID": "uid-n1-3"}], "NumPDBViolations": 0},
            "n2": {"Pods": [{"UID": "uid-n2-0"}, {"UID": "uid-n2-2"}], "NumPDBViolations": 1},
        }
        async with stage.extender() as (_, scheduler):
            body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
            status, answer = await scheduler.ask("POST", "/gpushare-scheduler/preempt", body)
            assert status == 200
            assert json.loads(answer) == {"NodeNameToMetaVictims": {"n2": victims["n2"]}}

    played(scene)


def test_units_of_a_pod_that_ended_are_given_again(stage: Stage) -> None:
    async def scene() -> None:
        stage.add_node("n1", 10)
        first, second = stage.add_pod("a", 8), stage.add_pod("b", 8)
        async with stage.extender() as (extender, scheduler):
            assert await scheduler.bind(first, "n1") == ""
            assert "no card has 8 free units" in await scheduler.bind(second, "n1")
            stage.store.change("pods", ("jobs", "a"), lambda pod: pod["status"].update(phase="Succeeded"))
            await until(lambda: extender.books.use("n1").cards[0].free == 10)
            assert await scheduler.bind(second, "n1") == ""

    played(scene)


def test_a_pod_that_was_refused_is_changed_once_it_has_room(stage: Stage) -> None:
    """A scheduler that heard of the end of `a` first was refused, and asks about `b` again when that changes."""

    async def scene() -> None:
        stage.add_node("n1", 10)
        stage.add_node("n2", 10)
        first, second, other = (stage.add_pod(name, 8) for name in ("a", "b", "c"))
        async with stage.extender() as (_, scheduler):
            assert await scheduler.bind(first, "n1") == ""
            assert (await scheduler.filter(second, "n1"))["NodeNames"] == []
            assert (await scheduler.filter(other, "n1", "n2"))["NodeNames"] == ["n2"]
            stage.store.change("pods", ("jobs", "a"), lambda pod: pod["status"].update(phase="Succeeded"))
            await until(lambda: pod_annotations.ROOM_SINCE in stage.pod("b")["metadata"].get("annotations", {}))
            assert (await scheduler.filter(second, "n1"))["NodeNames"] == ["n1"]
            assert pod_annotations.ROOM_SINCE not in stage.pod("c")["metadata"].get("annotations", {})

    played(scene)


def test_a_pod_that_the_node_has_no_report_for_is_changed_once_there_is_one(stage: Stage) -> None:
    async def scene() -> None:
        stage.store.put("nodes", node_document("n1", None, 10))
        stage.kubelets["n1"] = Kubelet(cards(10))
        pod = stage.add_pod("p", 8)
        async with stage.extender() as (_, scheduler):
            answer = await scheduler.filter(pod, "n1")
            assert "does not say which cards" in answer["FailedAndUnresolvableNodes"]["n1"]
            stage.report()
            await until(lambda: pod_annotations.ROOM_SINCE in stage.pod("p")["metadata"].get("annotations", {}))

    played(scene)


def test_fifty_pods_at_once_never_take_a_unit_twice(stage: Stage) -> None:
    async def scene() -> None:
        stage.add_node("n1", 40, 40, 24)
        sizes = [1 + number % 7 for number in range(50)]
        pods = [stage.add_pod(f"p{number}", units) for number, units in enumerate(sizes)]
        async with stage.extender() as (extender, scheduler):
            errors = await asyncio.gather(*(scheduler.bind(pod, "n1") for pod in pods))
            bound = [f"p{number}" for number, error in enumerate(errors) if not error]
            assert bound
            await until(lambda: all(stage.pod(name)["spec"].get("nodeName") == "n1" for name in bound))
            stage.admit(*reversed(bound))  # raises where one finds no card
            given = sum(stage.parsed(name).demand.units for name in bound)
            assert len(stage.kubelets["n1"].given) == given <= 104
            refused = [pod for pod, error in zip(pods, errors, strict=True) if error]
            await until(lambda: extender.books.use("n1").on_the_way == ())
            free = sum(each.free for each in extender.books.use("n1").cards)
            again = await asyncio.gather(*(scheduler.bind(pod, "n1") for pod in refused))
            late = [pod["metadata"]["name"] for pod, error in zip(refused, again, strict=True) if not error]
            assert sum(stage.parsed(name).demand.units for name in late) <= free
            stage.admit(*late)

    played(scene)


def test_a_lost_answer_is_asked_for_and_the_pod_counts_once(stage: Stage) -> None:
    async def scene() -> None:
        stage.add_node("n1", 10)
        pod = stage.add_pod("p", 6)
        async with stage.extender() as (extender, scheduler):
            stage.server.lost_answers = 1
            assert await scheduler.bind(pod, "n1") == ""
            assert extender.books.use("n1").cards[0].free == 4
            assert await scheduler.bind(pod, "n1") == "", "asked again by a scheduler that did not hear it"

    played(scene)


def test_while_nobody_knows_what_came_of_a_bind_its_units_are_kept(stage: Stage) -> None:
    async def scene() -> None:
        stage.add_node("n1", 10)
        pod, other = stage.add_pod("p", 6), stage.add_pod("q", 6)
        async with stage.extender() as (extender, scheduler):
            stage.server.lost_answers = 100  # to the question what came of it, too
            stage.server.is_silent = True
            assert "is not bound to n1" in await scheduler.bind(pod, "n1")
            stage.server.lost_answers = 0
            assert extender.books.use("n1").cards[0].free == 4
            assert "no card has 6 free units" in await scheduler.bind(other, "n1")
            stage.server.is_silent = False
            stage.store.change("pods", ("jobs", "q"), lambda _: None)  # the watch wakes up
            await until(lambda: extender.books.pod("uid-p") and extender.books.pod("uid-p").node == "n1")  # type: ignore[union-attr] # it is there
            assert extender.books.use("n1").cards[0].free == 4
            assert await scheduler.bind(pod, "n1") == ""

    played(scene)


@pytest.mark.parametrize("is_bound", [pytest.param(False, id="before the bind"), pytest.param(True, id="after it")])
def test_another_extender_goes_on_where_one_was_killed(stage: Stage, *, is_bound: bool) -> None:
    async def scene() -> None:
        stage.add_node("n1", 10)
        pod, other = stage.add_pod("p", 6), stage.add_pod("q", 6)
        async with stage.extender() as (extender, scheduler):
            if is_bound:
                assert await scheduler.bind(pod, "n1") == ""
            else:
                extender.books.promise(stage.parsed("p"), "n1", 0.0)
        async with stage.extender() as (_, scheduler):
            assert bool(await scheduler.bind(other, "n1")) == is_bound
            assert bool(await scheduler.bind(pod, "n1")) != is_bound

    played(scene)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"uid": "another"}, "there is another pod of its name", id="another uid"),
        pytest.param({"name": "gone"}, 'pods "gone" not found', id="no such pod"),
        pytest.param({"name": "b"}, "its uid is that of jobs/a", id="the uid of another one"),
    ],
)
def test_a_question_about_a_pod_that_is_not_meant_is_refused(stage: Stage, change: dict[str, str], words: str) -> None:
    async def scene() -> None:
        stage.add_node("n1", 10)
        pod = stage.add_pod("a", 6)
        uid = change.get("uid", "uid-gone" if change.get("name") == "gone" else pod["metadata"]["uid"])
        asked = {"metadata": {**pod["metadata"], **change, "uid": uid}}
        async with stage.extender() as (extender, scheduler):
            await until(lambda: extender.books.pod("uid-a"))
            assert words in await scheduler.bind(asked, "n1")

    played(scene)


def test_nothing_is_judged_before_the_cluster_was_read_or_long_after(stage: Stage) -> None:
    async def scene() -> None:
        stage.add_node("n1", 10)
        pod = stage.add_pod("p", 6)
        async with stage.extender() as (extender, scheduler):
            stage.server.is_away = True

            def is_behind() -> bool:
                stage.server.cut()  # again and again: a watch may just have begun
                return all(follower.behind_s() for follower in extender._followers)

            await until(is_behind)
            for follower in extender._followers:
                follower.behind_since_s = -1e6
            assert "heard nothing" in (await scheduler.filter(pod, "n1"))["Error"]
            assert "heard nothing" in await scheduler.bind(pod, "n1")
            status, words = await scheduler.ask("GET", "/healthz")
            assert (status, b"heard nothing" in words) == (503, True)

    played(scene)


def test_an_api_server_that_forgets_or_goes_away_is_followed_again(stage: Stage) -> None:
    async def scene() -> None:
        stage.add_node("n1", 10)
        async with stage.extender() as (extender, _):
            stage.server.is_away = True
            stage.server.cut()
            stage.add_node("n2", 10)
            stage.store.delete("nodes", ("", "n1"))
            stage.store.forget()
            await asyncio.sleep(0.1)
            stage.server.is_away = False
            await until(lambda: extender.books.node("n2") and not extender.books.node("n1"))
            await until(lambda: not extender.problem())

    played(scene)


def test_the_other_paths(stage: Stage) -> None:
    async def scene() -> None:
        stage.add_node("n1", 10)
        async with stage.extender() as (_, scheduler):
            assert await scheduler.ask("GET", "/version") == (200, f"{__version__}\n".encode())
            assert await scheduler.ask("GET", "/healthz") == (200, b"ok\n")
            for path in ("/gpushare-scheduler/inspect", "/gpushare-scheduler/inspect/n1"):
                status, body = await scheduler.ask("GET", path)
                assert status == 200
                assert json.loads(body) == {
                    "nodes": [
                        {
                            "name": "n1",
                            "totalGPU": 10,
                            "usedGPU": 0,
                            "devs": [{"id": 0, "totalGPU": 10, "usedGPU": 0, "pods": []}],
                        }
                    ]
                }
            _, body = await scheduler.ask("GET", "/gpushare-scheduler/inspect/n2")
            assert json.loads(body) == {"nodes": [], "error": "the node n2 is not known"}

    played(scene)


def test_a_pod_that_wants_nothing_fits_everywhere(stage: Stage) -> None:
    async def scene() -> None:
        async with stage.extender() as (_, scheduler):
            answer = await scheduler.filter(pod_document("p", 0), "n1", "n2")
            assert answer["NodeNames"] == ["n1", "n2"]

    played(scene)
