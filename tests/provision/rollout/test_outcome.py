"""What becomes of a node, by the end of its rollout."""

from __future__ import annotations

import pytest

from provision.apply.model import Status
from provision.rollout.decision.outcome import RolloutResult, results_of
from tests.provision.rollout.fakes import NOON, state, view


@pytest.mark.parametrize(
    ("is_released", "status"),
    [
        pytest.param(False, Status.UNCHANGED, id="put back with what it has"),
        pytest.param(True, Status.SKIPPED, id="abandoned on its way back"),
    ],
)
def test_a_node_without_a_record_is_back_in_service_where_its_gpus_are_offered(
    status: Status, *, is_released: bool
) -> None:
    """One that somebody had abandoned on its way back from the declared driver counted as having that."""
    node = state("n1", view("n1", is_skipped=True), is_as_declared=True, is_released=is_released)
    ended = RolloutResult(
        nodes=(node,), moved=frozenset({"n1"}), waiting={}, stop="", failures={}, swapped={}, ended=NOON
    )
    assert results_of(ended, ["n1"], canceled=False)["n1"].status is status
