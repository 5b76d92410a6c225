"""A cluster that is watched, over real HTTP: what is seen, when, and for how many requests."""

from __future__ import annotations

import contextlib
import itertools
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.apiserver import Store, serving
from lab.apiserver.fleet import make_fleet, node, pod
from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.api.transport import Transport
from provision.cluster.kubernetes.cluster import KubernetesCluster
from provision.cluster.kubernetes.pods.pod_rules import PodRules
from provision.cluster.kubernetes.watch.informer import FEW
from provision.rollout.errors import ConflictError, UnreachableError
from provision.rollout.interface.cluster import EvictionOutcome, NodeProblem, NodeWrite
from provision.rollout.model import NodeView, Phase
from tests.provision.cluster.samples import RECORD
from tests.provision.cluster.stage import wait_until
from tests.provision.cluster.test_transport import kubeconfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.apiserver import Server

SIZES = pytest.mark.parametrize("size", [FEW, FEW + 1], ids=["each node by itself", "all nodes together"])


class Watched:
    """A cluster of some nodes with a pod each, that a test watches."""

    def __init__(self, server: Server, size: int) -> None:
        self.server, self.store = server, server.store
        self.names = make_fleet(self.store, size)
        self.cluster = KubernetesCluster(
            Api(Transport(kubeconfig(server.url))), rules=PodRules(resources=frozenset({"nvidia.com/gpu"})), machines={}
        )
        self.cluster.observe(self.names)
        self.woken = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        with self.cluster.watching(self.names, self.woken.set):
            self.look()
            size = len(self.names)
            self.wait(lambda: len(self.server.watches) == 2 * (size if size <= FEW else 1), "the watches")
            self.server.requests.clear()
            self.woken.clear()
            yield

    def look(self) -> dict[str, NodeView | NodeProblem]:
        return self.cluster.observe(self.names)

    def view(self, index: int = 0) -> NodeView:
        seen = self.look()[self.names[index]]
        assert isinstance(seen, NodeView)
        return seen

    def drain(self, index: int = 0) -> None:
        self.cluster.write(self.names[index], RECORD, cordoned=True)

    def wait(self, is_true: object, what: str) -> None:
        assert callable(is_true)
        wait_until(is_true, what, 20)


@pytest.fixture
def served() -> Iterator[Server]:
    with serving(Store()) as server:
        yield server


@SIZES
def test_what_changes_wakes_and_is_seen_without_a_request(served: Server, size: int) -> None:
    watched = Watched(served, size)
    with watched.watching():
        first = watched.look()
        served.store.change("nodes", ("", "gpu00000"), lambda each: each["spec"].update(unschedulable=True))
        assert watched.woken.wait(20)
        assert watched.view().is_cordoned
        for _look in range(50):
            second = watched.look()
        assert [second[name] is first[name] for name in watched.names] == [False] + [True] * (size - 1)
        assert not served.requests, "however often it looks"


@SIZES
def test_lists_are_asked_for_once_and_then_watched(served: Server, size: int) -> None:
    watched = Watched(served, size)
    served.requests.clear()
    with watched.watching():
        pass
    each = size if size <= FEW else 1
    served.requests.clear()
    with watched.cluster.watching(watched.names, watched.woken.set):
        watched.look()
        watched.wait(lambda: served.requests["watch nodes"] + served.requests["watch pods"] == 2 * each, "the watches")
    assert served.requests == {"list nodes": each, "list pods": each, "watch nodes": each, "watch pods": each}


def test_a_heartbeat_changes_nothing_and_the_next_write_knows_its_version(served: Server) -> None:
    watched = Watched(served, 5)
    with watched.watching():
        before = watched.look()
        beat = served.store.change("nodes", ("", "gpu00000"), lambda each: each["status"].update(images=[]))
        served.store.change("nodes", ("", "gpu00001"), lambda each: each["spec"].update(unschedulable=True))
        watched.wait(lambda: watched.view(1).is_cordoned, "what came after it")
        assert watched.look()["gpu00000"] is before["gpu00000"]
        watched.drain()
        assert served.requests == {"patch nodes": 1}
        stored = served.store.get("nodes", ("", "gpu00000"))
        assert stored is not None
        assert stored.version > beat.version


