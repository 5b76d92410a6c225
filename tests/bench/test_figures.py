"""In which order things are measured."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from bench.stage.figures import Spread, in_turn


@pytest.mark.parametrize("names", ["abc", "abcd"])
def test_each_is_at_each_place_once(names: str) -> None:
    turns = [in_turn(names, turn) for turn in range(len(names))]

    assert all(sorted(place) == list(names) for place in zip(*turns, strict=True))
    assert in_turn(names, len(names)) == turns[0]


def test_each_comes_after_each_other_once() -> None:
    pairs = Counter(pair for turn in range(4) for pair in pairwise(in_turn("abcd", turn)))

    assert set(pairs.values()) == {1}
    assert len(pairs) == 12


def test_a_spread_is_aligned() -> None:
    assert Spread.of([3, 1, 200]).show() == "     1      3    200"
