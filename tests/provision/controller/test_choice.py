"""Which nodes a round is about, and when a node is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.controller.decision.attempts import FIRST_S, LONGEST_S, Attempts, key_of
from provision.controller.decision.choice import ASKED_LATER, NOT_HEARD, Order, choose
from provision.controller.decision.fingerprint import of_node, of_stack, of_try
from provision.rollout.model import ChangeKind, Phase
from tests.provision.controller.fleet import PAYLOAD
from tests.provision.controller.samples import FINGERPRINT, record, seen
from tests.provision.samples import make_stack
from tests.provision.stacks.samples import stack

if TYPE_CHECKING:
    from collections.abc import Collection

    from provision.controller.nodes import SeenNode

VERSION = stack().spec.driver.version or ""


def order(
    *nodes: SeenNode, attempts: Attempts | None = None, now_s: float = 0.0, marking: Collection[str] = ()
) -> Order:
    members = {node.name: node for node in nodes}
    return choose(stack(), FINGERPRINT, members, attempts or Attempts(), now_s, marking=marking)


def as_declared(name: str = "n1", **more: object) -> SeenNode:
    return seen(name, as_declared=of_node(FINGERPRINT, seen(name)), **more)


@pytest.mark.parametrize(
    ("node", "is_due"),
    [
        (seen(), True),
        (as_declared(), False),
        (as_declared(kernel="6.13"), True),
        (as_declared(boot="another"), True),
        (as_declared(uid="made-again"), True),
        (as_declared(is_joining=True), True),
        (as_declared(is_drifted=True), True),
        (as_declared(record=record(Phase.SWAP)), True),
        (as_declared(record=record(Phase.DONE, target=VERSION)), False),
        (as_declared(record=record(Phase.DONE, target="1.2.3")), True),
        (as_declared(record=record(Phase.DONE, target="1.2.3", kind=ChangeKind.REBOOT)), False),
        (as_declared(record=record(Phase.FAILED, target="1.2.3")), True),
        (as_declared(driver=VERSION), False),
        (as_declared(driver="1.2.3"), True),
        (as_declared(record=record(Phase.FAILED, retry=True)), True),
    ],
)
def test_a_node_is_due_where_it_is_not_what_it_was_brought_to(node: SeenNode, *, is_due: bool) -> None:
    assert ("n1" in order(node).due) is is_due


def test_a_node_that_a_rollout_left_failed_with_this_declaration_waits_for_somebody() -> None:
    bar = of_try(FINGERPRINT, seen())
    left = seen(failed=bar, record=record(Phase.FAILED))
    assert order(left).barred == {"n1"}
    assert not order(left).due
    assert order(seen(failed="another", record=record(Phase.FAILED))).due == {"n1"}
    assert order(seen(failed=bar, record=record(Phase.FAILED, retry=True))).due == {"n1"}
    assert order(seen(failed=bar)).due == {"n1"}, "its record was taken away"


def test_a_failed_node_that_its_upgrade_has_rebooted_is_not_tried_again_for_that() -> None:
    """It was: each try rebooted it, and drained it again."""
    bar = of_try(FINGERPRINT, seen())
    assert order(seen(failed=bar, record=record(Phase.FAILED), boot="another", kernel="6.13")).barred == {"n1"}
    assert not order(seen(failed=bar, uid="made-again", record=record(Phase.FAILED))).barred


def test_a_node_that_was_left_failed_by_who_was_killed_before_that_was_written_waits_for_somebody() -> None:
    """It was drained and tried again by the next leader."""
    target = stack().spec.driver.version
    assert order(seen(record=record(Phase.FAILED, target=target))).barred == {"n1"}
    assert order(seen(record=record(Phase.FAILED, target="1.2.3"))).due == {"n1"}, "another driver is declared by now"


def test_that_a_node_was_as_declared_says_nothing_once_its_upgrade_is_under_way() -> None:
    """A terminal that was killed, or a declaration that was taken back, had left it cordoned for half an hour."""
    attempts = as_declared_then()
    assert not order(seen(), attempts=attempts, marking=["n1"]).due, "it claims so soon"
    assert order(seen(record=record(Phase.DRAIN)), attempts=attempts).due == {"n1"}
    attempts.begun(["n1"])
    assert order(seen(), attempts=attempts, marking=["n1"]).due == {"n1"}, (
        "its claim was withdrawn for something that was not brought about"
    )


def test_that_a_node_was_as_declared_says_nothing_once_it_does_not_claim_so() -> None:
    """A terminal had changed it within a minute: it had another driver for half an hour."""
    attempts = as_declared_then()
    assert not order(as_declared(is_drifted=True), attempts=attempts).due, "it was looked at after it said that"
    assert order(seen(), attempts=attempts).due == {"n1"}
    done = record(Phase.DONE, target="1.2.3")
    assert order(seen(record=done), attempts=attempts).due == {"n1"}


def as_declared_then() -> Attempts:
    attempts = Attempts()
    attempts.succeeded("n1", key_of(seen(), of_node(FINGERPRINT, seen())), 0.0)
    return attempts


def test_what_a_round_does_not_ask_is_not_taken_for_as_declared() -> None:
    """Another node of its domain was upgraded without it."""
    bar, attempts = of_try(FINGERPRINT, seen("n4")), Attempts()
    tried, failed = seen("n3"), seen("n4", failed=bar, record=record(Phase.FAILED))
    attempts.failed("n3", key_of(tried, of_node(FINGERPRINT, tried)), "it cannot be reached", 0.0)
    found = order(seen("n1"), as_declared("n5"), seen("n2", is_silent=True), tried, failed, attempts=attempts)
    assert found.due == {"n1"}
    assert found.left_out == {"n2": NOT_HEARD, "n3": ASKED_LATER, "n4": ASKED_LATER}


def test_nothing_is_tried_on_a_node_whose_kubelet_is_silent() -> None:
    assert not order(seen(is_silent=True)).due
    assert order(seen(is_silent=True, record=record(Phase.SWAP))).due == {"n1"}, "a rollout has its own patience"


def test_what_has_not_changed_since_the_order_before_is_taken_from_it() -> None:
    one, other = as_declared("n1"), as_declared("n2")
    first = order(one, other)
    moved = seen("n2", as_declared=one.as_declared, kernel="6.13")
    second = choose(stack(), FINGERPRINT, {"n1": one, "n2": moved}, Attempts(), 0.0, former=first)
    assert second.targets["n1"] is first.targets["n1"]
    assert (second.due, second.targets) == ({"n2"}, order(one, moved).targets)
    another = choose(stack(), b"another", {"n1": one, "n2": moved}, Attempts(), 0.0, former=second)
    assert another.due == {"n1", "n2"}
    assert choose(stack(), b"another", {"n3": seen("n3")}, Attempts(), 0.0, former=another).targets.keys() == {"n3"}


def test_only_a_node_that_nobody_has_used_joins() -> None:
    assert order(seen(is_joining=True)).joining == {"n1"}
    assert not order(seen(is_joining=True, record=record(Phase.DONE))).joining
    assert not order(seen()).joining


def test_tries_that_fail_become_rarer_until_something_changes() -> None:
    attempts, node = Attempts(), seen()
    key, now, pauses = key_of(node, "f"), 0.0, []
    for _number in range(8):
        attempts.failed("n1", key, "not reached", now)
        due = attempts.next_s()
        assert due is not None
        assert not attempts.is_due("n1", key, due - 1)
        assert attempts.is_due("n1", key, due)
        pauses.append(due - now)
        now = due
    assert pauses[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert pauses[-1] == LONGEST_S
    assert attempts.reason("n1", key) == "not reached"
    assert attempts.is_due("n1", key_of(seen(is_ready=False), "f"), now)
    assert attempts.is_due("n1", key_of(node, "g"), now)
    attempts.forget_others([])
    assert attempts.next_s() is None


def test_fingerprints_differ_where_nodes_have_to_change_and_nowhere_else() -> None:
    plain = of_stack(make_stack(), PAYLOAD)
    assert of_stack(make_stack(rollout={"maxParallel": 9}), PAYLOAD) == plain
    assert of_stack(make_stack(driver={"version": "535.261.03"}), PAYLOAD) != plain
    assert of_stack(make_stack(plugin={"enabled": False}), PAYLOAD) != plain
    other = type(PAYLOAD)(hook=PAYLOAD.hook, driver=PAYLOAD.driver, node=PAYLOAD.node, unit="[Service]")
    assert of_stack(make_stack(), other) != plain
    assert of_node(plain, seen()) == of_node(plain, seen(is_ready=False, version=9))
