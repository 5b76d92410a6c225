"""The daemon: observations of the driver on one side, the kubelet on the other, wired together.

One event loop serves the kubelet, one thread asks the driver. While `released.json` says that the node is
released, it is not asked, and every known GPU is shown as unhealthy: the kubelet then keeps the capacity
and places nothing. Not here: how any of this is done.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from plugin.admin.answers import Answers
from plugin.base.errors import ConfigError, DriverNotReady
from plugin.changes.driver_change.release.record import remembered_inventory
from plugin.daemon.coalesced import Coalesced
from plugin.daemon.config_files import ConfigFiles
from plugin.daemon.container_hook import HookNotifier
from plugin.daemon.deferred_imports import AFTER_S, load_deferred
from plugin.daemon.drift import DriftWatch
from plugin.daemon.driver_watch import DriverWatch
from plugin.daemon.endpoints import AdminEndpoint, MetricsEndpoint
from plugin.daemon.mig_change import MigChanges
from plugin.daemon.optional.claims import Claims
from plugin.daemon.optional.config_by_label import ConfigByLabel
from plugin.daemon.optional.memory_limits import MemoryLimits
from plugin.daemon.optional.memory_units import MemoryUnits, read_unit_sizes, write_unit_sizes
from plugin.daemon.optional.mps_sharing import MpsSharing
from plugin.daemon.optional.node_object import OwnNode
from plugin.daemon.optional.other_devices import OtherDevices
from plugin.daemon.optional.overuse import Overuse
from plugin.daemon.release_watch import ReleaseWatch
from plugin.daemon.state import State, log_changes
from plugin.daemon.systemd import ServiceStatus, others_words, status_line
from plugin.daemon.tasks import Tasks
from plugin.devices.inventory import without_driver
from plugin.devices.observer import Observation
from plugin.holdings.history.keeper import HistoryKeeper
from plugin.kubelet.offering import Offering
from plugin.kubelet.pod_resources.client import list_assignments
from plugin.publication.labels.keeper import LabelKeeper
from plugin.publication.metrics.counters import Counters
from plugin.settings.node_config import DEVICE_PLUGIN, DRA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.changes.driver_change.release.record import Release
    from plugin.daemon.dependencies import Dependencies
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment
    from plugin.settings.node_config import NodeConfig
    from plugin.system.http.server import HttpServer


async def run(config: NodeConfig, dependencies: Dependencies) -> None:
    """Serve until SIGTERM or SIGINT; raises what a bug in the driver's thread raised."""
    await Daemon(config, dependencies).run()


