"""`grapnel-node run`: puts the daemon together and runs it."""

from __future__ import annotations

import gc
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from plugin.base.errors import NodeTaken, os_reason
from plugin.base.log import Logger, configure
from plugin.cli.grammar.options import invocation_of
from plugin.settings.in_pod import as_in_pod
from plugin.settings.load import load, load_to_start
from plugin.system.sole import NodeLock, lock_path, own_name

if TYPE_CHECKING:
    import argparse
    from types import SimpleNamespace

    from plugin.driver.nvml.loading.library import NvmlSource
    from plugin.driver.nvml.telemetry import TelemetryReader
    from plugin.publication.metrics.serving.scrape import Telemetry
    from plugin.settings.load import Invocation, Loaded
    from plugin.settings.node_config import NodeConfig

_HANDOVER_S = 5.0  # for a pod that is just ending
_ONE_OF_TWO = (
    "declare plugin.daemon: daemonset and apply it, which stops the service, or keep the DaemonSet off this node: "
    "kubectl label node NAME grapnel.dev/node-daemon=unit"
)


def _prepare_process() -> None:
    """Set what must be set before asyncio is imported."""
    os.umask(0o077)
    # The daemon speaks over unix sockets only. asyncio imports OpenSSL wherever it is there, and does
    # without where it is not: 4 MiB per node (measured by bench/plugin.py).
    sys.modules.setdefault("ssl", None)  # type: ignore[arg-type] # None is how an import is made to fail


def _import_nvml() -> None:
    """Import NVML without what pynvml imports and never calls: `find_library` brings 6 ms of modules with it."""
    name = "ctypes.util"
    stand_in = ModuleType(name)
    stand_in.__dict__["find_library"] = None
    is_ours = sys.modules.setdefault(name, stand_in) is stand_in
    import plugin.driver.nvml.loading.library  # noqa: F401 - see above

    if is_ours:
        del sys.modules[name]


class _Sources:
    """Reads the configuration on demand, and asks the driver where the last one says that it is."""

    def __init__(self, invocation: Invocation, logger: Logger, *, is_pod: bool) -> None:
        self._invocation = invocation
        self._is_pod = is_pod
        self._log = logger
        self.measurements = _Measurements()
        self.config = self.read_to_start()

    def read_to_start(self) -> NodeConfig:
        return self._take(load_to_start(self._invocation))

    def read_config(self, label: str | None = None) -> NodeConfig:
        return self._take(load(self._invocation, label=label))

    def _take(self, loaded: Loaded) -> NodeConfig:
        for note in loaded.resolved.notes:
            self._log.warning("about the settings", note=note)
        self.config = as_in_pod(loaded.config) if self._is_pod else loaded.config
        return self.config

    def source(self) -> NvmlSource:
        from plugin.driver.nvml.loading.library import NvmlSource

        return NvmlSource(self.config.settings.driver_root, self.measurements)


class _Measurements:
    """A `TelemetryReader` from the first question on; before that, its code is not loaded."""

    def __init__(self) -> None:
        self._reader: TelemetryReader | None = None

    def read(self) -> Telemetry:
        if self._reader is None:
            from plugin.driver.nvml.telemetry import TelemetryReader

            self._reader = TelemetryReader()
        return self._reader.read()

    def session_begins(self) -> None:
        if self._reader is not None:
            self._reader.session_begins()

    def session_ends(self) -> None:
        if self._reader is not None:
            self._reader.session_ends()


def _take_node(config: NodeConfig, logger: Logger, *, is_pod: bool) -> NodeLock:
    """Return the lock, to be kept; raises NodeTaken.

    A pod waits: the kubelet would start it again later and later. A service fails, so that whoever starts it hears why.
    """
    lock, name = NodeLock(lock_path(config.admin_socket)), own_name(os.environ, is_pod=is_pod)

    def say(holder: str) -> None:
        logger.warning("waiting for the node, which has a daemon already", daemon=holder, hint=_ONE_OF_TWO)

    try:
        holder = lock.take(name, timeout_s=None if is_pod else _HANDOVER_S, waits=say)
    except OSError as error:
        problem = os_reason(error)
        logger.warning("nothing keeps a second daemon off this node", path=lock_path(config.admin_socket), why=problem)
        return lock
    if holder:
        raise NodeTaken(f"this node has a daemon already: {holder}", _ONE_OF_TWO)
    return lock


def run(arguments: argparse.Namespace | SimpleNamespace) -> int:
    """Run the verb and return the exit code."""
    return run_daemon(invocation_of(arguments), debug=arguments.debug, is_pod=arguments.in_pod)


def run_daemon(invocation: Invocation, *, debug: bool, is_pod: bool = False) -> int:
    """Run until SIGTERM; returns the exit code. Raises NodeTaken."""
    configure(sys.stderr, debug=debug)
    logger = Logger()
    sources = _Sources(invocation, logger, is_pod=is_pod)
    lock = _take_node(sources.config, logger, is_pod=is_pod)
    try:
        if is_pod:
            sources.read_to_start()  # it may have waited, and who gave the node up may have been declared otherwise
        return _run(sources, logger, is_pod=is_pod)
    finally:
        lock.release()


def _run(sources: _Sources, logger: Logger, *, is_pod: bool) -> int:
    _prepare_process()
    import asyncio

    _import_nvml()
    from plugin.daemon.daemon import run
    from plugin.daemon.dependencies import Dependencies
    from plugin.daemon.systemd import notify
    from plugin.kubelet.registration.link import Timing

    dependencies = Dependencies(
        open_source=sources.source,
        read_config=sources.read_config,
        logger=logger,
        notify=notify,
        timing=Timing(),
        read_telemetry=sources.measurements.read,
        follows_files=is_pod,
    )
    gc.freeze()  # what is there by now stays: no collection needs to look at it again
    gc.enable()
    asyncio.run(run(sources.config, dependencies))
    return 0
