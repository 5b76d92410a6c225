"""Earlier measurements, and figures that got worse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bench.starts.history import append, compare, last_of, read
from bench.starts.verdict import Line

if TYPE_CHECKING:
    from pathlib import Path


def entry(machine: str, **figures: float) -> dict[str, Any]:
    return {"machine": machine, "date": "2026-11-21T18:00Z", "commit": "abc", "load": 0.1, "figures": figures}


def test_what_is_appended_is_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "history/hook.jsonl"
    assert read(path) == []
    for name in "ab":
        append(path, entry(name, cpu=1.0))

    assert [found["machine"] for found in read(path)] == ["a", "b"]


def test_the_last_run_on_the_same_machine_is_compared_with() -> None:
    entries = [entry("a", x=1), entry("b", x=2), entry("a", x=3), entry("b", x=4)]

    assert last_of(entries, "a") == entries[2]
    assert last_of(entries, "c") == entries[3], "better another machine's ratios than none"
    assert last_of([], "a") is None


@pytest.mark.parametrize(
    ("old", "new", "unit", "is_worse"),
    [
        pytest.param(0.30, 0.32, "x", False, id="noise of a ratio"),
        pytest.param(0.30, 0.34, "x", True, id="a ratio that grew"),
        pytest.param(0.30, 0.20, "x", False, id="a ratio that fell"),
        pytest.param(0.1, 0.5, "ms", False, id="noise of a small difference"),
        pytest.param(1.0, 2.0, "ms", True, id="a difference that grew"),
        pytest.param(-0.5, 0.4, "ms", True, id="a difference that turned"),
    ],
)
def test_what_became_worse_is_marked(old: float, new: float, unit: str, *, is_worse: bool) -> None:
    (line,) = compare(entry("a", x=old), [Line("x", new, 9.0, unit)])

    assert line.endswith("WORSE") == is_worse


def test_a_figure_that_is_new_is_not_compared() -> None:
    assert compare(entry("a"), [Line("x", 1.0, 9.0, "x")]) == []
