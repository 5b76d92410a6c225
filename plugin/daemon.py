"""The daemon itself: GPUs on one side, the kubelet on the other, signals in between.

One event loop serves the kubelet, one thread asks the driver. Not here: how either is done.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.allocation import prepare_table
from plugin.errors import ConfigError
from plugin.hook import refresh_host_inventory
from plugin.inventory import HostTree, Inventory
from plugin.kubelet.link import Link, Timing
from plugin.observer import Observation, Observer, ObserverThread, Pace
from plugin.resources import whole_gpus

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.config import NodeConfig
    from plugin.log import Journal
    from plugin.snapshot import GpuSource

_DRIVER_STOP_S = 3.0


@dataclass(frozen=True)
class Surroundings:
    """What the daemon is given, so that a test can give it something else."""

    source: Callable[[], GpuSource]
    read_config: Callable[[], NodeConfig]
    journal: Journal
    notify: Callable[[str], None]
    timing: Timing


class Daemon:
    """Runs until SIGTERM or SIGINT. SIGHUP reads the configuration and the GPUs anew."""

    def __init__(self, config: NodeConfig, surroundings: Surroundings) -> None:
        self._config = config
        self._around = surroundings
        self._journal = surroundings.journal
        self._observation = Observation(Inventory())
        self._link: Link | None = None
        self._link_task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._refreshed_for = ""
        self._is_ready = False
        self._crash: BaseException | None = None

    async def run(self) -> None:
        """Serve until told to stop; raises what a bug in the driver's thread raised."""
        loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._spawn(self._reload()))
        self._observer = ObserverThread(
            self._new_observer(),
            publish=lambda observation: self._hand_over(loop, observation),
            crashed=lambda error: self._in_loop(loop, self._on_crash, error),
        )
        self._observer.start()
        await self._stop.wait()
        await self._shut_down()
        if self._crash is not None:
            raise self._crash

    def _new_observer(self) -> Observer:
        config = self._config
        tree = HostTree(config.dev_root, config.sys_root)
        return Observer(self._around.source(), tree, Pace(config.refresh_s, config.retry_s))

    @staticmethod
    def _in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
        try:
            loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return  # the loop has ended: nobody is interested any more

    def _hand_over(self, loop: asyncio.AbstractEventLoop, observation: Observation) -> None:
        self._in_loop(loop, self._on_observation, observation)

    def _on_crash(self, error: BaseException) -> None:
        self._crash = error
        self._stop.set()

    def _on_observation(self, observation: Observation) -> None:
        if self._stop.is_set():
            return
        self._report(self._observation, observation)
        self._observation = observation
        inventory = observation.inventory
        if observation.waiting_for:
            self._on_state(observation.waiting_for)
        elif inventory.driver_version != self._refreshed_for:
            self._refreshed_for = inventory.driver_version
            self._journal.info("driver", version=inventory.driver_version, gpus=len(inventory.devices))
            self._spawn(self._refresh_hook())
        if self._link is None and inventory.devices:
            self._start_link()
        elif self._link is not None:
            self._publish()

    def _report(self, before: Observation, now: Observation) -> None:
        hint = {"hint": now.hint} if now.hint else {}
        self._journal.standing("driver", now.waiting_for, **hint)
        current = dict(now.inventory.findings)
        for topic in {**dict(before.inventory.findings), **current}:
            self._journal.standing(topic, current.get(topic, ""))
        healthy = {device.gpu.uuid: device.unhealthy for device in before.inventory.devices}
        for device in now.inventory.devices:
            was = healthy.get(device.gpu.uuid, "")
            if device.unhealthy and not was:
                self._journal.warning("unhealthy", device=device.gpu.uuid, reason=device.unhealthy)
            elif was and not device.unhealthy:
                self._journal.info("healthy again", device=device.gpu.uuid, was=was)

    def _start_link(self) -> None:
        self._link = Link(
            resource=self._config.resource,
            folder=self._config.kubelet_root / "device-plugins",
            journal=self._journal,
            on_state=self._on_state,
            timing=self._around.timing,
        )
        self._publish()
        self._link_task = asyncio.ensure_future(self._link.run())
        self._link_task.add_done_callback(self._on_link_end)

    def _on_link_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_crash(error)

    def _publish(self) -> None:
        if self._link is not None:
            inventory = self._observation.inventory
            self._link.publish(whole_gpus(inventory), prepare_table(inventory))

    async def _stop_link(self) -> None:
        if self._link is not None and self._link_task is not None:
            self._link.stop()
            await asyncio.wait({self._link_task})
        self._link = self._link_task = None

    def _on_state(self, waiting_for: str) -> None:
        """Tell systemd. Waiting counts as ready: a node without GPU, driver or kubelet is not a failure."""
        ready = "" if self._is_ready else "READY=1\n"
        self._is_ready = True
        self._around.notify(f"{ready}STATUS={waiting_for or 'registered with the kubelet'}")

    async def _reload(self) -> None:
        try:
            config = self._around.read_config()
        except ConfigError as error:
            self._journal.warning("configuration not reloaded", problem=error.message, hint=error.hint)
            return
        self._journal.info("configuration reloaded")
        before, self._config = self._config, config
        self._refreshed_for = ""
        if (before.resource, before.kubelet_root) != (config.resource, config.kubelet_root):
            await self._stop_link()
        self._observer.restart_with(self._new_observer())

    async def _refresh_hook(self) -> None:
        await refresh_host_inventory(self._config.hook_path, self._config.hook_timeout_s, self._journal)

    def _spawn(self, work: object) -> None:
        task: asyncio.Task[object] = asyncio.ensure_future(work)  # type: ignore[call-overload] # any coroutine
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shut_down(self) -> None:
        self._around.notify("STOPPING=1")
        self._journal.info("stopping")
        for task in self._tasks:
            task.cancel()
        await self._stop_link()
        loop = asyncio.get_running_loop()
        if not await loop.run_in_executor(None, self._observer.stop, _DRIVER_STOP_S):
            self._journal.warning("the driver does not answer: its session is left open", waited_s=_DRIVER_STOP_S)
