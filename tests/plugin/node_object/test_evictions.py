"""Evictions through the API: each pod once, in turns, and none that nobody asks for any more."""

from __future__ import annotations

import pytest

from plugin.publication.node_object.conditions import conditions_of
from plugin.publication.node_object.model import Eviction
from tests.plugin.node_object.simulation import Simulation
from tests.plugin.node_object.states import observed

A, B = Eviction("team", "a", "uid-a", "uses too much"), Eviction("team", "b", "uid-b", "uses too much")


def ask(node: Simulation, *pods: Eviction, for_s: float = 10.0) -> Simulation:
    """Ask as the keeper does: every ten seconds."""
    end_s = node.now_s + for_s
    while node.now_s < end_s:
        node.session.evict(pods)
        node.settle(10)
    return node


def test_a_pod_is_evicted_once_however_often_it_is_asked_for() -> None:
    node = ask(Simulation(), A, for_s=3600)
    assert node.evicted == ["uid-a"]
    assert node.count("create pods/eviction") == 1
    assert [event["reason"] for event in node.events.values()] == ["GPUMemoryPodEvicted"]
    assert node.logger.lines("pod evicted")


def test_another_pod_of_the_same_name_is_another_one() -> None:
    node = ask(Simulation(), A)
    ask(node, A._replace(uid="uid-2"))
    assert node.evicted == ["uid-a", "uid-2"]


def test_a_budget_that_forbids_one_lets_the_next_one_go() -> None:
    node = Simulation()
    node.protected = {"uid-a"}
    ask(node, A, B, for_s=120)
    assert node.evicted == ["uid-b"]
    assert node.logger.lines("team/a: ")
    node.protected = set()
    ask(node, A, for_s=600)
    assert node.evicted == ["uid-b", "uid-a"]


@pytest.mark.parametrize("status", [403, 409, 422, 429, 500])
def test_a_refusal_keeps_nothing_else_from_being_said(status: int) -> None:
    node = Simulation()
    node.refusing_evictions = status
    node.session.show(conditions_of(observed("", ""), ""))
    ask(node, A, for_s=7200)
    assert node.count("patch nodes/status") > 5
    assert node.count("create pods/eviction") < 60
    assert node.evicted == []


def test_one_that_is_gone_is_not_asked_for_again() -> None:
    node = Simulation()
    node.refusing_evictions = 404
    ask(node, A, for_s=3600)
    assert node.count("create pods/eviction") == 1
    assert not node.events


def test_an_outage_outlives_the_evidence() -> None:
    node = Simulation()
    node.failing = 0
    ask(node, A, for_s=60)
    node.failing = None
    node.session.evict(())
    node.settle(3600)
    assert node.evicted == []


def test_what_nobody_says_any_more_is_not_so_any_more() -> None:
    node = Simulation()
    node.failing = 0
    ask(node, A, for_s=60)
    node.failing = None
    node.now_s += 31
    node.settle(3600)
    assert node.evicted == []


def test_an_answer_that_is_lost_is_asked_for_again_while_it_is_still_so() -> None:
    node = ask(Simulation(), B)
    node.is_lost = True
    ask(node, A, for_s=60)
    assert node.evicted == ["uid-b", "uid-a", "uid-a"]
    assert node.count("create pods/eviction") == 3
