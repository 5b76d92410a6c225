"""When over-use is told and acted on: only what was so in every measurement of an unbroken row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.sharing.overuse.measure import Judge
from tests.plugin.overuse.shares import GIB, SECOND, owner, use

OVER, BELOW = use(2 * GIB), use(GIB)
PACE_S, GRACE_S = 10.0, 60.0


def row(*uses: object, step_s: float = PACE_S) -> list[str]:
    """Return what each measurement leads to: letters of began, ended, due; None is one that failed."""
    judge, told, now_s = Judge(PACE_S), [], 100.0
    for each in uses:
        now_s += step_s
        if each is None:
            judge.missed()
            told.append("-")
            continue
        verdict = judge.measured([each], now_s, GRACE_S)  # type: ignore[list-item] # a use
        told.append("".join(word[0] for word in ("began", "ended", "due") if getattr(verdict, word)))
    return told


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        pytest.param([OVER] * 8, ["", "b", "", "", "", "", "d", "d"], id="told at the second, due after the grace"),
        pytest.param([OVER, BELOW, OVER], ["", "", ""], id="a moment is not told"),
        pytest.param([OVER, OVER, BELOW], ["", "b", "e"], id="its end is told"),
        pytest.param([OVER] * 6 + [BELOW] + [OVER] * 3, ["", "b", *[""] * 4, "e", "", "b", ""], id="a break"),
        pytest.param([OVER] * 6 + [None] + [OVER] * 3, ["", "b", *[""] * 4, "-", "", "", ""], id="a failure"),
        pytest.param([OVER] * 7 + [None] + [OVER] * 7, ["", "b", *[""] * 4, "d", "-", *[""] * 6, "d"], id="all again"),
    ],
)
def test_only_an_unbroken_row_counts(uses: list[object], expected: list[str]) -> None:
    assert row(*uses) == expected


def test_measurements_that_come_too_late_prove_nothing() -> None:
    assert "d" not in "".join(row(*[OVER] * 30, step_s=2 * PACE_S + 1))


def test_two_gpus_and_two_containers_are_judged_apart() -> None:
    judge = Judge(PACE_S)
    other = use(3 * GIB, who=owner("b", 2))
    for at in range(7):
        verdict = judge.measured([OVER, use(2 * GIB, uuid=SECOND)] + ([other] if at else []), 10.0 * at, GRACE_S)
    assert {each.uuid for each in verdict.due} == {OVER.uuid, SECOND}
    assert {each.owner.name.pod for each in verdict.due} == {"a"}


@given(st.lists(st.sampled_from([OVER, BELOW, None]), max_size=60))
def test_whoever_is_due_was_over_for_all_of_the_grace(uses: list[object]) -> None:
    for at, told in enumerate(row(*uses)):
        if "d" in told:
            assert uses[at - 6 : at + 1] == [OVER] * 7
