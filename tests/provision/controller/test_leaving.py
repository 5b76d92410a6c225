"""What a stack that was deleted waits for, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.controller.decision.attempts import Attempts
from provision.controller.decision.choice import Order, choose
from provision.controller.decision.leaving import PATIENCE_S, leave
from provision.controller.rounds.keeper import is_needed
from provision.controller.stacks.model import Unreadable, WhenDeleted
from provision.rollout.model import Phase
from tests.provision.controller.samples import FINGERPRINT, record, seen
from tests.provision.stacks.samples import stack

if TYPE_CHECKING:
    from provision.controller.nodes import SeenNode

REMOVE = {"when_deleted": WhenDeleted.REMOVE, "is_going": True}
KEEP = {"is_going": True}


def order(
    *nodes: SeenNode, going: dict[str, object], removed: set[str] | None = None, age_s: float = 0.0, **more: Attempts
) -> Order:
    attempts = more.get("attempts", Attempts())
    found = choose(stack(**going), FINGERPRINT, {node.name: node for node in nodes}, attempts, 0.0)
    return leave(found, removed or set(), attempts, 0.0, age_s)


def test_a_stack_that_is_kept_waits_for_what_is_out_of_service_and_for_nothing_else() -> None:
    found = order(seen("a"), seen("b", record=record(Phase.SWAP)), seen("c", record=record(Phase.FAILED)), going=KEEP)
    assert (found.left, found.due, found.joining) == ({"b"}, {"b"}, frozenset())


def test_a_stack_that_is_removed_waits_for_every_node_of_it() -> None:
    found = order(seen("a"), seen("b", is_joining=True), seen("c"), going=REMOVE, removed={"uid-c"})
    assert (found.left, found.due, found.joining) == ({"a", "b"}, {"a", "b"}, frozenset())


@pytest.mark.parametrize(
    ("node", "age_s", "is_left"),
    [
        (seen(is_skipped=True), 0.0, False),
        (seen(is_silent=True), 0.0, True),
        (seen(is_silent=True), PATIENCE_S + 1, False),
        (seen(is_silent=True, record=record(Phase.SWAP)), PATIENCE_S + 1, True),
        (seen(is_ready=False), PATIENCE_S + 1, True),
    ],
)
def test_a_node_that_does_not_answer_is_not_waited_for_for_ever(node: SeenNode, age_s: float, *, is_left: bool) -> None:
    assert (order(node, going=REMOVE, age_s=age_s).left == {"n1"}) is is_left


def test_a_removal_that_fails_is_not_tried_again_at_once_because_it_has_rebooted_the_node() -> None:
    attempts = Attempts()
    first = order(seen(), going=REMOVE, attempts=attempts)
    attempts.failed("n1", first.targets["n1"].key, "no", 0.0)
    assert not order(seen(boot="another"), going=REMOVE, attempts=attempts).due
    assert order(seen(is_ready=False), going=REMOVE, attempts=attempts).due == {"n1"}


def test_a_stack_is_kept_only_while_it_is_needed() -> None:
    idle, busy = {"is_idle": True}, {"is_idle": False}
    quiet, out = order(seen(), going={}), order(seen(record=record(Phase.SWAP)), going={})
    assert not is_needed(quiet.stack, quiet, **idle)
    assert is_needed(out.stack, out, **idle)
    removing = order(seen(), going=REMOVE)
    assert is_needed(removing.stack, removing, **idle)
    done = order(seen(), going=REMOVE, removed={"uid-n1"})
    assert not is_needed(done.stack, done, **idle)
    assert is_needed(done.stack, done, **busy), "what runs comes to its end"
    broken = Unreadable(name="pool", uid="u", generation=1, reasons=("no",), is_going=True)
    assert is_needed(broken, None, **busy)
    assert not is_needed(broken, None, **idle), "it is not kept for a slip in it"
