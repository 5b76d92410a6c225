"""Keeps one resource registered with whichever kubelet there is.

The kubelet forgets every plugin when it restarts, never opens a stream a second time, and never asks a
plugin to come back (its device manager's behaviour). So the link looks at three things, and registers
again when one is not as it was: who is behind `kubelet.sock`, whether the own socket is still in place,
and whether a kubelet still watches the list. As long as one watches, nothing is done that would end that.

A kubelet ends whichever connection a resource has *now* when it notices that an older one has ended
(`runClient` in pkg/kubelet/cm/devicemanager/plugin/v1beta1, 1.36). So two registrations are kept apart
by `stream_gap_s`, and there is one method of registration at a time: `methods` says which.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.base.errors import KubeletError, KubeletSilent
from plugin.devices.allocation.table import AllocationTable
from plugin.kubelet import KUBELET_SOCKET
from plugin.kubelet.device_plugin.observers import NoCallCounter
from plugin.kubelet.device_plugin.publisher import Publication, Publisher
from plugin.kubelet.device_plugin.service import DevicePluginService
from plugin.kubelet.registration.call import DEVICE_PLUGINS, HINT
from plugin.kubelet.registration.inotify import FolderWatch
from plugin.kubelet.registration.methods import RegistrationMethods
from plugin.system.sockets import SocketIdentity, socket_identity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.devices.resources import Offer
    from plugin.kubelet.device_plugin.nearby import Nearby
    from plugin.kubelet.device_plugin.observers import AllocationObserver, CallCounter
    from plugin.kubelet.registration.methods import RegistrationMethod

_AT_ONCE = 1  # a stream may end with an older one (above): that is repaired without a pause


@dataclass(frozen=True)
class Timing:
    """All the waiting of a link, in seconds."""

    look_s: float = 2.0  # between looks when nothing hints at a change
    register_s: float = 10.0  # for the kubelet to answer: as long as it may take to call back
    slow_s: float = 1.0  # until a kubelet that has not answered is told of
    first_stream_s: float = 10.0  # for the kubelet to open its stream after a registration
    stream_gap_s: float = 0.1  # after a stream ended: for the kubelet to notice it, too
    settled_s: float = 5.0  # for which a stream is open before its registration counts as one that the kubelet keeps
    hidden_s: float = 2.0  # without kubelet.sock before a kubelet is helped to find us: one that starts has none yet
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


class Link:
    """One resource: its device list, its server, its registration."""

    def __init__(
        self,
        *,
        resource: str,
        kubelet_root: Path,
        registration: str = "auto",
        logger: Logger,
        on_state: Callable[[str], None],
        timing: Timing | None = None,
        counter: CallCounter | None = None,
        observer: AllocationObserver | None = None,
        nearby: Nearby | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.resource = resource
        self.folder = kubelet_root / DEVICE_PLUGINS  # where `kubelet.sock` tells one kubelet from the next
        self.publisher = Publisher(Publication((), AllocationTable((), {})), clock)
        self._log = logger
        self._on_state = on_state
        self._timing = timing or Timing()
        self._clock = clock
        self._counter = counter or NoCallCounter()
        service = DevicePluginService(self.publisher, logger, self._counter, observer, nearby=nearby)
        self._methods = RegistrationMethods(registration, kubelet_root, resource, service.methods(), logger)
        self._kubelet: SocketIdentity | None = None
        self._kubelet_changed_at = clock()
        self._has_come = False  # this kubelet has been registered with once
        self._is_registered = False  # with this kubelet
        self._registered_at = 0.0
        self._short_lived = 0  # registrations in a row that this kubelet did not keep
        self._backoff_s = 0.0
        self._retry_at = 0.0
        self._is_stopping = False
        self._wake = self.publisher.stream_ended

    @property
    def lacks_kubelet(self) -> bool:
        """Whether no kubelet is there that could be shown anything, nor one that is about to be there."""
        if self.publisher.open_streams or socket_identity(self.folder / KUBELET_SOCKET) is not None:
            return False
        may_start = self.folder.is_dir() and self._clock() - self._kubelet_changed_at < self._timing.hidden_s
        return not may_start and not self._methods.can_reach_kubelet(has_socket=False)

    def publish(self, offers: tuple[Offer, ...], table: AllocationTable) -> None:
        """Show another device list."""
        self.publisher.publish(Publication(offers, table))

    async def run(self) -> None:
        """Look after the registration until stopped; then withdraw and stop serving."""
        watch, *others = [FolderWatch(folder, self._wake.set) for folder in self._methods.folders]
        try:
            while not self._is_stopping:
                self._wake.clear()
                if not watch.renew() and self._methods.restore_folder(is_watched=self.publisher.open_streams > 0):
                    watch.renew()
                for other in others:
                    other.renew()
                await self._look()
                await self._wait()
        finally:
            for each in (watch, *others):
                each.close()
            await self._withdraw()

    def stop(self) -> None:
        """Make `run` end."""
        self._is_stopping = True
        self._wake.set()

    async def _look(self) -> None:
        kubelet = socket_identity(self.folder / KUBELET_SOCKET)
        if kubelet != self._kubelet:
            self._kubelet = kubelet
            self._kubelet_changed_at = self._clock()
            self._is_registered = False
            self._has_come = self._has_come and kubelet is None  # without its socket it is the same kubelet still
            self._forget_failures()
        if self.publisher.open_streams and kubelet is None:
            return  # it watches: whatever happened to its socket, nothing is lost yet
        if not self._is_reachable():
            self._report(f"no kubelet: {self.folder / KUBELET_SOCKET} does not exist")
            return
        try:
            await self._keep_registered()
        except KubeletError as error:
            if not self._is_stopping:
                self._retry_later(error)

    def _is_reachable(self) -> bool:
        has_socket = self._kubelet is not None
        is_patient = self._clock() - self._kubelet_changed_at < self._timing.hidden_s
        return has_socket or (not is_patient and self._methods.can_reach_kubelet(has_socket=has_socket))

    async def _keep_registered(self) -> None:
        """Register, unless a kubelet has been registered with and watches, or may be about to."""
        if self._is_registered and self._is_watched():
            if not self._methods.now.server.is_in_place():
                await self._methods.now.restore()
            if self._short_lived and self._clock() - self._registered_at >= self._timing.settled_s:
                self._forget_failures()
                self._say_registered()
            return
        if self._is_registered:
            self._is_registered = False
            self._count_short_lived()
        if self._clock() < self._retry_at:
            return
        begun_at = self._clock()  # the kubelet may open its stream, and lose it, before its answer is here
        if not self.publisher.open_streams:
            await self._methods.choose(has_socket=self._kubelet is not None)
        method = self._methods.now
        # A kubelet that starts finds a socket that is there; another one would cost a second.
        is_awaited = method.registration.is_found and not self._has_come
        if not method.server.is_in_place() or (method.registration.is_found and not is_awaited):
            await method.serve()
        elif is_awaited:
            method.registration.prepare()
        self._has_come = True
        await self._announce(method)
        self._registered(begun_at)

    async def _announce(self, method: RegistrationMethod) -> None:
        """Register; given up as soon as there is another kubelet, or the daemon stops."""
        if method.registration.is_found and self.publisher.open_streams:
            return
        announcing = asyncio.ensure_future(method.registration.announce(self._timing.register_s))
        announcing.add_done_callback(self._on_announced)
        slow = f"the kubelet has not answered the registration of {self.resource} yet: it hangs, or has too much to do"
        timer = asyncio.get_running_loop().call_later(self._timing.slow_s, self._report, slow, HINT)
        try:
            while not announcing.done() and not self._is_stopping:
                self._wake.clear()
                if socket_identity(self.folder / KUBELET_SOCKET) != self._kubelet:
                    break
                await self._wake.wait()
            if not announcing.done():
                raise KubeletError(f"registration of {self.resource} given up: there is another kubelet")
            await announcing
        finally:
            timer.cancel()
            announcing.cancel()
            self._wake.set()  # hints that came meanwhile are followed in the next look

    def _on_announced(self, task: asyncio.Task[None]) -> None:
        self._wake.set()
        if not task.cancelled():
            task.exception()  # one that is given up may fail in that moment, and then nothing awaits it

    def _registered(self, begun_at: float) -> None:
        self._is_registered = True
        self._registered_at = begun_at
        self._counter.registered(self.resource)
        self._log.info("registered", resource=self.resource, devices=len(self.publisher.current.offers))
        if self._short_lived <= _AT_ONCE:  # else it is not known yet whether it is kept this time
            self._backoff_s = 0.0
            self._say_registered()

    def _say_registered(self) -> None:
        self._log.standing("kubelet")
        self._on_state("")

    def _forget_failures(self) -> None:
        self._short_lived = 0
        self._backoff_s = self._retry_at = 0.0

    def _count_short_lived(self) -> None:
        """Have the next registration wait where one after the other is not kept: it will not be kept either."""
        lasted_s = self.publisher.last_stream_change - self._registered_at  # less than 0: no stream was opened
        if lasted_s >= self._timing.settled_s:
            self._forget_failures()
            return
        self._short_lived += 1
        if self._short_lived > _AT_ONCE:
            problem = f"the kubelet did not keep the last {self._short_lived} registrations of {self.resource}"
            self._retry_later(KubeletError(problem, HINT))

    def _retry_later(self, error: KubeletError) -> None:
        """Wait longer each time; not for a kubelet that hangs, as it was given its time to answer already."""
        if isinstance(error, KubeletSilent):
            self._wake.set()
            if self._timing.slow_s < self._timing.register_s:
                return  # it was told of already
        else:
            self._backoff_s = min(max(self._timing.backoff_min_s, 2 * self._backoff_s), self._timing.backoff_max_s)
            self._retry_at = self._clock() + self._backoff_s
        self._report(error.message, error.hint)

    def _is_watched(self) -> bool:
        """Whether a kubelet shows the list, or may still be about to."""
        if self.publisher.open_streams:
            return True
        now = self._clock()
        if self.publisher.last_stream_change > self._registered_at:
            return now - self.publisher.last_stream_change < self._timing.stream_gap_s
        is_connected = self._methods.now.server.live_connections > 0  # the kubelet was, when it took the registration
        patience_s = self._timing.first_stream_s if is_connected else self._timing.stream_gap_s
        return now - self._registered_at < patience_s

    def _report(self, problem: str, hint: str = "") -> None:
        self._log.standing("kubelet", problem, **({"hint": hint} if hint else {}))
        self._on_state(problem)

    async def _wait(self) -> None:
        """Wait for a hint, at most until the next look is due."""
        pause_s = self._timing.look_s if self._is_registered else self._backoff_s or self._timing.look_s
        if self._is_registered and not self.publisher.open_streams:
            pause_s = min(pause_s, self._timing.stream_gap_s)
        await _wait_at_most(self._wake, pause_s)

    async def _withdraw(self) -> None:
        """Send an empty list, so that the kubelet stops placing pods before the socket goes."""
        was_watched = self.publisher.open_streams > 0
        self.publisher.publish(Publication((), self.publisher.current.table, is_last=True))
        deadline = self._clock() + self._timing.withdraw_s
        while self.publisher.open_streams and (left_s := deadline - self._clock()) > 0:
            self.publisher.stream_ended.clear()
            await _wait_at_most(self.publisher.stream_ended, left_s)
        await self._methods.stop(grace_s=0.2)
        if was_watched:  # whoever registers the same name before the kubelet has noticed would be disconnected
            await asyncio.sleep(self._timing.stream_gap_s)
