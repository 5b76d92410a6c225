"""What `released.json` says counts, whoever tells the daemon about it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plugin.changes.driver_change.release.record import Release
from plugin.changes.driver_change.release.store import forget_release, write_release
from plugin.daemon.release_watch import ReleaseWatch
from plugin.settings.node_config import NodeConfig

if TYPE_CHECKING:
    from pathlib import Path

FIRST = Release("2026-09-01T10:00:00Z", "b0071d", "535.261.03")
SECOND = Release("2026-09-02T10:00:00Z")


class Heard:
    """A watch over a folder, and what it called."""

    def __init__(self, folder: Path, refresh_s: float = 60.0) -> None:
        self.calls: list[object] = []
        self.resumed = asyncio.Event()
        self.watch = ReleaseWatch(
            NodeConfig(state_folder=folder, refresh_s=refresh_s),
            lambda release, before: self.calls.append((release, before)),
            self.resume,
        )

    def resume(self) -> None:
        self.calls.append("resumed")
        self.resumed.set()


def test_each_release_is_told_once_and_its_end_as_well(tmp_path: Path) -> None:
    async def follow() -> list[object]:
        heard = Heard(tmp_path)
        for release in (None, FIRST, FIRST, SECOND, None):
            if release is None:
                forget_release(tmp_path)
            else:
                write_release(tmp_path, release)
            heard.watch.follow()
        heard.watch.stop()
        return heard.calls

    assert asyncio.run(follow()) == [(FIRST, None), (SECOND, FIRST), "resumed"]


def test_the_end_of_a_release_is_found_although_nobody_tells_of_it(tmp_path: Path) -> None:
    async def follow() -> list[object]:
        heard = Heard(tmp_path, refresh_s=0.01)
        write_release(tmp_path, FIRST)
        heard.watch.follow()
        forget_release(tmp_path)
        await asyncio.wait_for(heard.resumed.wait(), 20)
        return heard.calls

    assert asyncio.run(follow()) == [(FIRST, None), "resumed"]


def test_nothing_is_followed_after_the_end(tmp_path: Path) -> None:
    async def follow() -> list[object]:
        heard = Heard(tmp_path)
        heard.watch.stop()
        write_release(tmp_path, FIRST)
        heard.watch.follow()
        return heard.calls

    assert asyncio.run(follow()) == []


def test_another_state_folder_counts_from_the_next_look_on(tmp_path: Path) -> None:
    async def follow() -> list[object]:
        heard = Heard(tmp_path / "before")
        (tmp_path / "after").mkdir()
        write_release(tmp_path / "after", FIRST)
        heard.watch.follow()
        heard.watch.config = NodeConfig(state_folder=tmp_path / "after")
        heard.watch.follow()
        heard.watch.stop()
        return heard.calls

    assert asyncio.run(follow()) == [(FIRST, None)]