@SIZES
def test_a_pod_whose_claims_cannot_be_read_has_to_leave_and_is_named_at_its_node(served: Server, size: int) -> None:
    watched = Watched(served, size)
    claiming = pod("claiming", watched.names[0], gpus=0)
    claiming["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]
    served.store.put("pods", claiming)

    with watched.watching():
        assert [each.name for each in watched.view().gpu_pods] == ["claiming", f"{watched.names[0]}-0"]
        (remark,) = watched.view().remarks
        assert remark.endswith(": jobs/claiming")
        assert not watched.view(1).remarks


@SIZES
def test_a_drained_node_is_read_once_in_each_phase_before_it_counts_as_empty(served: Server, size: int) -> None:
    watched = Watched(served, size)
    with watched.watching():
        watched.drain()
        assert len(watched.view().gpu_pods) == 1
        answers = watched.cluster.evict_all(watched.view().gpu_pods)
        assert [each.outcome for each in answers.values()] == [EvictionOutcome.EVICTED]
        watched.wait(lambda: not watched.view().gpu_pods, "the pod is seen to have gone")
        for _look in range(20):
            watched.look()
        assert served.requests["list pods"] == 1
        watched.cluster.write(watched.names[0], replace(RECORD, phase=Phase.RELEASE), cordoned=True)
        for _look in range(20):
            watched.look()
        assert served.requests["list pods"] == 2


@SIZES
@pytest.mark.parametrize("fault", ["the event is lost", "the watch is silent"])
def test_a_pod_that_no_watch_told_of_is_seen_before_the_node_is_released(served: Server, size: int, fault: str) -> None:
    watched = Watched(served, size)
    with watched.watching():
        served.store.delete("pods", ("jobs", "gpu00000-0"))
        watched.wait(lambda: not watched.view().gpu_pods, "the pod is seen to have gone")
        served.is_silent = fault == "the watch is silent"
        served.loses = lambda event: event.after is not None and event.after.key[1] == "late"
        served.store.put("pods", pod("late", "gpu00000"))
        if not served.is_silent:  # what came after it is told
            served.store.put("pods", pod("other", "gpu00001"))
            watched.wait(lambda: len(watched.view(1).gpu_pods) == 2, "the other pod is seen")
        assert not watched.view().gpu_pods, "nobody has told"
        watched.drain()
        assert [each.name for each in watched.view().gpu_pods] == ["late"]


def test_a_node_that_somebody_uncordons_is_read_each_time(served: Server) -> None:
    watched = Watched(served, 5)
    with watched.watching():
        served.store.delete("pods", ("jobs", "gpu00000-0"))
        watched.drain()
        watched.wait(lambda: not watched.view().gpu_pods, "the node is empty")
        served.store.change("nodes", ("", "gpu00000"), lambda each: each["spec"].update(unschedulable=False))
        watched.wait(lambda: not watched.view().is_cordoned, "the cordon is gone")
        asked = served.requests["list pods"]
        watched.look()
        served.is_silent = True
        served.store.put("pods", pod("late", "gpu00000"))
        assert [each.name for each in watched.view().gpu_pods] == ["late"]
        assert served.requests["list pods"] == asked + 2


@SIZES
def test_a_forgotten_version_costs_one_list_and_loses_nothing(served: Server, size: int) -> None:
    watched = Watched(served, size)
    with watched.watching():
        served.is_silent = True
        served.store.put("pods", pod("new", "gpu00000"))
        served.store.delete("pods", ("jobs", "gpu00001-0"))
        served.store.delete("nodes", ("", "gpu00002"))
        served.store.forget()
        served.is_silent = False
        served.cut()
        watched.wait(lambda: isinstance(watched.look()["gpu00002"], NodeProblem), "the node is seen to be gone")
        watched.wait(lambda: len(watched.view(0).gpu_pods) == 2, "the new pod is seen")
        watched.wait(lambda: not watched.view(1).gpu_pods, "the other pod is seen to be gone")
        each = size if size <= FEW else 1
        lists = ("list nodes", "list pods")
        watched.wait(lambda: all(served.requests[what] >= each for what in lists), "the lists")
        assert [served.requests[what] for what in lists] == [each, each]


@SIZES
def test_a_node_that_left_and_came_back_is_another_one(served: Server, size: int) -> None:
    watched = Watched(served, size)
    with watched.watching():
        watched.drain()
        served.store.delete("nodes", ("", "gpu00000"))
        watched.wait(lambda: isinstance(watched.look()["gpu00000"], NodeProblem), "the node is seen to be gone")
        served.store.put("nodes", node("gpu00000"))
        watched.wait(lambda: isinstance(watched.look()["gpu00000"], NodeView), "it is back")
        assert watched.view().record is None
        watched.drain()
        assert watched.view().record == RECORD


def test_what_was_written_is_not_undone_by_a_late_event(served: Server) -> None:
    watched = Watched(served, 5)
    with watched.watching():
        served.is_silent = True
        served.store.change("nodes", ("", "gpu00000"), lambda each: each["spec"].update(unschedulable=True))
        watched.cluster.write(watched.names[0], RECORD)
        assert watched.view().record == RECORD
        served.store.change("nodes", ("", "gpu00001"), lambda each: each["spec"].update(unschedulable=True))
        served.is_silent = False
        served.cut()
        watched.wait(lambda: watched.view(1).is_cordoned, "what came later is seen")
        assert watched.view().record == RECORD


def test_a_conflict_is_one_nodes_and_its_node_is_seen_as_it_is_then(served: Server) -> None:
    watched = Watched(served, 5)
    with watched.watching():
        served.is_silent = True
        served.store.change("nodes", ("", "gpu00001"), lambda each: each["spec"].update(unschedulable=True))
        failed = watched.cluster.write_all([NodeWrite(name, RECORD, cordoned=True) for name in watched.names])
        assert list(failed) == ["gpu00001"]
        assert isinstance(failed["gpu00001"], ConflictError)
        assert watched.view(1).is_cordoned, "without waiting for the watch"
        assert watched.view(0).record == RECORD


def test_threads_and_connections_end_with_it_and_with_its_errors(served: Server) -> None:
    watched = Watched(served, 5)
    with contextlib.suppress(ZeroDivisionError), watched.watching():
        watched.wait(lambda: len(served.watches) == 2, "it watches")
        raise ZeroDivisionError
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("watch ")]
    served.store.put("pods", pod("any", "gpu00000"))  # who tells it notices that nobody listens
    served.store.put("nodes", node("any"))
    watched.wait(lambda: (served.cut(), not served.watches)[1], "the connections are closed")
    assert len(watched.view().gpu_pods) == 2, "after it, every look asks"


def test_watching_that_cannot_begin_says_why_and_leaves_nothing(served: Server) -> None:
    watched = Watched(served, 5)
    served.is_away = True
    watched.cluster._api._clock = itertools.count(0, 1000).__next__  # no patience
    with pytest.raises(UnreachableError), watched.watching():
        pytest.fail("it began")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("watch ")]


def test_many_nodes_are_written_and_emptied_with_one_request_each(served: Server) -> None:
    watched = Watched(served, 40)
    with watched.watching():
        assert not watched.cluster.write_all([NodeWrite(name, RECORD, cordoned=True) for name in watched.names])
        pods = [one for each in watched.look().values() if isinstance(each, NodeView) for one in each.gpu_pods]
        watched.cluster.evict_all(pods)
        watched.wait(
            lambda: not any(isinstance(each, NodeProblem) or each.gpu_pods for each in watched.look().values()), "empty"
        )
        assert served.requests == {"patch nodes": 40, "evict pods": 40, "list pods": 40}
