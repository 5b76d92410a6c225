"""Each of the larger model's invariants is violated by a product that is broken where it matters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from provision.cluster.kubernetes.nodes import marks
from provision.controller.decision import choice
from provision.controller.decision.choice import Order
from provision.controller.rounds import reports
from provision.controller.rounds.lane import Lane
from provision.rollout import states
from provision.rollout.status import derive
from tests.provision.rollout.model.beside import rounds
from tests.provision.rollout.model.beside.events import drawn, violated
from tests.provision.rollout.model.beside.test_beside import AS_DECLARED, DRAWN, FOUND

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.provision.rollout.model.events import Event

    Break = Callable[[pytest.MonkeyPatch], object]

MOST = 600  # interleavings: most breaks are found within a few
RARE: dict[str, list[Event]] = {  # what is rarely drawn
    "a failure is never over": [
        ("end_thoroughly",),
        *FOUND["an upgrade fails, and what the node went back to is declared"],
    ],
    "what is not heard of is taken for as declared": DRAWN[
        "a node of a domain is not heard of when the others are to begin"
    ],
}


def answer(where: object, name: str, what: Any) -> Break:
    """Have a function always return the same."""
    return lambda patch: patch.setattr(where, name, lambda *_, **__: what)


def takes_a_step_that_was_cut_off_for_failed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(states, "_UNKNOWN", ())


BREAKS: dict[str, tuple[Break, str]] = {
    "a claim stays while the node is changed, and nothing contradicts it": (
        lambda patch: (
            patch.setattr(marks, "_withdrawn", lambda *_: {}),
            patch.setattr(choice, "contradiction", lambda *_: ""),
        ),
        "is as declared .* and runs",
    ),
    "a step that was cut off has failed": (takes_a_step_that_was_cut_off_for_failed, "for a step cut off"),
    "a new declaration reaches no round that runs": (
        answer(Lane, "_bring_up_to_date", None),
        "is taken to .* is declared",
    ),
    "a failure is never over": (
        lambda patch: (
            patch.setattr(reports, "has_ended", lambda *_: False),
            patch.setattr(rounds, "forget_returns", lambda *_: None),
        ),
        "is the end",
    ),
    "status does not compare with what is declared": (answer(derive, "_is_not_declared", ""), "is done .* and runs"),
    "what is not heard of is taken for as declared": (
        lambda patch: patch.setattr(Order, "left_out", property(lambda _order: {})),
        "is back beside",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKS)
def test_the_model_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, told = BREAKS[name]
    assert not violated(RARE.get(name, ()))
    broken(monkeypatch)
    interleavings = [[*AS_DECLARED, *RARE[name]]] if name in RARE else (drawn(seed) for seed in range(MOST))
    assert any(re.search(told, violated(events)) for events in interleavings)
