"""The MPS control daemons of a node: which GPUs can be shared through MPS now, and why the others cannot.

Used in the event loop. Not here: which GPUs are to be shared (the settings), what is offered, and when a GPU is free.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.errors import DeviceNotReady, InvalidRequest, MpsError
from plugin.driver.uuid import is_gpu_uuid
from plugin.sharing.mps.answer import ShareAnswer, answer_share
from plugin.sharing.mps.compute_mode import DriverModes
from plugin.sharing.mps.control import PROGRAM, Control
from plugin.sharing.mps.keeper import DaemonKeeper, Tools
from plugin.sharing.mps.pace import Pace
from plugin.sharing.mps.plan import MpsDaemon, MpsPlan
from plugin.sharing.mps.units import Units

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from plugin.base.log import Logger

_NOT_WANTED = "it is not to be shared through MPS"


def tools_of_machine(hand_over: Callable[[Callable[[], None]], None], logger: Logger) -> Tools:
    """Return what there is on this machine; `hand_over` has a function called in the driver's thread."""
    pace = Pace()
    return Tools(Control(PROGRAM, pace.answer_s), Units(PROGRAM), DriverModes(hand_over), logger, pace)


class MpsSupervisor:
    """`changed` is called when another GPU can be shared, or one cannot any more; `crashed` with a bug."""

    def __init__(self, tools: Tools, changed: Callable[[], None], crashed: Callable[[BaseException], None]) -> None:
        self._tools = tools
        self._changed = changed
        self._crashed = crashed
        self._keepers: dict[str, DaemonKeeper] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._plan = MpsPlan(Path())
        self._search: asyncio.Task[None] | None = None
        self._is_released = False

    def want(self, plan: MpsPlan) -> None:
        """Have these control daemons and no others; those of other GPUs end when their last client has gone.

        May be called at every occasion: where nothing is new, nothing happens.
        """
        is_news, self._plan, self._is_released = plan != self._plan or self._is_released, plan, False
        if not is_news:
            return
        for daemon in plan.daemons:
            self._keep(daemon)
        self._end_others({daemon.uuid for daemon in plan.daemons})
        if self._search is None:
            self._search = self._spawn(self._find_others(plan.root))

    def release(self) -> None:
        """End all of them, as the driver is to be closed: the driver is not asked, and compute modes stay noted."""
        self._is_released = True
        self._end_others(set())

    def problem(self, uuid: str) -> str:
        """Return why a GPU cannot be shared through MPS at the moment, "" where it can."""
        refused = dict(self._plan.refusals).get(uuid)
        if refused:
            return refused
        keeper = self._keepers.get(uuid)
        return _NOT_WANTED if keeper is None else keeper.problem

    def ending(self, uuid: str) -> str:
        """Return why a GPU that is not to be shared any more still is, "" where it is not."""
        keeper = self._keepers.get(uuid)
        return "" if keeper is None or self._is_kept(uuid) else keeper.problem

    @property
    def problems(self) -> Mapping[str, str]:
        """By UUID, for each GPU that is to be shared through MPS: `problem`."""
        wanted = (*(daemon.uuid for daemon in self._plan.daemons), *(uuid for uuid, _ in self._plan.refusals))
        return {uuid: self.problem(uuid) for uuid in wanted}

    def answer(self, uuids: Collection[str]) -> ShareAnswer:
        """Return what a container with shares of these GPUs gets; raises InvalidRequest or DeviceNotReady."""
        daemons = {daemon.uuid: daemon for daemon in self._plan.daemons}
        for uuid in uuids:
            why = self.problem(uuid)
            if uuid not in daemons:
                raise InvalidRequest(f"{uuid}: {why}")
            if why:
                raise DeviceNotReady(f"{uuid}: {why}", f"see: systemctl status {daemons[uuid].unit}")
        return answer_share([daemons[uuid] for uuid in uuids])

    async def ended(self, timeout_s: float) -> tuple[str, ...]:
        """Wait until all that are to end have ended; returns what is left of them after `timeout_s`, in words."""
        ending = {uuid: task for uuid, task in self._tasks.items() if not self._is_kept(uuid)}
        if ending:
            await asyncio.wait(ending.values(), timeout=timeout_s)
        return tuple(f"{uuid}: {self._keepers[uuid].problem}" for uuid in ending if uuid in self._keepers)

    async def close(self, timeout_s: float) -> None:
        """End those without a client, and leave the others to the next process; in at most `timeout_s`."""
        ends = [asyncio.ensure_future(self._close(*pair)) for pair in self._tasks.items()]
        ends += [self._search] if self._search is not None else []
        if ends:
            _, late = await asyncio.wait(ends, timeout=timeout_s)
            for end in late:
                end.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _close(self, uuid: str, task: asyncio.Task[None]) -> None:
        keeper = self._keepers[uuid]
        keeper.stop()
        await asyncio.wait({task})
        if not keeper.is_done:
            await keeper.end_if_idle()

    def _is_kept(self, uuid: str) -> bool:
        return not self._is_released and any(daemon.uuid == uuid for daemon in self._plan.daemons)

    def _keep(self, daemon: MpsDaemon) -> None:
        keeper = self._keepers.get(daemon.uuid)
        if keeper is not None:
            keeper.want(daemon)
            return
        keeper = self._keepers[daemon.uuid] = DaemonKeeper(daemon, self._tools, self._changed)
        self._tasks[daemon.uuid] = self._spawn(self._run(keeper))

    def _end_others(self, kept: Collection[str]) -> None:
        for uuid, keeper in self._keepers.items():
            if uuid not in kept:
                keeper.end(keeps_mode=self._is_released)

    async def _run(self, keeper: DaemonKeeper) -> None:
        await keeper.run()
        if keeper.is_done:
            del self._keepers[keeper.daemon.uuid], self._tasks[keeper.daemon.uuid]
            self._changed()

    async def _find_others(self, root: Path) -> None:
        """End what an earlier process has left of GPUs that are not shared any more."""
        folders = _noted_folders(root)
        try:
            folders |= {state.uuid: Path(state.pipe).parent for state in await self._tools.units.list_all()}
        except MpsError as error:
            self._tools.logger.warning("cannot look for older control daemons of mps", problem=error.message)
        for uuid, folder in folders.items():
            if uuid not in self._keepers and is_gpu_uuid(uuid):
                self._keep(MpsDaemon(uuid, folder, 1, 0, 0))
                self._keepers[uuid].end(keeps_mode=self._is_released)

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._on_end)
        return task

    def _on_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._crashed(error)


def _noted_folders(root: Path) -> dict[str, Path]:
    """Return the folders of GPUs whose compute mode was changed, by UUID."""
    return {path.parent.name: path.parent for path in root.glob("GPU-*/compute-mode")}
