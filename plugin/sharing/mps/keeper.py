"""Keeps one GPU's control daemon as it is wanted: found or started, answering, with its ceilings; or ended.

One step at a time, each from what is so now, so that it does not matter what was killed before, or when. Not here:
which GPUs are wanted (`supervisor`).
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.errors import MpsError
from plugin.sharing.mps.compute_mode import DriverModes, give_back, take
from plugin.sharing.mps.folders import prepare_folders, trim_logs
from plugin.sharing.mps.pace import Pace, Retries
from plugin.sharing.mps.programs import ExitWatch
from plugin.sharing.mps.units import Units, UnitState

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.base.log import Logger
    from plugin.sharing.mps.control import Control
    from plugin.sharing.mps.plan import MpsDaemon
    from plugin.sharing.mps.protocol import ShownLimits

STARTING = "its MPS control daemon is being started"
_CHANGING = "its MPS control daemon is about to have other limits"
_ENDING = "its MPS control daemon is about to end"


@dataclass(frozen=True)
class Tools:
    """What a control daemon is reached through."""

    control: Control
    units: Units
    modes: DriverModes
    logger: Logger
    pace: Pace = field(default_factory=Pace)


class DaemonKeeper:
    """`problem` is why the GPU cannot be shared now, "" while it can; `changed` is called when it is another.

    `daemon` is the one that is wanted, or the last one that was; `is_done` tells that it has ended.
    """

    def __init__(self, daemon: MpsDaemon, tools: Tools, changed: Callable[[], None]) -> None:
        self.daemon = daemon
        self.problem = STARTING
        self.is_done = False
        self._tools, self._pace = tools, tools.pace
        self._changed = changed
        self._is_wanted = True
        self._is_stopped = False
        self._keeps_mode = False
        self._due = asyncio.Event()
        self._exit = ExitWatch(self._due.set)
        self._state = UnitState()
        self._retries = Retries(tools.pace)
        self._misses = self._failures = 0
        self._started_s = self._up_s = time.monotonic()
        self._took_mode_s: float | None = None
        self._limits: ShownLimits | None = None

    def want(self, daemon: MpsDaemon) -> None:
        """Keep this one from now on."""
        if not self._is_wanted or daemon != self.daemon:
            self.daemon, self._is_wanted, self.is_done = daemon, True, False
            self._took_mode_s = self._limits = None
            self.problem = self.problem or _CHANGING  # from now on: whoever wants it asks before the next step
            self._due.set()

    def end(self, *, keeps_mode: bool) -> None:
        """End it when its last client has gone. `keeps_mode`: the driver is not asked for the compute mode."""
        self._is_wanted, self._keeps_mode = False, keeps_mode
        self.problem = self.problem or _ENDING
        self._due.set()

    def stop(self) -> None:
        """Have `run` return after its step, whatever is so then."""
        self._is_stopped = True
        self._due.set()

    async def run(self) -> None:
        """Keep it so, until it has ended and is not wanted."""
        try:
            while not self._is_stopped and (self._is_wanted or not self.is_done):
                self._due.clear()
                pause_s = await self._step()
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._due.wait(), pause_s)
        finally:
            self._exit.close()

    async def end_if_idle(self) -> None:
        """End it now, unless it has clients or does not say. Only when `run` does not run any more."""
        with suppress(MpsError):
            state = await self._tools.units.state(self.daemon)
            if state.is_active and await self._tools.control.list_clients(self.daemon):
                self._tools.logger.info("mps is left to its clients", gpu=self.daemon.uuid)
                return
            if state.is_active:
                await self._quit(self.daemon)
            await self._give_back(self.daemon)

    async def _step(self) -> float:
        """Do what is next; returns how long to wait then."""
        try:
            if not self._exit.is_watching:
                self._state = await self._tools.units.state(self.daemon)
                self._exit.watch(self._state.main_pid)
            pause_s = await self._next(self._state)
        except MpsError as error:
            self._show(error.message, error.hint)
            self._failures += 1
            return min(self._pace.recheck_s * 2.0 ** min(self._failures, 16), self._pace.check_s)
        self._failures = 0
        return pause_s

    async def _next(self, state: UnitState) -> float:
        elsewhere = Path(state.pipe).parent if state.is_active and state.pipe else self.daemon.folder
        if elsewhere != self.daemon.folder:
            return await self._end(replace(self.daemon, folder=elsewhere), state)
        return await (self._keep(state) if self._is_wanted else self._end(self.daemon, state))

    async def _keep(self, state: UnitState) -> float:
        if not state.is_active:
            return await self._start()
        try:
            shown = await self._tools.control.read_limits(self.daemon)
        except MpsError as error:
            return await self._missed(error)
        self._misses = 0
        if shown != self._limits:
            await self._limit()
        now_s = time.monotonic()
        if self._took_mode_s is None or now_s - self._took_mode_s >= self._pace.mode_s:
            await self._take_mode()
        if not self._is_wanted or self._limits is None:
            return 0.0  # something else is wanted since this step began
        self._retries.ran_for(now_s - self._up_s)
        trim_logs(self.daemon)
        self._show("")
        return self._pace.check_s

    async def _start(self) -> float:
        now_s = time.monotonic()
        if not self.problem:
            self._show("its MPS control daemon does not run")
        left_s = self._retries.left_s(now_s)
        if left_s:
            return left_s
        self._retries.started(now_s)
        prepare_folders(self.daemon)
        await self._take_mode()
        await self._tools.units.start(self.daemon)
        self._limits = None
        self._started_s = self._up_s = time.monotonic()
        self._misses = 0
        self._tools.logger.info("mps started", gpu=self.daemon.uuid, unit=self.daemon.unit)
        return 0.0

    async def _take_mode(self) -> None:
        if await take(self._tools.modes, self.daemon):
            self._tools.logger.info("compute mode set", gpu=self.daemon.uuid, mode="EXCLUSIVE_PROCESS")
        self._took_mode_s = time.monotonic()

    async def _limit(self) -> None:
        """Set the limits, and keep in mind how they are shown then: what differs later was set by another program."""
        if self._limits is not None:
            self._tools.logger.warning("mps has other limits than were set", gpu=self.daemon.uuid)
        await self._tools.control.set_limits(self.daemon)
        shown = await self._tools.control.read_limits(self.daemon)
        if not shown.may_be(self.daemon):
            words = f"memory {shown.memory.strip()[:32]!a}, threads {shown.threads.strip()[:32]!a}"
            raise MpsError(f"its control daemon does not take its limits: {words}", f"see {self.daemon.log}")
        self._limits = shown

    async def _missed(self, error: MpsError) -> float:
        """Take the GPU away at the first missed answer, and end the control daemon at the last one that it may miss."""
        if time.monotonic() - self._started_s < self._pace.start_s and self.problem:
            return min(self._pace.recheck_s, 0.2)
        self._misses += 1
        self._show(error.message, error.hint)
        if self._misses < self._pace.misses:
            return self._pace.missed_s
        self._tools.logger.warning("mps is ended, as it does not answer", gpu=self.daemon.uuid, times=self._misses)
        self._misses = 0
        await self._tools.units.stop(self.daemon)
        return 0.0

    async def _end(self, daemon: MpsDaemon, state: UnitState) -> float:
        if not state.is_active:
            await self._give_back_or_leave(daemon)
            self.is_done = not self._is_wanted
            self._show("it is not shared through MPS")
            return 0.0
        try:
            clients = await self._tools.control.list_clients(daemon)
        except MpsError as error:
            return await self._missed(error)
        if clients:
            named = ", ".join(map(str, clients[:8]))
            self._show(f"its MPS server ends when its clients have ended: {len(clients)}, as process {named}")
            return self._pace.recheck_s
        await self._quit(daemon)
        self._tools.logger.info("mps ended", gpu=daemon.uuid)
        await self._give_back(daemon)
        return 0.0

    async def _give_back_or_leave(self, daemon: MpsDaemon) -> None:
        """Give up after some attempts, as the GPU may have gone; the next process tries again."""
        try:
            await self._give_back(daemon)
        except MpsError as error:
            if self._failures < self._pace.misses:
                raise
            self._tools.logger.warning("compute mode stays", gpu=daemon.uuid, problem=error.message, hint=error.hint)

    async def _give_back(self, daemon: MpsDaemon) -> None:
        if not self._keeps_mode:
            await give_back(self._tools.modes, daemon)

    async def _quit(self, daemon: MpsDaemon) -> None:
        """Have it end by itself; what is left after a while is ended by systemd."""
        with suppress(MpsError):
            await self._tools.control.quit(daemon)
        deadline_s = time.monotonic() + self._pace.quit_s
        while (await self._tools.units.state(daemon)).is_active:
            if time.monotonic() >= deadline_s:
                await self._tools.units.stop(daemon)
                return
            await asyncio.sleep(0.1)

    def _show(self, problem: str, hint: str = "") -> None:
        """Tell what is so, once."""
        if problem == self.problem:
            return
        self.problem = problem
        self._up_s = time.monotonic()
        fields = {"hint": hint} if hint else {}
        if problem and self._is_wanted and problem != STARTING:
            self._tools.logger.warning(
                "gpu cannot be shared through mps", gpu=self.daemon.uuid, problem=problem, **fields
            )
        elif not problem:
            self._tools.logger.info("gpu is shared through mps", gpu=self.daemon.uuid, replicas=self.daemon.replicas)
        self._changed()
