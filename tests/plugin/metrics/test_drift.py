"""What a comparison of the node becomes on the page."""

from __future__ import annotations

from plugin.drift.model import Difference, DriftKind
from plugin.drift.result import Result
from plugin.publication.metrics.serving.scrape import drift_families

HOLD = Difference(DriftKind.HOLD, "libcuda1", "not held", "held", None, "grapnel apply n1")


def values(result: Result | None) -> dict[str, dict[str, float]]:
    return {
        family.name: {"".join(value for _, value in sample.labels): sample.value for sample in family.samples}
        for family in drift_families(result)
    }


def test_every_kind_has_a_row_once_the_node_was_compared() -> None:
    found = values(Result(7, (HOLD, HOLD)))

    assert found["grapnel_drift_differences"] == {kind.value: 2 if kind is DriftKind.HOLD else 0 for kind in DriftKind}
    assert (found["grapnel_drift_up"], found["grapnel_drift_timestamp_seconds"]) == ({"": 1}, {"": 7})


def test_a_node_that_is_not_compared_has_no_number_of_differences() -> None:
    found = values(Result(7, reason="a driver change"))

    assert found["grapnel_drift_differences"] == {}
    assert (found["grapnel_drift_up"], found["grapnel_drift_timestamp_seconds"]) == ({"": 0}, {"": 7})


def test_a_node_without_the_timer_has_none_of_it() -> None:
    assert values(None) == {}
