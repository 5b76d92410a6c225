"""Samples of a device plugin held against the limits."""

from __future__ import annotations

import pytest

from bench.daemons import verdict
from bench.daemons.verdict import judge, percentile_99, preference, row

GOOD = {
    verdict.MEMORY_PSS: [18.0],
    verdict.MEMORY_USS: [17.0],
    verdict.IDLE_CPU: [0.07],
    verdict.WAKE_UPS: [2.0],
    verdict.START: [110.0, 120.0, 400.0],
    verdict.EMPTY: [0.4, 0.5, 0.6],
    verdict.ALLOCATE: [0.5, 0.6, 0.7],
    verdict.STREAMS: [0.1],
    verdict.CONNECTIONS: [0.3],
    verdict.ALLOCATIONS: [0.0],
    verdict.RESTART: [5.0, 40.0],
    verdict.FOLDER: [15.0],
    preference(8, 1): [0.4],
    preference(8, 3): [0.7],
    preference(16, 5): [2.0],
    preference(64, 13): [14.0],
}


def exceeded(**changes: list[float]) -> list[str]:
    samples = {row("grapnel", what): values for what, values in {**GOOD, **changes}.items()}
    return [line.name for line in judge(samples, "grapnel") if not line.is_kept]


def test_every_limit_has_its_line() -> None:
    samples = {row("grapnel", what): values for what, values in GOOD.items()}
    assert len(judge(samples, "grapnel")) == 15
    assert exceeded() == []


@pytest.mark.parametrize(
    ("what", "values", "named"),
    [
        pytest.param(verdict.MEMORY_PSS, [31.0], "memory with 8 GPUs, PSS", id="memory"),
        pytest.param(verdict.START, [110.0, 160.0, 170.0], "start to the first list, median", id="the median start"),
        pytest.param(verdict.ALLOCATE, [0.9], "Allocate to an empty call, medians", id="an allocation that is dear"),
        pytest.param(verdict.ALLOCATE, [0.5, 0.5, 9.0], "Allocate, 99th percentile", id="the slowest allocation"),
        pytest.param(verdict.RESTART, [5.0, 301.0], "kubelet's socket recreated, slowest", id="one slow registration"),
        pytest.param(verdict.FOLDER, [float("inf")], "kubelet's folder vanished, slowest", id="one that never came"),
        pytest.param(preference(16, 7), [11.0], "preferred among 16 GPUs, slowest size, median", id="one slow size"),
    ],
)
def test_a_limit_that_is_exceeded_is_named(what: str, values: list[float], named: str) -> None:
    assert exceeded(**{what: values}) == [named]


def test_what_was_not_measured_is_not_judged() -> None:
    assert judge({}, "grapnel") == []
    assert judge({row("NVIDIA", verdict.MEMORY_PSS): [99.0]}, "grapnel") == []


def test_a_percentile_of_few_values_is_the_largest() -> None:
    assert percentile_99([1.0, 3.0, 2.0]) == 3.0
    assert percentile_99([float(value) for value in range(1, 1001)]) == pytest.approx(991, abs=1)
