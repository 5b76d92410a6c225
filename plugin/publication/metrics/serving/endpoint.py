"""Serves the metrics of a daemon. Loaded where they are served alone; not here: what a page has (`scrape`).

How nobody can hold the daemon by it: `plugin.system.http`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from plugin.base.errors import os_reason
from plugin.publication.metrics.exposition import CONTENT_TYPE
from plugin.publication.metrics.serving.owners import LimitQuestion, OwnerQuestion
from plugin.publication.metrics.serving.scrape import TIMEOUT_S, DriverQuestion, NodeState, Scrape
from plugin.settings.node_config import split_address
from plugin.system.http.messages import HttpResponse, HTTPStatus, say
from plugin.system.http.server import HttpServer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.changes.driver_change.release.record import Release
    from plugin.devices.observer import Observation
    from plugin.drift.result import Result
    from plugin.kubelet.offering import Offering
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment
    from plugin.publication.metrics.counters import Counters
    from plugin.publication.metrics.serving.owners import LimitSource
    from plugin.publication.metrics.serving.scrape import Telemetry
    from plugin.sharing.memory_limits.units import UnitBytes
    from plugin.system.http.messages import HttpHead


class State(Protocol):
    """What the daemon knows at the moment."""

    release: Release | None
    observation: Observation

    @property
    def is_registered(self) -> bool:
        """Whether all is registered with the kubelet by which GPUs are given."""


class ObservedDriver(Protocol):
    """Who observes the driver."""

    observed: asyncio.Event  # since the start or the resume

    def ask(self, question: Callable[[], None]) -> None:
        """Have a function called in the driver's thread."""


@dataclass(frozen=True)
class Sources:
    """What pages are made of. `list_assignments` asks the kubelet; `pace_s` is how often the driver is asked at most.

    `unit_bytes` is the size of a device's units of memory, None where it is not offered in such. `config_problem` is
    why the node does not have the configuration of its label, "" where it has, None where it is not by label.
    `drift` is the last result of the node's timer, None where there is none.
    """

    state: State
    driver: ObservedDriver
    offering: Offering
    counters: Counters
    list_assignments: Callable[[float], Awaitable[tuple[DeviceAssignment, ...]]]
    pace_s: Callable[[], float]
    limits: LimitSource
    unit_bytes: UnitBytes
    config_problem: Callable[[], str | None] = lambda: None
    is_config_refused: Callable[[], bool] = lambda: False
    drift: Callable[[], Result | None] = lambda: None


class Dependencies(Protocol):
    """Where else a page looks."""

    @property
    def logger(self) -> Logger:
        """Where to say what is wrong."""

    @property
    def read_telemetry(self) -> Callable[[], Telemetry]:
        """What to call in the driver's thread."""

    @property
    def proc_folder(self) -> Path:
        """The folder of processes."""

    @property
    def log_folder(self) -> Path:
        """The folder of logs, with the kubelet's."""


def state_of(sources: Sources) -> NodeState:
    """Return what the daemon knows at the moment."""
    state = sources.state
    return NodeState(
        state.observation.inventory,
        sources.offering.resources,
        is_driver_up=state.release is None and sources.driver.observed.is_set() and not state.observation.waiting_for,
        is_released=state.release is not None,
        is_registered=state.is_registered,
        others=sources.offering.others,
        shares_of=sources.offering.shares_of,
        config_problem=sources.config_problem(),
        is_config_refused=sources.is_config_refused(),
        drift=sources.drift(),
    )


async def serve_metrics(address: str, sources: Sources, dependencies: Dependencies) -> HttpServer:
    """Serve until closed; an address that cannot be had is logged."""
    logger = dependencies.logger
    scrape = Scrape(
        state=lambda: state_of(sources),
        counters=sources.counters,
        telemetry=DriverQuestion(sources.driver.ask, dependencies.read_telemetry),
        assignments=lambda: sources.list_assignments(TIMEOUT_S),
        owners=OwnerQuestion(dependencies.proc_folder, dependencies.log_folder, logger),
        limits=LimitQuestion(sources.limits, dependencies.log_folder),
        unit_bytes=sources.unit_bytes,
        logger=logger,
        hostname=os.uname().nodename,
        pace_s=sources.pace_s,
    )
    server = metrics_server(scrape.page, logger)
    try:
        await server.start(*split_address(address))
    except OSError as error:
        problem = f"{address} cannot be served: {os_reason(error)}"
        logger.warning(problem, hint="there are no metrics: free the address or name another metricsAddress")
    else:
        logger.info("metrics", address=address)
    return server


PATH = "/metrics"
_MAX_CLIENTS = 16


class MetricsService:
    """Answers with the page that `page` makes. A request has no body that would be read."""

    def __init__(self, page: Callable[[], Awaitable[bytes]], logger: Logger) -> None:
        self._page = page
        self._log = logger

    def expect(self, head: HttpHead, *, is_known: bool = True) -> int | HttpResponse:  # metrics are for anybody
        """Return why a request is not answered with the page, 0 where it is."""
        if head.method != "GET":
            return say(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered", allow="GET")
        if head.path != PATH:
            return say(HTTPStatus.NOT_FOUND, f"there is only {PATH}")
        return 0

    async def answer(self, head: HttpHead, body: bytes) -> HttpResponse:  # there is one page
        """Return the page."""
        return HttpResponse(HTTPStatus.OK, await self._page(), CONTENT_TYPE)

    def fail(self, error: Exception) -> HttpResponse:
        """Say that the page could not be made, here and in the log."""
        self._log.standing("metrics", f"bug in the metrics: {error!r}")
        return say(HTTPStatus.INTERNAL_SERVER_ERROR, "bug in the daemon: see its log")


def metrics_server(page: Callable[[], Awaitable[bytes]], logger: Logger, *, patience_s: float = 5.0) -> HttpServer:
    """Return who serves the page; `page` may take seconds, but not for ever."""
    return HttpServer(MetricsService(page, logger), max_clients=_MAX_CLIENTS, patience_s=patience_s)
