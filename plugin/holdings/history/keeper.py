"""Keeps the history of this node over restarts: the shell around `ledger`, and what the kubelet's calls meet of it.

Used in the event loop's thread. What happened is written a second later, in another thread, and nothing is woken while
nothing happens. A file that cannot be written is tried again with the next event, and once a minute; the history is
in memory until then. No room is kept for it on a full disk: a lost explanation costs no pod its GPU.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from plugin.base.errors import HistoryError, os_reason
from plugin.holdings.history.ledger import Ledger
from plugin.holdings.history.model import remember_choice
from plugin.kubelet.pod_resources.holdings import HoldingsView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.devices.allocation.preference.choice import Preference
    from plugin.devices.allocation.table import Holdings
    from plugin.devices.observer import Observation
    from plugin.holdings.history.model import Event
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment

_Result = TypeVar("_Result")
_READ_S = 0.5  # after the start: the kubelet's list comes first
_WRITE_S = 1.0
_WRITE_AGAIN_S = 60.0
_PATIENCE_S = 3.0
_MAX_EARLY = 100
LONG_BYTES = 1024 * 1024  # of log beyond what is known: worth rewriting it


class HistoryKeeper:
    """An `AllocationObserver`: hears of the kubelet's calls. `ask(deadline)` asks the kubelet who has which device.

    `on_allocated` is called with the resource and the time of each allocation, `on_listed` with each answer of the
    kubelet and when it was asked for.
    """

    def __init__(
        self,
        folder: Path,
        ask: Callable[[float], Awaitable[tuple[DeviceAssignment, ...]]],
        logger: Logger,
        long_bytes: int = LONG_BYTES,
    ) -> None:
        self.folder = folder
        self.ledger = Ledger(time.time())
        self.view = HoldingsView(ask, self._listed, lambda: self.ledger.is_waiting, logger)
        self.on_allocated: Callable[[str, Sequence[str], float], None] = lambda _resource, _ids, _at: None
        self.on_listed: Callable[[tuple[DeviceAssignment, ...], float], None] = lambda _assignments, _asked_at: None
        self._log = logger
        self._early: list[tuple[Observation, float]] = []  # before the file was read, and when
        self._is_loaded = False
        self._length = 0  # of the file; 0: it is not known to be good
        self._long_at = 0
        self._long_bytes = long_bytes
        self._disk = ThreadPoolExecutor(1, "history")  # one thread, and one that others do not wait for
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # The file

    def start(self) -> None:
        """Read what is remembered, soon, and write what happens from then on. Called in the loop, before all others."""
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()
        self._task = asyncio.ensure_future(self._keep())

    async def stop(self) -> None:
        """Write what is not written yet, unless the disk hangs."""
        self.view.stop()
        await self._in_time(self._end())

    async def _end(self) -> None:
        await self._load()
        async with self._lock:  # nobody writes now
            if self._task is not None:
                self._task.cancel()
        await self._write()
        self._disk.shutdown(wait=False)

    def move(self, folder: Path) -> None:
        """Write to another folder from now on."""
        if folder != self.folder:
            self.folder, self._length = folder, 0
            self.ledger.write_all()
            self._wake.set()

    async def written(self) -> None:
        """Have everything in the file, as far as it can be written in time, for a reader.

        A write that has begun goes on whatever becomes of who waits for it: the next one must not meet it.
        """
        await self._in_time(self._load_and_write())

    async def _in_time(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        done, _ = await asyncio.wait({task}, timeout=_PATIENCE_S)
        for each in done:
            each.result()

    async def _load_and_write(self) -> None:
        await self._load()
        await self._write()

    async def _keep(self) -> None:
        await asyncio.sleep(_READ_S)
        await self._load()
        while True:
            if self.ledger.has_fresh and not await self._write():
                await self._wait_at_most(_WRITE_AGAIN_S)
            else:
                await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(_WRITE_S)

    async def _wait_at_most(self, timeout_s: float) -> None:
        timer = asyncio.get_running_loop().call_later(timeout_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _on_disk(self, work: Callable[..., _Result], *arguments: object) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)

    async def _load(self) -> None:
        if self._is_loaded:
            return
        folder = self.folder
        events = await self._on_disk(self._read, folder)
        if not self._is_loaded:  # by another call meanwhile
            self._begin_with(events)

    def _begin_with(self, events: list[Event]) -> None:
        self._is_loaded = True
        self.ledger.begin_with(events)
        early, self._early = self._early, []
        for observation, at in early:
            self._observed(observation, at)

    def _read(self, folder: Path) -> list[Event]:
        from plugin.holdings.history.store import read_history, set_damaged_aside

        try:
            return read_history(folder)
        except HistoryError as error:
            self._log.warning(error.message, hint="explain starts from nothing; the file is kept under another name")
        try:
            set_damaged_aside(folder)
        except OSError as error:
            self._log.warning(f"{folder}: the file stays: {os_reason(error)}")
        return []

    async def _write(self) -> bool:
        """Return whether everything is in the file."""
        from plugin.holdings.history.store import append_history

        async with self._lock:
            if not self.ledger.has_fresh:
                return True
            fresh = self.ledger.take_fresh()
            if fresh is not None and 0 < self._length <= self._long_at:
                try:
                    self._length = await self._on_disk(append_history, self.folder, fresh, self._length)
                except OSError:
                    self._length = 0
                else:
                    return True
            return await self._write_all()

    async def _write_all(self) -> bool:
        from plugin.holdings.history.store import write_history

        events = self.ledger.everything()
        try:
            self._length = await self._on_disk(write_history, self.folder, events)
        except OSError as error:
            self.ledger.write_all()
            problem = f"{self.folder}: the history cannot be written: {os_reason(error)}"
            self._log.standing("history", problem, hint="explain knows it until the daemon ends")
            return False
        self._long_at = self._length + self._long_bytes
        self._log.standing("history")
        return True

    # What happens

    def preferred(
        self, resource: str, available: Sequence[str], required: Sequence[str], preference: Preference, size: int
    ) -> None:
        """Remember a preference until it is allocated."""
        self.ledger.preferred(resource, remember_choice(preference, available, required, size, time.time()))

    def reliable(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """Return which devices to choose from, of those that the kubelet takes for free."""
        return self.view.reliable(available, required, size)

    async def holdings(self, device_ids: Sequence[str]) -> Holdings:
        """Return who has any of these devices."""
        return await self.view.holdings(device_ids)

    def giving(self, device_ids: Sequence[str]) -> None:
        """Know from now on that a container has these devices."""
        self.view.giving(device_ids)

    def allocated(self, resource: str, device_ids: Sequence[str]) -> None:
        """Record it, and look soon who has them."""
        is_free, now = not any(map(self.view.held.holder, device_ids)), time.time()
        self.ledger.allocated(resource, device_ids, now, is_joinable=is_free)
        self.on_allocated(resource, device_ids, now)
        self._wake.set()
        self.view.changed(device_ids)

    def claimed(self, resource: str, device_ids: Sequence[str], *, is_sole: bool) -> None:
        """Record what a claim was given, and look soon which pod has it; who else may have it is not the kubelet's."""
        self.ledger.allocated(resource, device_ids, time.time(), is_sole=is_sole)
        self._wake.set()
        self.view.changed()

    def refused(self, resource: str, device_ids: Sequence[str], reason: str) -> None:
        """Record it."""
        self.ledger.refused(resource, device_ids, time.time(), reason)
        self._wake.set()

    def observed(self, observation: Observation) -> None:
        """Record what changed of the devices; until the file is read, it is kept for later."""
        if self._is_loaded:
            self._observed(observation, time.time())
        elif len(self._early) < _MAX_EARLY:
            self._early.append((observation, time.time()))

    def _observed(self, observation: Observation, at: float) -> None:
        self.ledger.observed(observation.inventory, observation.transitions, at)
        if self.ledger.has_fresh:
            self._wake.set()

    def happened(self, device: str, what: str, reason: str) -> None:
        """Record what happened to a device and is no state of it."""
        self.ledger.happened(device, what, reason, time.time())
        self._wake.set()

    def note(self, what: str, reason: str = "") -> None:
        """Record what happened to the whole node."""
        self.ledger.note(what, reason, time.time())
        self._wake.set()

    def _listed(self, assignments: tuple[DeviceAssignment, ...], asked_at: float) -> None:
        self.ledger.listed(assignments, asked_at)
        self.on_listed(assignments, asked_at)
        if self.ledger.has_fresh:
            self._wake.set()
