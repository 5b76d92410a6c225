"""Samples held against the budget of the hook."""

from __future__ import annotations

import pytest

from bench.starts.measuring import Cost
from bench.starts.verdict import Line, added_cpu, added_wall, judge, ratio_to_bare

NOTHING = {"python3 -I -S -c pass": [Cost(5, 4), Cost(9, 8)], "hook: nothing asked": [Cost(6, 5), Cost(9, 10)]}

BIG = ["big image, added CPU", "big image, added minimum wall", "big image, the same files"]


def starts(ours: float, theirs: float | None = None) -> dict[str, list[Cost]]:
    """Return samples of both images in which the second round was twice as slow as the first."""
    found = dict(NOTHING)
    for image in ("small", "big"):
        added = {"no hook": 0.0, "our hook, 1 GPU": ours, "our hook, 8 GPUs": ours + 0.5}
        if theirs is not None:
            added |= {"NVIDIA, 1 GPU": theirs, "our hook, 1 GPU, NVIDIA's files": ours + 3}
        for variant, cost in added.items():
            found[f"{image}: {variant}"] = [Cost(20 + cost, 10 + cost), Cost(40 + 2 * cost, 20 + cost)]
    return found


def test_a_hook_costs_what_it_adds_within_its_round() -> None:
    samples = starts(ours=6)

    assert added_cpu(samples, "small", "our hook, 1 GPU") == 6
    assert added_wall(samples, "small", "our hook, 1 GPU") == 6
    assert ratio_to_bare(samples) == 1.25


@pytest.mark.parametrize(
    ("ours", "theirs", "exceeded"),
    [
        pytest.param(10, 100, [], id="all is kept"),
        pytest.param(30, 100, BIG, id="too slow on big images"),
        pytest.param(9, 45, BIG[2:], id="too slow with the same files"),
        pytest.param(40, 100, ["small"] * 3 + ["big"] * 3, id="too slow on both"),
        pytest.param(90, None, [], id="without Go there is nothing to compare with"),
    ],
)
def test_a_budget_that_is_exceeded_is_named(ours: float, theirs: float | None, exceeded: list[str]) -> None:
    found = [line.name for line in judge(starts(ours, theirs), peak_mib=10) if not line.is_kept]

    assert len(found) == len(exceeded)
    assert all(words in name for words, name in zip(exceeded, found, strict=True))


def test_memory_has_a_budget_too() -> None:
    assert [line.name for line in judge(starts(10, 100), peak_mib=16.1) if not line.is_kept] == [
        "peak memory of the hook"
    ]


def test_a_line_says_figure_limit_and_verdict() -> None:
    assert str(Line("x", 0.5, 0.35, "x")).split() == ["x", "0.50", "x", "at", "most", "0.35", "EXCEEDED"]
