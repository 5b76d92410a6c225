"""Defines what is seen of a fleet's upgrade from outside its engine, and what that comes to, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from provision.rollout.status.advice import led, unled
from provision.rollout.status.situations import WAITING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from provision.declaration.spec.model import Driver, Plugin
    from provision.rollout.interface.cluster import NodeProblem
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.standing import Standing
    from provision.rollout.model import NodeView, Record
    from provision.rollout.status.reported import Reported
    from provision.rollout.status.situations import Situation


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """Who holds a lease. ``heard`` is the last sign of life; ``is_at_work`` is false when that is too long ago."""

    holder: str
    since: datetime | None = None
    heard: datetime | None = None
    is_at_work: bool = True


@dataclass(frozen=True, slots=True)
class StackTrouble:
    """Why one node of a stack is not as declared."""

    node: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSeen:
    """How a GpuStack of the cluster says that it stands, and what it declares.

    ``state`` is empty where no controller has looked at it yet, and what is said ``is_outdated`` where it is about an
    earlier declaration. ``nodes`` are numbers by how nodes stand, and ``total``; ``troubles`` name some of the nodes.
    ``owned`` are the Nodes that it selects and no other stack does, ``declared`` and ``plugin`` are the driver and the
    node daemon that they are to have, ``handlers`` the RuntimeClasses of their pods. ``exposure`` says that the
    controller runs on one of its nodes, empty where it does not.
    """

    name: str
    state: str = ""
    message: str = ""
    driver: str = ""
    nodes: Mapping[str, int] = field(default_factory=dict)
    troubles: tuple[StackTrouble, ...] = ()
    is_outdated: bool = False
    owned: frozenset[str] = frozenset()
    declared: Driver | None = None
    exposure: str = ""
    plugin: Plugin | None = None
    handlers: tuple[str, ...] = ()

    @property
    def progress(self) -> str:
        """How many of its nodes are as declared, such as 37/40."""
        return f"{self.nodes.get('asDeclared', 0)}/{self.nodes.get('total', 0)}"

    @property
    def told(self) -> list[tuple[str, list[str]]]:
        """What is said of nodes, with the nodes of which the same is said."""
        found: dict[str, list[str]] = {}
        for each in self.troubles:
            found.setdefault(each.message, []).append(each.node)
        return list(found.items())

    @property
    def needs_somebody(self) -> bool:
        """Whether it takes a person for it to get on."""
        return self.state in {"Degraded", "Refused"} and not self.is_outdated


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was read at ``time``, by the clock of the place that keeps it.

    ``tenant`` is None when no process holds the lease, ``standing`` when nothing was published, ``pause`` when
    it is not paused. ``controller`` is the replica of a controller that leads, whether nodes are changed or not;
    None where there is none, or that cannot be known. ``complaints`` are what
    could not be read, and why; ``is_lease_known`` is false when that was the lease, ``is_leader_known``
    when it was who leads. ``stacks`` are the GpuStacks of a cluster, in the order of their names. ``declared`` are the
    drivers that nodes are to have, ``daemons`` how their node daemons are to be, as far as that is known. ``reported``
    is what Nodes say of their machines; nodes without a Node say nothing.
    """

    place: str
    time: datetime
    nodes: Mapping[str, NodeView | NodeProblem]
    tenant: Tenant | None = None
    standing: Standing | None = None
    pause: Pause | None = None
    complaints: tuple[str, ...] = ()
    is_lease_known: bool = True
    is_leader_known: bool = True
    stacks: tuple[StackSeen, ...] = ()
    declared: Mapping[str, Driver] = field(default_factory=dict)
    daemons: Mapping[str, Plugin] = field(default_factory=dict)
    reported: Mapping[str, Reported] = field(default_factory=dict)
    controller: Tenant | None = None

    @property
    def is_abandoned(self) -> bool:
        """Whether there are GpuStacks and no controller: it was uninstalled, or does not run."""
        return bool(self.stacks) and self.is_leader_known and not self.is_led

    @property
    def is_led(self) -> bool:
        """Whether a controller leads, so that nodes of GpuStacks are brought to their declaration by it."""
        return self.controller is not None and self.controller.is_at_work


class Reader(Protocol):
    """Reads node state without changing any."""

    def look(self) -> Seen:
        """Return what is true now. Raises ClusterError."""

    def follow(self, timeout_s: float) -> Seen:
        """Return what is true after a while: after ``timeout_s``, or later where looking is expensive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """How one node stands.

    ``since`` is when that began, ``reason`` why it waits, failed or cannot be told of. ``left_s`` are the seconds that
    its upgrade probably still takes, None where nothing was measured or no engine is at work on it. ``wave`` and
    ``domain`` are titles, empty where it has none or the engine did not say. ``remarks`` are what else people should
    know of it. ``reported`` is what its Node says of the machine, ``declared`` the driver and ``plugin`` the node
    daemon that it is to have; None is not known.
    """

    name: str
    situation: Situation
    since: datetime | None = None
    reason: str = ""
    record: Record | None = None
    left_s: float | None = None
    wave: str = ""
    domain: str = ""
    remarks: tuple[str, ...] = ()
    reported: Reported | None = None
    declared: Driver | None = None
    plugin: Plugin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveStatus:
    """How far a wave is. ``flying`` are out of service, and neither done nor failed."""

    title: str
    total: int
    done: int = 0
    flying: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """How a fleet stands. ``left_s`` and ``measured``: see `provision.rollout.status.estimate`."""

    seen: Seen
    nodes: tuple[NodeStatus, ...]
    left_s: float | None = None
    measured: int = 0
    unnamed: tuple[tuple[str, int], ...] = field(default_factory=tuple)
    waves: tuple[WaveStatus, ...] = ()

    @property
    def is_at_work(self) -> bool:
        """Whether an engine is upgrading nodes now."""
        return self.seen.tenant is not None and self.seen.tenant.is_at_work

    def told(self, situation: Situation) -> Situation:
        """Return a situation in the words that are true here: a controller is told otherwise than an `apply`."""
        if self.seen.is_led:
            return led(situation)
        return unled(situation) if self.seen.is_abandoned else situation

    @property
    def needs_somebody(self) -> bool:
        """Whether it takes a person for every node, and every stack, to get on."""
        is_paused = self.seen.pause is not None
        if any(stack.needs_somebody for stack in self.seen.stacks):
            return True
        return any(node.situation.needs_somebody or (is_paused and node.situation is WAITING) for node in self.nodes)
