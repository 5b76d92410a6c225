"""Keeps the driver observed: one observer at a time in its thread, what health remembers, and a limit for silence.

Not here: what an observation leads to.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plugin.devices.health.keeper import Clock, HealthKeeper
from plugin.devices.inventory import Inventory
from plugin.devices.observer import Observation, Observer, ObserverThread, Pace
from plugin.devices.stall import StallWatch, stalled

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.daemon.dependencies import Dependencies
    from plugin.settings.node_config import NodeConfig

_STOP_S = 3.0


class DriverWatch:
    """Made and used in the event loop, where it calls `on_observation`, and `on_crash` of a bug in the thread.

    An observer that was replaced is not heard any more, whatever its call into the driver brings.
    """

    def __init__(
        self,
        dependencies: Dependencies,
        on_observation: Callable[[Observation], None],
        on_crash: Callable[[BaseException], None],
    ) -> None:
        self.observed = asyncio.Event()  # since the start, the resume, or the last `look_now`
        self.closed = asyncio.Event()  # the session, since the release
        self._dependencies = dependencies
        self._log = dependencies.logger
        self._loop = asyncio.get_running_loop()
        self._on_observation = on_observation
        self._observer: Observer | None = None
        self._health: HealthKeeper | None = None
        self._last = Observation(Inventory())
        self._stall = StallWatch(dependencies.stall_s, self._on_stall)
        self._thread = ObserverThread(
            publish=lambda *seen: self._in_loop(self._hear, *seen),
            released=lambda: self._in_loop(self.closed.set),
            crashed=lambda error: self._in_loop(on_crash, error),
        )

    @property
    def is_let_go(self) -> bool:
        """Whether the driver is not observed, or is not to be."""
        return self._observer is None

    def start(self) -> None:
        """Start the thread; it does what was asked for last."""
        self._thread.start()

    def observe(self, config: NodeConfig, known: Inventory | None = None) -> None:
        """Observe with a new session from now on; known devices that are missing then are unhealthy."""
        self._observer = Observer(
            self._dependencies.open_source(),
            config.host_tree,
            Pace(config.refresh_s, config.retry_s, config.health_s),
            inventory=known or Inventory(),
            health=self._keep_health(config),
            happened=self._thread.observe_now,
        )
        self.observed.clear()
        self._stall.heard()
        self._thread.replace_observer(self._observer)

    def close_session(self) -> None:
        """Let go of the driver and observe nothing; `closed` is set when it is done."""
        self._observer = None
        self._stall.end()
        self.closed.clear()
        self._thread.replace_observer(None)

    def observe_now(self) -> None:
        """Observe before it is time: an administrator gave a verdict."""
        self.observed.clear()
        self._thread.observe_now()

    def ask(self, question: Callable[[], None]) -> None:
        """Have a function called in the driver's thread."""
        self._thread.ask(question)

    async def stop(self) -> None:
        """Close the session and end the thread; a call that hangs is left alone after a while."""
        self._observer = None
        self._stall.end()
        if not await self._loop.run_in_executor(None, self._thread.stop, _STOP_S):
            self._log.warning("the driver does not answer: its session is left open", waited_s=_STOP_S)

    def _keep_health(self, config: NodeConfig) -> HealthKeeper:
        """Return the one keeper of the state folder; a state that could not be written yet is in its memory."""
        if self._health is None or self._health.folder != config.state_folder:
            clock = Clock(config.sys_root / "module/nvidia")
            self._health = HealthKeeper(config.state_folder, clock, self._log)
        self._health.policy = config.settings.policy._replace(quiet_s=config.quiet_s)
        return self._health

    def _in_loop(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return  # the loop has ended: nothing waits for it any more

    def _hear(self, observer: Observer, observation: Observation) -> None:
        if observer is self._observer:
            self._stall.heard(max(observer.pace.refresh_s, observer.pace.retry_s))
            self._last = observation
            self._on_observation(observation)

    def _on_stall(self) -> None:
        if self._observer is not None:
            self._hear(self._observer, stalled(self._last, self._dependencies.stall_s))
