"""The daemon follows the file that the node's timer leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.base.log import Logger
from plugin.daemon.drift import STALE_S, DriftWatch
from plugin.drift.model import Difference, DriftKind
from plugin.drift.result import Result, render_result

if TYPE_CHECKING:
    from pathlib import Path

HOLD = Difference(DriftKind.HOLD, "libcuda1", "not held", "held", None, "grapnel apply n1")
NOW = 1_777_615_920
DEAD = "is grapnel-drift.timer active, and /etc/grapnel/declared.json there?"


class Following:
    """A watch with a clock that stands, and what it told."""

    def __init__(self, folder: Path) -> None:
        (folder / "drift").mkdir()
        self.file = folder / "drift/result.json"
        self.now = float(NOW)
        self.told: list[Result] = []
        self.watch = DriftWatch(lambda: folder / "node", self.told.append, Logger(), 60.0, lambda: self.now)

    def look(self, result: Result | str | None = None) -> None:
        """Look, after this was written."""
        if result is not None:
            beside = self.file.with_name("beside")
            beside.write_text(result if isinstance(result, str) else render_result(result))
            beside.replace(self.file)
        self.watch.look()


@pytest.fixture
def following(tmp_path: Path) -> Following:
    return Following(tmp_path)


def test_each_result_is_told_once(following: Following) -> None:
    found = Result(NOW, (HOLD,))
    following.look()
    following.look(found)
    following.look()
    following.look(found)

    assert (following.told, following.watch.result) == ([found], found)


def test_a_node_that_was_mended_is_told(following: Following) -> None:
    following.look(Result(NOW, (HOLD,)))
    following.look(Result(NOW + 1))

    assert [bool(each.differences) for each in following.told] == [True, False]


def test_a_timer_that_is_dead_is_told_once_and_its_return_too(following: Following) -> None:
    following.look(Result(NOW))
    following.now += STALE_S + 1
    following.look()
    following.look()
    following.look(Result(int(following.now)))

    assert [each.reason for each in following.told] == [
        "",
        f"nothing was compared since 2026-05-01T06:12:00Z: {DEAD}",
        "",
    ]
    assert following.watch.result == Result(int(following.now)), "metrics have what was found, and its time"


@pytest.mark.parametrize("text", ["{", "", '{"schema": "grapnel.dev/node-drift/v2"}'])
def test_a_file_that_cannot_be_read_is_no_result(
    following: Following, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    following.look(text)

    assert (following.told, following.watch.result) == ([], None)
    assert capsys.readouterr().out == ""


def test_a_result_that_went_away_is_told(following: Following) -> None:
    following.look(Result(NOW))
    following.file.unlink()
    following.look()

    assert following.told[1:] == [Result(0, reason=f"there is no result any more: {DEAD}")]
