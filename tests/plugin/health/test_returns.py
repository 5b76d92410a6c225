"""A GPU that comes and goes: how often quiet alone may bring it back."""

from __future__ import annotations

import pytest

from plugin.devices.health.model import Verdict
from tests.plugin.health.looks import GONE, IDLE, A, Node, was_reset

UNHEALTHY = Verdict(is_healthy=False, reason="smells of smoke", since="2026-09-01T10:00:00Z")
HEALTHY = Verdict(is_healthy=True, reason="cable was loose", since="2026-09-01T10:00:00Z")


def come_and_go(node: Node, times: int) -> None:
    for _ in range(times):
        node.look(a=GONE)
        node.look(after_s=301)
        assert node.why(A) == ""


def test_a_gpu_that_quiet_brought_back_three_times_in_a_day_needs_more_than_quiet() -> None:
    node = Node()
    come_and_go(node, 3)
    node.look(74)
    assert node.why(A) == ("xid 74: nvlink error; quiet has brought it back 3 times in a day; needs a reset of the GPU")
    node.look(after_s=100_000)
    assert node.why(A)
    node.look(a=was_reset())
    assert node.why(A) == ""
    node.look(a=was_reset(), after_s=5)
    node.look(74, a=was_reset())
    assert node.why(A).endswith("needs a quiet time, and nobody using it")


@pytest.mark.parametrize("forgets", ["a boot", "a verdict", "a day"])
def test_what_quiet_did_is_forgotten_after(forgets: str) -> None:
    node = Node()
    come_and_go(node, 3)
    if forgets == "a boot":
        node.boot()
    elif forgets == "a verdict":
        node.verdicts[A] = HEALTHY
        node.look()
        node.verdicts.clear()
    node.look(after_s=90_000 if forgets == "a day" else 5)
    node.look(74)
    assert node.why(A).endswith("needs a quiet time, and nobody using it")


def test_a_gpu_that_comes_back_by_resets_is_not_counted() -> None:
    node = Node()
    energy = 10**9
    for _ in range(5):
        node.look(74)
        energy -= 1
        node.look(a=IDLE._replace(counters=IDLE.counters._replace(energy_mj=energy)))
        assert node.why(A) == ""
    assert node.gpus[A].returns == ()


@pytest.mark.slow
def test_a_driver_that_tells_another_number_each_time_fills_nothing_and_hides_nothing() -> None:
    node = Node()
    node.look(79)
    for number in range(1000, 2000):
        node.look(number)
    assert len(node.gpus[A].findings) <= 64
    assert node.why(A).startswith("xid 79")
