"""The daemon itself: GPUs on one side, the kubelet on the other, signals and the admin socket in between.

One event loop serves the kubelet, one thread asks the driver. While `released.json` says that the node is
released, nobody asks it, and every known GPU is shown as unhealthy: the kubelet then keeps the capacity
and places nothing. Not here: how any of this is done.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.admin.answers import Answers
from plugin.admin.server import AdminServer
from plugin.daemon.container_hook import HookTeller
from plugin.daemon.later import AFTER_S, load_the_rest
from plugin.daemon.node_object import node_object
from plugin.daemon.once import AtMostOnce
from plugin.daemon.reporting import report
from plugin.daemon.systemd import ServiceStatus, status_line
from plugin.devices.inventory import HostTree, Inventory, without_driver
from plugin.devices.observer import Observation, Observer, ObserverThread, Pace
from plugin.devices.stall import STALL_S, StallWatch, stalled
from plugin.driver_change.release.record import Release, remembered_inventory
from plugin.driver_change.release.store import read_release
from plugin.errors import ConfigError, DriverNotReady
from plugin.health.keeper import Clock, HealthKeeper
from plugin.history.keeper import HistoryKeeper
from plugin.kubelet.offering import Offering, names_of_offers
from plugin.kubelet.pod_resources.client import list_given
from plugin.labels.keeper import LabelKeeper
from plugin.metrics.counters import Counters
from plugin.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.driver.snapshot import GpuSource
    from plugin.kubelet.pod_resources.attribution import Given
    from plugin.kubelet.registration.link import Timing
    from plugin.log import Journal
    from plugin.metrics.scrape import Telemetry
    from plugin.metrics.server import MetricsServer
    from plugin.settings.node_config import NodeConfig

_DRIVER_STOP_S = 3.0


@dataclass(frozen=True)
class Surroundings:
    """What the daemon is given, so that a test can give it something else."""

    source: Callable[[], GpuSource]
    read_config: Callable[[], NodeConfig]
    journal: Journal
    notify: Callable[[str], None]
    timing: Timing
    read_telemetry: Callable[[], Telemetry]
    proc: Path = Path("/proc")
    log: Path = Path("/var/log")
    stall_s: float = STALL_S


class Daemon:
    """Runs until SIGTERM or SIGINT. SIGHUP reads the configuration and the GPUs anew."""

    def __init__(self, config: NodeConfig, surroundings: Surroundings) -> None:
        self._config = config
        self._around = surroundings
        self._journal = surroundings.journal
        self.observation = Observation(Inventory())
        self.last_seen = self.observation  # of the driver; the other one is what is shown
        self._observer: Observer | None = None
        self._health: HealthKeeper | None = None
        self.release: Release | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._hook = HookTeller(config, self._journal, self._spawn)
        self._kubelet = "registering with the kubelet"
        self.is_registered = False
        self.counters = Counters()
        self._metrics: MetricsServer | None = None
        self._service = ServiceStatus(surroundings.notify)
        self._node = node_object(config, self._journal)
        self._crash: BaseException | None = None
        self.history = HistoryKeeper(config.state_folder, self.list_given, self._journal)
        self._stall = StallWatch(surroundings.stall_s, self._on_stall)
        self._reload_once = AtMostOnce(self._reload, self._spawn)
        self.offering = Offering(
            self._journal,
            surroundings.timing,
            on_state=self._on_kubelet,
            crashed=self._on_crash,
            counter=self.counters,
            witness=self.history,
        )

    async def run(self) -> None:
        """Serve until told to stop; raises what a bug in the driver's thread raised."""
        loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.let_go = asyncio.Event()  # the driver, since the release
        self.observed = asyncio.Event()  # the driver, since the start or the resume
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload_once)
        self._thread = ObserverThread(
            publish=lambda *seen: self._in_loop(loop, self._on_observation, *seen),
            released=lambda: self._in_loop(loop, self.let_go.set),
            crashed=lambda error: self._in_loop(loop, self._on_crash, error),
        )
        self._timer = loop.call_later(0, lambda: None)
        loop.call_later(AFTER_S, load_the_rest)
        self.labels = LabelKeeper(self._journal)
        self.labels.on_change = self._node.label
        self._spawn(self.labels.follow())
        self.history.start()
        self._observe()
        # The socket is there before the file is read: whoever changes the file and finds no socket knows
        # that this daemon will read what was written.
        await self._open_admin_socket()
        self.follow_release()
        self._thread.start()
        await self._serve_metrics()
        await self._stop.wait()
        await self._shut_down()
        if self._crash is not None:
            raise self._crash

    @staticmethod
    def _in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
        try:
            loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return  # the loop has ended: nobody is interested any more

    def _on_crash(self, error: BaseException) -> None:
        self._crash = error
        self._stop.set()

    # Looking at the driver

    def _observe(self, known: Inventory | None = None) -> None:
        """Look with a new session from now on; known devices that are missing then are unhealthy."""
        config = self._config
        tree = HostTree(config.dev_root, config.sys_root)
        pace = Pace(config.refresh_s, config.retry_s, config.health_s)
        health = self._keep_health(config)
        source, happened = self._around.source(), self._thread.look_now
        self._observer = Observer(source, tree, pace, inventory=known or Inventory(), health=health, happened=happened)
        self.observed.clear()
        self._stall.heard()
        self._thread.look_with(self._observer)

    def _keep_health(self, config: NodeConfig) -> HealthKeeper:
        """Return the one keeper of the state folder; a state that could not be written yet is in its memory."""
        if self._health is None or self._health.folder != config.state_folder:
            clock = Clock(config.sys_root / "module/nvidia")
            self._health = HealthKeeper(config.state_folder, clock, self._journal)
        self._health.policy = config.settings.policy._replace(quiet_s=config.quiet_s)
        return self._health

    def look_now(self) -> None:
        """Have the driver's thread look before it is time: somebody gave a verdict."""
        self.observed.clear()
        self._thread.look_now()

    def _on_observation(self, observer: Observer, observation: Observation) -> None:
        if self._stop.is_set() or observer is not self._observer:
            return
        self._stall.heard(max(observer.pace.refresh_s, observer.pace.retry_s))
        self.follow_release()
        if self.release is not None:
            return
        report(self._journal, self.last_seen, observation)
        self.counters.observed(self.last_seen.inventory, observation.inventory)
        for change in observation.transitions:
            if change.new_xid is not None:
                self.counters.xid(change.uuid, change.new_xid)
        self.observation = self.last_seen = observation
        self.history.observed(observation)
        if observation.waiting_for and self._config.settings.ends_without_driver and not self.last_seen.has_driver:
            self._on_crash(DriverNotReady(observation.waiting_for, "failOnInitError is set: false waits instead"))
            return
        self.observed.set()
        inventory = observation.inventory
        self.offering.show(self._config, inventory)  # first: pods wait for it
        if not observation.waiting_for:
            self._hook.tell(self._config, inventory)
        self.labels.observed(observation, self._config)
        self._node.show(observation)
        if self._service.is_ready or observation.waiting_for or not self.offering.resources:
            self._tell_systemd()

    def _on_stall(self) -> None:
        if self._observer is not None:
            self._on_observation(self._observer, stalled(self.last_seen, self._around.stall_s))

    # The release

    def follow_release(self) -> None:
        """Do what the file says now. Called at every occasion, so that nothing depends on being told."""
        release = read_release(self._config.state_folder)
        if release == self.release or self._stop.is_set():
            return
        before, self.release = self.release, release
        if release is not None:
            self._withdraw(release, is_new=before is None)
            return
        self._journal.info("resumed")
        self.history.note("resumed")
        self._hook.forget()
        self._observe(self.observation.inventory)
        self._tell_systemd()

    def _withdraw(self, release: Release, *, is_new: bool) -> None:
        hint = {"hint": "grapnel-node resume forgets it"} if release.problem else {}
        self._journal.warning(release.describe(), **hint)
        self.history.note("released", release.describe())
        known = self.observation.inventory
        if not known.devices:
            known = remembered_inventory(release, HostTree(self._config.dev_root, self._config.sys_root))
        self.observation = Observation(without_driver(known, release.describe()))
        self.offering.show(self._config, self.observation.inventory)
        self._node.show(self.observation, release.describe())
        self._tell_systemd()
        if is_new:
            self._observer = None
            self._stall.end()
            self.let_go.clear()
            self._thread.look_with(None)
            self._look_later()

    def _look_later(self) -> None:
        """Look at the file at the pace of the driver, which nobody asks meanwhile."""
        self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._config.refresh_s, self._look_again)

    def _look_again(self) -> None:
        self.follow_release()
        if self.release is not None and not self._stop.is_set():
            self._look_later()

    # The admin socket

    async def _open_admin_socket(self) -> None:
        path = self._config.admin_socket
        self._admin = AdminServer(path, Answers(self).answer, self._journal)
        try:
            await self._admin.start()
        except OSError as error:
            problem = f"{path} cannot be served: {(error.strerror or str(error)).lower()}"
            self._journal.warning(problem, hint="release and resume are followed all the same, but not at once")

    # Metrics

    async def _serve_metrics(self) -> None:
        """Serve them where the configuration says so; else nothing of them is loaded."""
        await self._end_metrics()
        if not (address := self._config.metrics_address):
            return
        from plugin.metrics.endpoint import serve_metrics  # noqa: PLC0415 - off until asked for

        self._metrics = await serve_metrics(address, self, self._around)

    async def list_given(self, deadline_s: float) -> tuple[Given, ...]:
        """Ask the kubelet who has which device; raises KubeletError."""
        return await list_given(self._config.kubelet_root, deadline_s)

    async def _end_metrics(self) -> None:
        if self._metrics is not None:
            await self._metrics.close()
        self._metrics = None

    @property
    def refresh_s(self) -> float:
        """How often the driver is asked."""
        return self._config.refresh_s

    def ask_driver(self, question: Callable[[], None]) -> None:
        """Have a function called in the driver's thread."""
        self._thread.ask(question)

    # Signals and systemd

    def _on_kubelet(self, waiting_for: str) -> None:
        self._kubelet = waiting_for or "registered with the kubelet"
        self.is_registered = not waiting_for
        if self.is_registered:
            self.history.view.kubelet_came()
        self._tell_systemd()

    def _tell_systemd(self) -> None:
        """Say what is so. Waiting counts as ready: a node without GPU, driver or kubelet is not a failure."""
        line = status_line(
            self.release,
            self.observation,
            is_observed=self.observed.is_set(),
            is_offered=bool(self.offering.resources),
            kubelet=self._kubelet,
        )
        self._service.say(line)

    async def _reload(self) -> None:
        try:
            config = self._around.read_config()
        except ConfigError as error:
            self._journal.warning("configuration not reloaded", problem=error.message, hint=error.hint)
            return
        self._journal.info("configuration reloaded")
        before, self._config = self._config, config
        self._hook.forget()
        self.history.move(config.state_folder)
        if names_of_offers(before) != names_of_offers(config):
            await self.offering.stop()
            self.is_registered = False
        if before.admin_socket != config.admin_socket:
            await self._admin.close()
            await self._open_admin_socket()
        if before.metrics_address != config.metrics_address:
            await self._serve_metrics()
        if (before.kubernetes_api, before.node_name) != (config.kubernetes_api, config.node_name):
            await asyncio.to_thread(self._node.close)
            self._node = node_object(config, self._journal)
            self.labels.on_change = self._node.label
            if self.labels.current is not None:
                self._node.label(self.labels.current)
        if self.release is None:
            self._observe()
        else:
            self.offering.show(config, self.observation.inventory)
            self._node.show(self.observation, self.release.describe())
        self.follow_release()

    def _spawn(self, work: object) -> None:
        task: asyncio.Task[object] = asyncio.ensure_future(work)  # type: ignore[call-overload] # any coroutine
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shut_down(self) -> None:
        self._around.notify("STOPPING=1")
        self._journal.info("stopping")
        self._stall.end()
        for task in self._tasks:
            task.cancel()
        self.labels.close(stays=self.release is not None)
        await self._admin.close()
        await self._end_metrics()
        # Before the GPUs are withdrawn: it takes up to a second, in which they are as good as before.
        loop = asyncio.get_running_loop()
        closing = loop.run_in_executor(None, self._thread.stop, _DRIVER_STOP_S)
        _, is_closed = await asyncio.gather(asyncio.to_thread(self._node.close), closing)
        await self.offering.stop()
        await self.history.stop()
        if not is_closed:
            self._journal.warning("the driver does not answer: its session is left open", waited_s=_DRIVER_STOP_S)