class Daemon:
    """Made in the event loop. SIGHUP reads the configuration and the GPUs again."""

    def __init__(self, config: NodeConfig, dependencies: Dependencies) -> None:
        self._config = config
        self._dependencies = dependencies
        self._log = logger = dependencies.logger
        self._state = State()
        self._tasks = Tasks()
        self._stop = asyncio.Event()
        self._crash: BaseException | None = None
        self._counters = Counters()
        self._service = ServiceStatus(dependencies.notify)
        self._hook = HookNotifier(config, logger, self._tasks.spawn)
        self._node = OwnNode(config, logger)
        self._drift = DriftWatch(
            lambda: self._config.state_folder, self._node.compare, logger, dependencies.drift_pace_s
        )
        self._refused = ""  # why the configuration was not taken in, when it was read last
        self._reload_soon = Coalesced(self._reload, self._tasks.spawn)
        self._by_label = ConfigByLabel(dependencies.read_config, self._reload_soon, self._node.annotate, logger)
        self._labels = LabelKeeper(logger)
        self._labels.on_change, self._labels.on_features = self._node.label, self._node.feature
        self._history = HistoryKeeper(config.state_folder, self._list_assignments, logger)
        self._units = MemoryUnits(self._node.annotate)
        self._history.on_allocated, self._history.on_listed = self._on_allocated, self._on_listed
        self._driver = DriverWatch(dependencies, self._on_observation, self._on_crash)
        self._releases = ReleaseWatch(config, self._on_release, self._on_resume)
        self._mig = MigChanges(config, self._driver, logger, reopen=self._observe_again, changed=self._offer_again)
        self._mps = MpsSharing(self._driver.ask, dependencies, self._offer_again, self._on_crash)
        self._claims = Claims(self._history, self._mps, dependencies.smi, self._tasks.spawn, logger)
        self._claims.ask = self._driver.ask
        self._claims.on_change = self._offer_again
        self._claims.on_state = lambda waiting_for: self._on_registration(DRA, waiting_for)
        self._offering = Offering(
            logger,
            dependencies.timing,
            on_state=lambda waiting_for: self._on_registration(DEVICE_PLUGIN, waiting_for),
            crashed=self._on_crash,
            counter=self._counters,
            observer=self._history,
            sharing=self._mps,
        )
        self._offering.unit_bytes = read_unit_sizes(config.state_folder)
        self._limits = MemoryLimits(
            ask=self._driver.ask,
            list_assignments=self._list_assignments,
            unit_bytes=self._unit_bytes,
            claimed=self._claims.memory,
            policy=lambda: self._config.memory_limits,
            cgroup_root=dependencies.cgroup_folder,
            logger=logger,
        )
        self._overuse = self._make_overuse(dependencies)
        self._others = OtherDevices(self._offering, self._claims.others, logger, self._on_others)
        self._claims.others.on_change = self._others.show_again
        self._admin = AdminEndpoint(self._make_answers().answer, logger)
        self._metrics = MetricsEndpoint(self._start_metrics)

    def _make_answers(self) -> Answers:
        return Answers(
            self._state,
            self._driver,
            self._offering,
            self._history,
            self._follow,
            claims=self._claims,
            config=lambda: self._config,
            limits=self._limits,
            mps=self._mps,
        )

    def _make_overuse(self, dependencies: Dependencies) -> Overuse:
        return Overuse(
            ask=self._driver.ask,
            list_assignments=self._list_assignments,
            limits=self._limits,
            unit_bytes=self._unit_bytes,
            cluster=self._node,
            history=self._history,
            config=lambda: self._config,
            is_in_service=lambda: self._state.release is None and not self._state.observation.waiting_for,
            spawn=self._tasks.spawn,
            dependencies=dependencies,
        )

    async def run(self) -> None:
        """Serve until told to stop; raises what a bug in the driver's thread raised."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        is_due = asyncio.Event()
        loop.add_signal_handler(signal.SIGHUP, is_due.set)
        self._config = self._releases.config = await self._by_label.first(self._config, self._stop)
        self._state.interfaces = self._config.interfaces
        loop.add_signal_handler(signal.SIGHUP, self._reload_soon)
        loop.call_later(AFTER_S, load_deferred)
        self._tasks.spawn(self._labels.follow())
        self._tasks.spawn(self._drift.follow())
        if self._dependencies.follows_files:
            self._tasks.spawn(ConfigFiles(lambda: self._config, self._reload_soon).follow())
        self._history.start()
        await self._claims.follow(self._config)
        self._driver.observe(self._config)
        # The socket is there before the file is read: whoever changes the file and finds no socket knows
        # that this daemon will read what was written.
        await self._admin.serve(self._config.admin_socket)
        self._follow()
        self._driver.start()
        self._others.follow(self._config)
        self._by_label.follow(self._config)
        await self._metrics.serve(self._config.metrics_address)
        if is_due.is_set():
            self._reload_soon()
        await self._stop.wait()
        await self._shut_down()
        if self._crash is not None:
            raise self._crash

    def _on_crash(self, error: BaseException) -> None:
        self._crash = error
        self._stop.set()

    def _on_observation(self, observation: Observation) -> None:
        state = self._state
        self._follow()
        if self._stop.is_set() or state.release is not None or self._mig.has_closed:
            return
        before, state.observation, state.last_seen = state.last_seen, observation, observation
        log_changes(self._log, before, observation)
        self._counters.observed(before.inventory, observation.inventory)
        for change in observation.transitions:
            if change.new_xid is not None:
                self._counters.xid(observation.inventory.gpu_of(change.uuid), change.new_xid)
        self._history.observed(observation)
        if observation.waiting_for and self._config.settings.ends_without_driver and not observation.has_driver:
            self._on_crash(DriverNotReady(observation.waiting_for, "failOnInitError is set: false waits instead"))
            return
        self._driver.observed.set()
        self._offer(observation)  # first: pods wait for it
        if not observation.waiting_for:
            self._hook.tell(self._config, observation.inventory)
        self._labels.observed(observation, self._config)
        self._node.show(observation)
        if self._service.is_ready or observation.waiting_for or not self._offering.resources:
            self._tell_systemd()

    def _follow(self) -> None:
        """Do what the files of the state folder say: of a release, and of a change of how GPUs are cut."""
        self._releases.follow()
        self._mig.follow(is_released=self._state.release is not None)

    def _offer(self, observation: Observation) -> None:
        """Show kubelets what there is, but for what a pod has in another way, and what is being changed."""
        sizes, offering = dict(self._offering.unit_bytes), self._offering
        found = self._mig.marked(observation.inventory)
        if self._state.release is None and found.devices:  # else it is not known what is shared
            self._mps.follow(self._config, offering.plan(self._config, found), self._claims.by_mps(found))
        inventory = self._claims.show(self._config, found, lambda: offering.plan(self._config, found))
        offering.show(self._config, inventory, self._history.view.known)
        if offering.unit_bytes != sizes:
            write_unit_sizes(self._config.state_folder, offering.unit_bytes, self._log)
        if offering.unit_bytes or self._claims.memory():
            self._limits.prepare()
            self._overuse.prepare()
        self._look_for_holders()
        self._units.offered(*offering.memory_cards)

    def _look_for_holders(self) -> None:
        """Ask often who has what while anything waits for it."""
        self._history.view.be_urgent(bool(self._offering.waits) or self._claims.is_waiting)

    def _on_others(self) -> None:
        self._look_for_holders()
        self._tell_systemd()

    def _on_allocated(self, resource: str, device_ids: Sequence[str], at: float) -> None:
        self._limits.ledger.allocated(device_ids)
        self._units.allocated(resource, at)

    def _on_listed(self, assignments: tuple[DeviceAssignment, ...], asked_at: float) -> None:
        self._units.listed(assignments, asked_at)
        self._offer_again()
        if self._claims.others.is_serving:
            self._others.show_again()

    def _offer_again(self) -> None:
        """Offer what waited for those who had it, and hold back what a pod turned out to have or what is down."""
        if not self._stop.is_set() and self._state.observation.inventory.devices:
            self._offer(self._state.observation)

    def _on_release(self, release: Release, before: Release | None) -> None:
        """Withdraw every GPU; the driver's session is closed at the first of several releases."""
        state, why = self._state, release.describe()
        state.release = release
        self._mps.release()
        hint = {"hint": "grapnel-node resume forgets it"} if release.problem else {}
        self._log.warning(why, **hint)
        self._history.note("released", why)
        known = state.observation.inventory
        if not known.devices:
            known = remembered_inventory(release, self._config.host_tree)
        state.observation = Observation(without_driver(known, why))
        self._offer(state.observation)
        self._node.show(state.observation, why)
        self._tell_systemd()
        if before is None:
            self._driver.close_session()

    def _on_resume(self) -> None:
        self._state.release = None
        self._log.info("resumed")
        self._history.note("resumed")
        self._observe_again()
        self._tell_systemd()

    def _observe_again(self) -> None:
        """Ask the driver again after it was let go for a while: what is known of the GPUs still counts."""
        self._hook.forget()
        self._driver.observe(self._config, self._state.observation.inventory)

    def _on_registration(self, interface: str, waiting_for: str) -> None:
        """Hear what an interface of the kubelet waits for."""
        self._state.waits[interface] = waiting_for
        if not waiting_for:
            self._history.view.kubelet_came()
        self._tell_systemd()

    def _tell_systemd(self) -> None:
        """Say what is so. Waiting counts as ready: a node without GPU, driver or kubelet is not a failure."""
        line = status_line(
            self._state.release,
            self._state.observation,
            is_observed=self._driver.observed.is_set(),
            is_offered=bool(self._offering.resources) or self._config.has_claims,
            kubelet=self._state.registration,
        )
        refused = f"; goes on as before, for its configuration is refused: {self._refused}" if self._refused else ""
        self._service.say(line + others_words(tuple(self._offering.others)) + refused)

    async def _list_assignments(self, deadline_s: float) -> tuple[DeviceAssignment, ...]:
        """Ask the kubelet who has which device; raises KubeletError."""
        return await list_assignments(self._config.kubelet_root, deadline_s)

    def _unit_bytes(self, uuid: str) -> int | None:
        """Return the size of a device's units of memory, None where it is not offered in such."""
        return self._offering.unit_bytes.get(uuid)

    async def _start_metrics(self, address: str) -> HttpServer:
        from plugin.publication.metrics.serving.endpoint import Sources, serve_metrics  # noqa: PLC0415 - off until asked for

        sources = Sources(
            state=self._state,
            driver=self._driver,
            offering=self._offering,
            counters=self._counters,
            list_assignments=self._list_assignments,
            pace_s=lambda: self._config.refresh_s,
            limits=self._limits,
            unit_bytes=self._unit_bytes,
            config_problem=lambda: self._by_label.problem,
            is_config_refused=lambda: bool(self._refused),
            drift=lambda: self._drift.result,
        )
        return await serve_metrics(address, sources, self._dependencies)

    async def _reload(self) -> None:
        try:
            config = self._by_label.read_again()
        except ConfigError as error:
            self._log.warning("configuration not reloaded", problem=error.message, hint=error.hint)
            self._refused = error.message
            self._tell_systemd()
            return
        self._log.info("configuration reloaded")
        self._refused = ""
        before, self._config, self._releases.config, self._mig.config = self._config, config, config, config
        self._hook.forget()
        self._history.move(config.state_folder)
        self._others.close()  # what it finds is for the kubelet of before
        self._state.interfaces = config.interfaces
        if await self._offering.configured(before, config):
            self._state.waits.pop(DEVICE_PLUGIN, None)
        await self._claims.follow(config)
        await self._admin.serve(config.admin_socket)
        await self._metrics.serve(config.metrics_address)
        await self._node.move(config)
        if self._state.release is not None:
            self._offer(self._state.observation)
            self._node.show(self._state.observation, self._state.release.describe())
        elif not self._mig.has_closed:
            self._driver.observe(config)
        self._follow()
        self._others.follow(config)
        self._by_label.follow(config)

    async def _shut_down(self) -> None:
        self._dependencies.notify("STOPPING=1")
        self._log.info("stopping")
        self._releases.stop()
        self._mig.stop()
        self._tasks.cancel()
        self._others.close()
        self._by_label.close()
        self._labels.close(stays=self._state.release is not None)
        await self._admin.close()
        await self._metrics.close()
        # Before the GPUs are withdrawn: it takes up to a second, in which they are as good as before.
        await asyncio.gather(asyncio.to_thread(self._node.close), self._mps.close())
        await self._driver.stop()
        await asyncio.gather(self._offering.stop(), self._claims.close())
        await self._history.stop()
