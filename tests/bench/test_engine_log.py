"""What containerd logs of a pod's start, in the words of 1.x and of 2.x."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.stage.engine_log import parse_starts

LOGS = sorted(Path(__file__).with_name("logs").iterdir())


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_the_calls_of_a_start_are_found(log: Path) -> None:
    (start,) = parse_starts(log.read_text(), offset_s=8.0).values()

    assert start.container == "15f5"
    assert (start.sandbox.began, start.sandbox.took_s) == pytest.approx((2.0, 0.25))
    assert (start.create.began, start.create.took_s) == pytest.approx((2.3, 0.04))
    assert (start.start.began, start.start.took_s) == pytest.approx((2.35, 0.1))


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_a_start_without_an_end_is_none(log: Path) -> None:
    assert parse_starts(log.read_text().replace("returns successfully", "failed"), offset_s=0.0) == {}
