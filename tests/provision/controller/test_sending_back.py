"""Which nodes of a stack go back to their former driver, and that what else they are due for waits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from provision.controller.decision.attempts import Attempts
from provision.controller.decision.choice import Order, choose, with_way_back
from provision.controller.decision.fingerprint import of_node, of_try
from provision.rollout.model import Phase
from tests.provision.controller.samples import FINGERPRINT, record, seen
from tests.provision.rollout.fakes import MINUTE
from tests.provision.stacks.samples import stack

if TYPE_CHECKING:
    from provision.controller.nodes import SeenNode

ASKED = record(Phase.DONE, back_for="ada@laptop")


def order(*nodes: SeenNode, attempts: Attempts | None = None, now_s: float = 0.0) -> Order:
    found = choose(stack(), FINGERPRINT, {each.name: each for each in nodes}, attempts or Attempts(), now_s)
    return with_way_back(found, attempts or Attempts(), now_s)


def as_declared(name: str, **more: object) -> SeenNode:
    node = seen(name, **more)
    return replace(node, as_declared=of_node(FINGERPRINT, node))


def test_a_node_that_is_as_declared_is_due_when_somebody_asks() -> None:
    found = order(as_declared("n1", record=ASKED), as_declared("n2"), seen("n3"))

    assert found.back == {"n1"}
    assert found.due == {"n1", "n3"}
    assert found.only(found.back).due == {"n1"}


def test_one_that_a_rollout_left_failed_is_due_as_well_and_no_more_barred() -> None:
    node = seen("n1", record=record(Phase.FAILED, back_for="ada@laptop"))

    found = order(replace(node, failed=of_try(FINGERPRINT, node)))

    assert found.back == {"n1"}
    assert found.barred == set()


def test_a_try_of_the_declaration_is_none_of_the_way_back() -> None:
    node, attempts = seen("n1", record=ASKED), Attempts()
    plain = choose(stack(), FINGERPRINT, {"n1": node}, attempts, 0.0)
    attempts.failed("n1", plain.targets["n1"].key, "no route to host", 0.0)

    found = order(node, attempts=attempts)
    assert found.back == {"n1"}
    attempts.failed("n1", found.targets["n1"].key, "no route to host", 0.0)

    assert order(node, attempts=attempts, now_s=1.0).due == set(), "it is tried again after a while"
    assert order(node, attempts=attempts, now_s=3600.0).back == {"n1"}
    again = replace(node, record=replace(ASKED, since=ASKED.since + MINUTE))
    assert order(again, attempts=attempts, now_s=1.0).back == {"n1"}, "it was asked once more"


def test_a_node_whose_kubelet_is_silent_is_waited_for() -> None:
    assert order(seen("n1", record=ASKED, is_silent=True)).due == set()
