"""Keeps one resource registered with whichever kubelet there is.

The kubelet forgets every plugin when it restarts, never opens a stream a second time, and never asks a
plugin to come back (its device manager's behaviour). So the link looks at three things, and registers
again when one is not as it was: who is behind `kubelet.sock`, whether the own socket is still in place,
and whether a kubelet still watches the list.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from plugin.allocation import AllocationTable
from plugin.errors import KubeletError
from plugin.kubelet.board import Board, Publication
from plugin.kubelet.counting import Uncounted
from plugin.kubelet.folder import KUBELET_SOCKET, SocketIdentity, socket_identity
from plugin.kubelet.inotify import FolderWatch
from plugin.kubelet.registration import DEVICE_PLUGINS, KubeletSocket
from plugin.kubelet.server import PluginServer
from plugin.kubelet.service import DevicePluginService
from plugin.kubelet.watcher import PluginWatcher
from plugin.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from plugin.kubelet.counting import KubeletCounter
    from plugin.kubelet.registration import Registration
    from plugin.kubelet.witness import Witness
    from plugin.log import Journal
    from plugin.resources import Offer


@dataclass(frozen=True)
class Timing:
    """All the waiting of a link, in seconds."""

    look_s: float = 2.0  # between looks when nothing hints at a change
    register_s: float = 5.0  # deadline of the call; a kubelet that hangs must not hang us
    first_stream_s: float = 10.0  # for the kubelet to open its stream after a registration
    stream_gap_s: float = 0.5  # after a stream ended: a kubelet that died takes its socket with it
    backoff_min_s: float = 0.25
    backoff_max_s: float = 15.0
    withdraw_s: float = 2.0  # for the last, empty list to arrive


async def _wait_at_most(event: asyncio.Event, timeout_s: float) -> None:
    """Wait for the event; set it when the time is up. One timer, and no task that could be left over."""
    timer = asyncio.get_running_loop().call_later(timeout_s, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


def socket_name(resource: str) -> str:
    """Return the name of the socket that serves a resource."""
    return f"grapnel-{resource.replace('/', '_')}.sock"


class Link:
    """One resource: its board, its server, its registration."""

    def __init__(  # noqa: PLR0913 - keyword-only: the parts of a link and its seams for tests
        self,
        *,
        resource: str,
        kubelet_root: Path,
        through_watcher: bool = False,
        journal: Journal,
        on_state: Callable[[str], None],
        timing: Timing | None = None,
        counter: KubeletCounter | None = None,
        witness: Witness | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.resource = resource
        self.folder = kubelet_root / DEVICE_PLUGINS  # where `kubelet.sock` tells one kubelet from the next
        self.board = Board(Publication((), AllocationTable((), {})), clock)
        self._journal = journal
        self._on_state = on_state
        self._timing = timing or Timing()
        self._clock = clock
        self._counter = counter or Uncounted()
        name = socket_name(resource)
        self._registration: Registration = (
            PluginWatcher(kubelet_root, resource) if through_watcher else KubeletSocket(kubelet_root, resource, name)
        )
        methods = DevicePluginService(self.board, journal, self._counter, witness).methods()
        methods = {**methods, **self._registration.methods()}
        self._server = PluginServer(self._registration.socket_folder, name, methods, journal)
        self._kubelet: SocketIdentity | None = None
        self._is_served = False  # to this kubelet: streams of the one before are gone
        self._is_registered = False  # with this kubelet
        self._registered_at = 0.0
        self._backoff_s = 0.0
        self._retry_at = 0.0
        self._is_stopping = False
        self._wake = self.board.stream_ended

    def publish(self, offers: tuple[Offer, ...], table: AllocationTable) -> None:
        """Show another device list."""
        self.board.publish(Publication(offers, table))

    async def run(self) -> None:
        """Look after the registration until stopped; then withdraw and stop serving."""
        watch = FolderWatch(self.folder, self._wake.set)
        try:
            while not self._is_stopping:
                self._wake.clear()
                watch.renew()
                await self._look()
                await self._wait()
        finally:
            watch.close()
            await self._withdraw()

    def stop(self) -> None:
        """Make `run` end."""
        self._is_stopping = True
        self._wake.set()

    async def _look(self) -> None:
        kubelet = socket_identity(self.folder / KUBELET_SOCKET)
        if kubelet != self._kubelet:
            self._kubelet = kubelet
            self._is_served = self._is_registered = False
            self._backoff_s = self._retry_at = 0.0
        if kubelet is None:
            self._report(f"no kubelet: {self.folder / KUBELET_SOCKET} does not exist")
            return
        if not self._server.is_in_place():
            self._is_served = self._is_registered = False
        if (self._is_registered and self._is_watched()) or self._clock() < self._retry_at:
            return
        try:
            if not self._is_served or self._registration.needs_new_socket:
                self._registration.prepare()
                await self._server.serve()
                self._is_served = True
            await self._register()
        except KubeletError as error:
            self._is_registered = False
            self._backoff_s = min(max(self._timing.backoff_min_s, 2 * self._backoff_s), self._timing.backoff_max_s)
            self._retry_at = self._clock() + self._backoff_s
            self._report(error.message, error.hint)

    async def _register(self) -> None:
        begun_at = self._clock()  # the kubelet may open its stream, and lose it, before its answer is here
        await self._registration.announce(self._timing.register_s)
        self._is_registered = True
        self._registered_at = begun_at
        self._backoff_s = 0.0
        self._counter.registered(self.resource)
        self._journal.standing("kubelet")
        self._journal.info("registered", resource=self.resource, devices=len(self.board.current.offers))
        self._on_state("")

    def _is_watched(self) -> bool:
        """Whether a kubelet shows the list, or may still be about to."""
        if self.board.open_streams:
            return True
        now = self._clock()
        if self.board.last_stream_change > self._registered_at:
            return now - self.board.last_stream_change < self._timing.stream_gap_s
        return now - self._registered_at < self._timing.first_stream_s

    def _report(self, problem: str, hint: str = "") -> None:
        self._journal.standing("kubelet", problem, **({"hint": hint} if hint else {}))
        self._on_state(problem)

    async def _wait(self) -> None:
        """Wait for a hint, at most until the next look is due."""
        pause_s = self._backoff_s or self._timing.look_s
        if self._is_registered and not self.board.open_streams:
            pause_s = min(pause_s, self._timing.stream_gap_s)
        await _wait_at_most(self._wake, pause_s)

    async def _withdraw(self) -> None:
        """Send an empty list, so that the kubelet stops placing pods before the socket goes."""
        self.board.publish(Publication((), self.board.current.table, is_last=True))
        deadline = self._clock() + self._timing.withdraw_s
        while self.board.open_streams and (left_s := deadline - self._clock()) > 0:
            self.board.stream_ended.clear()
            await _wait_at_most(self.board.stream_ended, left_s)
        await self._server.stop(grace_s=0.2)
