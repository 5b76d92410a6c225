"""What a rollout asks of pods by objects that outlive a process, and when it takes that back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from provision.rollout.interface.cluster import Eviction, EvictionOutcome
from provision.rollout.model import Phase
from tests.provision.rollout.fakes import FakeCluster, FakeNode, pod, record
from tests.provision.rollout.process import Rollout, statuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.rollout.model import GpuPod

WAITS = Eviction(outcome=EvictionOutcome.BLOCKED, reason="its eviction is requested")


@dataclass
class RequestCluster(FakeCluster):
    """Keeps a request for each pod; ``respond`` is called whenever one is asked for again."""

    open: dict[str, str] = field(default_factory=dict)
    taken_back: list[str] = field(default_factory=list)
    respond: Callable[[GpuPod], None] = lambda _pod: None

    def evict(self, pod: GpuPod) -> Eviction:
        self.effect(f"evict {pod}")
        if pod.uid in self.open:
            self.respond(pod)
        self.open[pod.uid] = pod.name
        return WAITS

    def settle_evictions(self, is_wanted: Callable[[str], bool]) -> None:
        for uid in [uid for uid in self.open if not is_wanted(uid)]:
            self.taken_back.append(self.open.pop(uid))

    def end(self, one: GpuPod) -> None:
        """Have a pod begin to end, as a responder does."""
        for node in self.nodes.values():
            node.pods = [replace(each, is_terminating=True) if each.uid == one.uid else each for each in node.pods]


def test_a_request_is_asked_for_until_somebody_has_ended_the_pod() -> None:
    cluster = RequestCluster({"n1": FakeNode(pods=[pod("a"), pod("b")])})
    cluster.respond = cluster.end

    results = Rollout(cluster).run()

    assert statuses(results) == ["converged"]
    assert cluster.open == {}
    assert sorted(cluster.taken_back) == ["a", "b"]  # when the pods had gone: in a cluster, they went with them


def test_a_request_stays_while_its_pod_is_being_ended() -> None:
    cluster = RequestCluster({"n1": FakeNode(pods=[pod("a")])})
    seen: list[tuple[bool, bool]] = []

    def look() -> None:
        there = [each for each in cluster.nodes["n1"].pods if each.is_terminating]
        seen.append((bool(there), "uid-a" in cluster.open))

    cluster.respond, cluster.on_observe = cluster.end, look
    Rollout(cluster).run()

    assert (True, True) in seen
    assert (True, False) not in seen


def test_requests_are_taken_back_when_the_drain_has_taken_too_long() -> None:
    cluster = RequestCluster({"n1": FakeNode(pods=[pod("a")])})

    results = Rollout(cluster).run()

    assert statuses(results) == ["failed"]
    failure = results["n1"].failure
    assert failure is not None
    assert failure.message == "after 5 minutes: pod shop/a (its eviction is requested) still on the node"
    assert (cluster.open, cluster.taken_back) == ({}, ["a"])


def test_requests_of_a_process_that_was_killed_go_on_or_are_taken_back() -> None:
    cluster = RequestCluster(
        {"n1": FakeNode(pods=[pod("a")], record=record(Phase.DRAIN), is_cordoned=True), "n2": FakeNode(pods=[pod("b")])}
    )
    cluster.open = {"uid-a": "a", "uid-b": "b"}  # somebody has abandoned n2 meanwhile
    taken_back_first: list[str] = []

    def end(one: GpuPod) -> None:
        taken_back_first.extend(cluster.taken_back)
        cluster.end(one)

    cluster.respond = end

    Rollout(cluster).run()

    assert taken_back_first[0] == "b"
    assert "a" not in taken_back_first[:1]
