"""How nodes stand, and what several rollouts say together."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from provision.controller.decision.attempts import Attempts, key_of
from provision.controller.decision.blockers import blockers_of
from provision.controller.decision.choice import choose
from provision.controller.decision.fingerprint import of_node, of_try
from provision.controller.decision.standings import DRIFTED, NEXT, SILENT, stands
from provision.controller.publication.board import Board, combine
from provision.controller.stacks.derive import NodeIs, Stands
from provision.rollout.interface.standing import Members, Standing
from provision.rollout.model import Phase
from tests.provision.controller.samples import FINGERPRINT, record, seen
from tests.provision.rollout.fakes import MINUTE, NOON
from tests.provision.stacks.samples import stack

if TYPE_CHECKING:
    from provision.controller.nodes import SeenNode

WANTED, BAR = of_node(FINGERPRINT, seen()), of_try(FINGERPRINT, seen())


def standing(**more: object) -> Standing:
    given = {
        "began": NOON,
        "time": NOON,
        "at_once": 1,
        "soak": timedelta(0),
        "out": frozenset(),
        "waiting": {},
        **more,
    }
    return Standing(**given)  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(
    ("node", "busy", "board", "expected"),
    [
        (seen(as_declared=WANTED), (), None, Stands(NodeIs.AS_DECLARED)),
        (seen(as_declared=WANTED), ("n1",), None, Stands(NodeIs.AS_DECLARED)),
        (seen(), (), None, Stands(NodeIs.WAITING, NEXT)),
        (seen(), ("n1",), None, Stands(NodeIs.CHANGING)),
        (seen(), ("n1",), standing(out=frozenset({"n1"})), Stands(NodeIs.CHANGING)),
        (seen(), ("n1",), standing(waiting={"n1": "no window"}), Stands(NodeIs.WAITING, "no window")),
        (seen(), ("n1",), standing(stop="too many failed"), Stands(NodeIs.WAITING, "too many failed")),
        (seen(problem="its record is broken"), (), None, Stands(NodeIs.FAILED, "its record is broken")),
        (seen(failed=BAR, record=record(Phase.FAILED)), (), None, Stands(NodeIs.FAILED, "it broke")),
        (seen(is_silent=True), (), None, Stands(NodeIs.FAILED, SILENT)),
        (seen(is_silent=True, as_declared=WANTED), (), None, Stands(NodeIs.AS_DECLARED)),
        (seen(as_declared=WANTED, is_drifted=True), (), None, Stands(NodeIs.WAITING, f"{DRIFTED}: {NEXT}")),
        (
            seen(as_declared=WANTED, driver="1.2"),
            (),
            None,
            Stands(NodeIs.WAITING, f"its node daemon reports driver 1.2: {NEXT}"),
        ),
    ],
)
def test_a_node_stands_as_what_is_known_of_it(
    node: SeenNode, busy: tuple[str, ...], board: Standing | None, expected: Stands
) -> None:
    attempts = Attempts()
    order = choose(stack(), FINGERPRINT, {"n1": node}, attempts, 0.0)
    assert stands(order, busy, board, attempts) == {"n1": expected}


def test_a_try_that_failed_is_the_reason_until_the_next_one() -> None:
    attempts, node = Attempts(), seen()
    attempts.failed("n1", key_of(node, WANTED), "not reached", 0.0)
    order = choose(stack(), FINGERPRINT, {"n1": node}, attempts, 1.0)
    assert stands(order, (), None, attempts) == {"n1": Stands(NodeIs.FAILED, "not reached")}
    again = Stands(NodeIs.CHANGING, "not reached")
    assert stands(order, ("n1",), None, attempts) == {"n1": again}, "it left the status for as long as it was looked at"
    assert stands(order, ("n1",), standing(), attempts) == {"n1": Stands(NodeIs.CHANGING)}, "it begins"


def test_a_node_that_a_round_has_not_begun_with_waits() -> None:
    """Nodes that a stopped rollout had left alone were counted as failed."""
    attempts, node = Attempts(), seen()
    blockers = blockers_of(1, None, {"n1": node}, 0.0)
    attempts.waited("n1", key_of(node, WANTED), "stopped: n2 failed in swap", 0.0, blockers)
    order = choose(stack(), FINGERPRINT, {"n1": node}, attempts, 1.0)
    left = Stands(NodeIs.WAITING, "stopped: n2 failed in swap", is_left=True)
    assert stands(order, (), None, attempts) == {"n1": left}
    again = Stands(NodeIs.CHANGING, "stopped: n2 failed in swap")
    assert stands(order, ("n1",), None, attempts) == {"n1": again}
    assert order.due == frozenset(), "it is not looked at again and again"


def test_rollouts_beside_one_another_are_told_as_one() -> None:
    board = Board()
    assert board.combined() is None
    board.put("a", standing(out=frozenset({"a1"}), at_once=2, waves=(Members("wave 1", ("a1",)),)))
    assert board.combined() == board.get("a")
    board.put("b", standing(began=NOON - MINUTE, waiting={"b1": "a window"}, stop="too many failed"))
    both = board.combined()
    assert both is not None
    assert (both.began, both.at_once, both.out) == (NOON - MINUTE, 3, {"a1"})
    assert (both.waiting, both.stop) == ({"b1": "a window"}, "too many failed")
    assert [wave.title for wave in both.waves] == ["a: wave 1"]
    board.clear("a")
    assert board.combined() == board.get("b")
    assert combine([]) is None
