"""How often the engine looks."""

from __future__ import annotations

from itertools import islice

import pytest

from provision.rollout.steps.executor import pauses


@pytest.mark.parametrize(
    ("longest_s", "expected"),
    [
        pytest.param(2.0, [0.25, 1.0, 2.0, 2.0, 2.0], id="soon at first, and never less often than asked for"),
        pytest.param(0.1, [0.1, 0.1, 0.1, 0.1, 0.1], id="a short one stays as it is"),
    ],
)
def test_pauses_grow_to_the_longest(longest_s: float, expected: list[float]) -> None:
    assert list(islice(pauses(longest_s), 5)) == expected
