"""Follows `released.json`: what it says counts, whether or not anybody told the daemon about it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plugin.changes.driver_change.release.store import read_release

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.changes.driver_change.release.record import Release
    from plugin.settings.node_config import NodeConfig


class ReleaseWatch:
    """Calls `on_release` with each release that differs from the one before, and `on_resume` when it is over.

    While the node is released the driver is not observed, so the file is read at that pace here. `config` may be
    replaced at any time.
    """

    def __init__(
        self,
        config: NodeConfig,
        on_release: Callable[[Release, Release | None], None],
        on_resume: Callable[[], None],
    ) -> None:
        self.config = config
        self._on_release = on_release
        self._on_resume = on_resume
        self._release: Release | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def follow(self) -> None:
        """Do what the file says now. Called at every occasion, so that nothing depends on being told."""
        release = None if self._is_stopped else read_release(self.config.state_folder)
        if self._is_stopped or release == self._release:
            return
        before, self._release = self._release, release
        if release is None:
            self._on_resume()
            return
        self._on_release(release, before)
        if before is None:
            self._follow_later()

    def stop(self) -> None:
        """Follow nothing any more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _follow_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self.config.refresh_s, self._follow_again)

    def _follow_again(self) -> None:
        self.follow()
        if self._release is not None and not self._is_stopped:
            self._follow_later()
