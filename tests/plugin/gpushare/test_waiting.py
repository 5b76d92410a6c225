"""Who is woken, and when: pods that were refused, have room since, and were not asked about again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.gpushare.waiting import PATIENCE_S, Waiting
from tests.plugin.gpushare.documents import make_pod

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.gpushare.books.model import Pod

NODES = ("n1", "n2")


def wait(waiting: Waiting, name: str, *, nodes: Iterable[str] = NODES, priority: int = 0, at_s: float = 0.0) -> None:
    waiting.refused(make_pod(name, 4), nodes, priority, at_s)


def woken(waiting: Waiting, now_s: float, *rooms: str) -> list[str]:
    """Return whom to wake where these nodes have room for everybody."""

    def fits(_pod: Pod, node: str) -> bool:
        return node in rooms

    return [pod.name for pod in waiting.to_wake(fits, now_s)]


@pytest.fixture
def waiting() -> Waiting:
    made = Waiting()
    wait(made, "a")
    made.changed(["n1"], 10.0)
    return made


def test_a_scheduler_that_has_heard_the_same_asks_by_itself(waiting: Waiting) -> None:
    assert woken(waiting, 10.0, "n1") == []
    assert woken(waiting, 10.0 + PATIENCE_S, "n1") == ["a"]


def test_nobody_is_woken_twice_for_one_refusal(waiting: Waiting) -> None:
    assert woken(waiting, 20.0, "n1") == ["a"]
    waiting.changed(["n1"], 30.0)
    assert woken(waiting, 40.0, "n1") == []
    wait(waiting, "a", at_s=41.0)
    waiting.changed(["n1"], 41.0)
    assert woken(waiting, 50.0, "n1") == ["a"]


def test_whoever_was_just_refused_has_the_same_time(waiting: Waiting) -> None:
    wait(waiting, "a", at_s=19.5)
    assert woken(waiting, 20.0, "n1") == []
    assert woken(waiting, 20.5, "n1") == ["a"]


def test_without_a_change_nobody_is_looked_at() -> None:
    made = Waiting()
    wait(made, "a")
    assert woken(made, 20.0, "n1") == []


def test_a_change_that_makes_no_room_is_forgotten(waiting: Waiting) -> None:
    assert woken(waiting, 20.0) == []
    assert woken(waiting, 21.0, "n1") == []


def test_a_node_that_the_scheduler_would_not_take_is_none_for_it() -> None:
    made = Waiting()
    wait(made, "a", nodes=["n2"])
    made.changed(NODES, 10.0)
    assert woken(made, 20.0, "n1") == []
    made.changed(NODES, 21.0)
    assert woken(made, 30.0, "n1", "n2") == ["a"]


def test_each_node_wakes_one_at_a_time_by_priority_and_then_by_age() -> None:
    made = Waiting()
    wait(made, "young", at_s=3.0)
    wait(made, "old", at_s=2.0)
    wait(made, "urgent", priority=1000, at_s=4.0)
    made.changed(["n1"], 5.0)
    assert [woken(made, 20.0 + turn, "n1") for turn in range(4)] == [["urgent"], ["old"], ["young"], []]
    wait(made, "a")
    wait(made, "b")
    made.changed(NODES, 30.0)
    assert woken(made, 40.0, "n1", "n2") == ["a", "b"]


def test_whoever_was_placed_or_is_gone_is_not_woken(waiting: Waiting) -> None:
    waiting.forget("uid-a")
    waiting.forget("uid-of-nobody")
    assert woken(waiting, 20.0, "n1") == []


def test_of_many_the_last_ones_are_known_and_some_are_woken_at_a_time() -> None:
    made = Waiting()
    nodes = [f"n{number}" for number in range(100)]
    for number in range(300):
        wait(made, f"p{number}", nodes=nodes)
    made.changed(nodes, 1.0)
    found: list[str] = []
    for turn in range(30):
        now = woken(made, 10.0 + turn, *nodes)
        assert len(now) <= 16
        found += now
    assert sorted(found) == sorted(f"p{number}" for number in range(44, 300))
