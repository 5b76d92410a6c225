"""Defines the section `rollout`: how a change moves through the fleet."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from msgspec import Meta

from provision.declaration.spec.model.rollout.drain import Drain, WaitFor
from provision.declaration.spec.model.rollout.gates import QueryGate
from provision.declaration.spec.model.rollout.notify import NodeConditions, Notify
from provision.declaration.spec.model.rollout.when import (
    RESPECTED,
    Blackout,
    Count,
    Domains,
    MaintenanceRequests,
    Order,
    Tool,
    Window,
    Zones,
)
from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.texts import GroupName, HostName, Percent, WaveName

Minutes = Annotated[int, Meta(ge=1, le=1_440)]


class Gate(Enum):
    """What has to be true of a wave before the next one begins."""

    HEALTHY = "healthy"
    HOLD = "hold"


class Wave(Section, frozen=True, kw_only=True):
    """Some of the nodes of a rollout, which are changed before any node of the next wave begins."""

    name: Annotated[WaveName | None, doc("What messages call the wave; null: its number.")] = None
    size: Annotated[
        Count | Percent | None,
        doc(
            "How many nodes: a number, or a percentage that is rounded up; null: all that groups and hosts select, and "
            "in the last wave all that are left."
        ),
    ] = None
    groups: Annotated[
        tuple[GroupName, ...], doc("Groups of the inventory whose hosts are in the wave.", uniqueItems=True)
    ] = ()
    hosts: Annotated[tuple[HostName, ...], doc("Hosts of the inventory that are in the wave.", uniqueItems=True)] = ()
    soak_minutes: Annotated[
        Annotated[int, Meta(ge=0, le=10_080)],
        doc("How long all of its nodes must stay healthy before the next wave begins."),
    ] = 0
    gate: Annotated[
        Gate,
        doc(
            "What ends the wave; healthy: its changed nodes are ready and not cordoned by others; hold: the same, and "
            "this key is taken away."
        ),
    ] = Gate.HEALTHY


class Rollout(Section, frozen=True, kw_only=True):
    """How a change moves through the fleet."""

    max_unavailable: Annotated[
        Count | Percent,
        doc("Most nodes that may be out of service at once: a number, or a percentage that is rounded up."),
    ] = "25%"
    max_parallel: Annotated[Count, doc("Most nodes that are changed at the same time.")] = 1
    soak_minutes: Annotated[
        Annotated[int, Meta(ge=0, le=10_080)],
        doc("How long a changed node must stay healthy before the next ones follow."),
    ] = 0
    drain_timeout_minutes: Annotated[
        Annotated[int, Meta(ge=1, le=1_440)],
        doc("How long pods may take to leave a node before its change is given up."),
    ] = 5
    wait_for: Annotated[WaitFor, doc("Pods that are to end by themselves before anything is evicted from a node.")] = (
        WaitFor()
    )
    drain: Annotated[Drain, doc("How pods and processes that use a GPU are made to leave a node.")] = Drain()
    max_failures: Annotated[
        Annotated[int, Meta(ge=0, le=100_000)],
        doc("Most nodes that may fail before no further one begins; a node of the first wave may never."),
    ] = 0
    waves: Annotated[
        tuple[Wave, ...],
        doc("Waves, one after the other: the first is the canary, the last takes all that are left; empty: no waves."),
    ] = ()
    domains: Annotated[
        Domains | None,
        doc("Nodes that are changed together, so that no two drivers ever serve in one domain; null: each on its own."),
    ] = None
    windows: Annotated[
        tuple[Window, ...],
        doc("When nodes may be taken out of service; empty: at any time. A node that has begun is brought to its end."),
    ] = ()
    blackouts: Annotated[
        tuple[Blackout, ...], doc("Days on which no node is taken out of service, whatever the windows say.")
    ] = ()
    node_minutes: Annotated[
        Minutes | None,
        doc(
            "How long a node takes: it begins only if so much of its window is left; null: what nine of ten nodes of "
            "this upgrade took, and 30 minutes before one is done."
        ),
    ] = None
    order: Annotated[
        Order,
        doc(
            "Which nodes begin first within a wave, after those of a higher priority; inventory: in its order; spread: "
            "one of each zone in turn; emptyFirst: those with the fewest pods that have to leave."
        ),
    ] = Order.INVENTORY
    zones: Annotated[
        Zones | None, doc("Parts of the fleet that should not be out of service together; null: none.")
    ] = None
    gates: Annotated[
        tuple[QueryGate, ...], doc("Queries to a monitoring system that hold nodes or waves that have yet to begin.")
    ] = ()
    respect: Annotated[
        tuple[Tool, ...],
        doc("Other tools: a node that one of them is at does not begin.", uniqueItems=True),
    ] = RESPECTED
    maintenance: Annotated[
        MaintenanceRequests, doc("What other tools are asked for while a node is out of service.")
    ] = MaintenanceRequests()
    node_events: Annotated[bool, doc("Whether each phase of a node's upgrade is written on its Node as an Event.")] = (
        True
    )
    node_conditions: Annotated[
        tuple[NodeConditions, ...],
        doc(
            "Conditions on a Node while it is upgraded; upgrade: GrapnelDriverUpgrade; lifecycle: those of KEP-5683 "
            "(MaintenancePlanned, DrainInProgress, Drained, MaintenanceInProgress).",
            uniqueItems=True,
        ),
    ] = (NodeConditions.UPGRADE,)
    notify: Annotated[
        tuple[Notify, ...],
        doc("Who is told by webhook when a rollout begins, stops or ends, and when a node fails; all nodes share it."),
    ] = ()
