"""Serves the metrics of a daemon. Loaded where they are served alone; not here: HTTP, and what a page has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from plugin.metrics.owners import OwnerQuestion
from plugin.metrics.scrape import TIMEOUT_S, DriverQuestion, NodeState, Scrape
from plugin.metrics.server import MetricsServer
from plugin.settings.node_config import split_address

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

    from plugin.devices.observer import Observation
    from plugin.driver_change.release.record import Release
    from plugin.kubelet.offering import Offering
    from plugin.kubelet.pod_resources.attribution import Given
    from plugin.log import Journal
    from plugin.metrics.counters import Counters
    from plugin.metrics.scrape import Telemetry


class Node(Protocol):
    """What pages are made of: the daemon."""

    release: Release | None
    observation: Observation
    offering: Offering
    observed: asyncio.Event  # the driver, since the start or the resume
    counters: Counters
    is_registered: bool  # with the kubelet

    @property
    def refresh_s(self) -> float:
        """How often the driver is asked at most."""

    def ask_driver(self, question: Callable[[], None]) -> None:
        """Have a function called in the driver's thread."""

    async def list_given(self, deadline_s: float) -> tuple[Given, ...]:
        """Ask the kubelet who has which device; raises KubeletError."""


class Machine(Protocol):
    """Where else a page looks: the daemon's surroundings."""

    @property
    def journal(self) -> Journal:
        """Where to say what is wrong."""

    @property
    def read_telemetry(self) -> Callable[[], Telemetry]:
        """What to call in the driver's thread."""

    @property
    def proc(self) -> Path:
        """The folder of processes."""

    @property
    def log(self) -> Path:
        """The folder of logs, with the kubelet's."""


def state_of(node: Node) -> NodeState:
    """Return what the daemon knows at the moment."""
    return NodeState(
        node.observation.inventory,
        node.offering.resources,
        is_driver_up=node.release is None and node.observed.is_set() and not node.observation.waiting_for,
        is_released=node.release is not None,
        is_registered=node.is_registered,
    )


async def serve_metrics(address: str, node: Node, machine: Machine) -> MetricsServer:
    """Serve until closed; an address that cannot be had is told in the journal."""
    journal = machine.journal
    scrape = Scrape(
        state=lambda: state_of(node),
        counters=node.counters,
        telemetry=DriverQuestion(node.ask_driver, machine.read_telemetry),
        given=lambda: node.list_given(TIMEOUT_S),
        owners=OwnerQuestion(machine.proc, machine.log, journal),
        journal=journal,
        hostname=os.uname().nodename,
        pace_s=lambda: node.refresh_s,
    )
    server = MetricsServer(scrape.page, journal)
    try:
        await server.start(*split_address(address))
    except OSError as error:
        problem = f"{address} cannot be served: {(error.strerror or str(error)).lower()}"
        journal.warning(problem, hint="there are no metrics: free the address or name another metricsAddress")
    else:
        journal.info("metrics", address=address)
    return server
