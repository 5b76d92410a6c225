"""Defines what is simulated, as values: the fleet, how long things take, and what goes wrong how often."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, log
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Rollout
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from random import Random

    from provision.declaration.spec.model import GpuInterface
    from provision.rollout.decision.policy import Policy

_Z95: Final = 1.6449  # of the normal distribution: 95 % are below
DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Spread:
    """How long something takes: one of what was ``measured``, else log-normal with a median and a 95th percentile."""

    median_s: float = 0.0
    p95_s: float = 0.0
    measured: tuple[float, ...] = ()

    def draw(self, random: Random) -> float:
        """Return one duration in seconds."""
        if self.measured:
            return random.choice(self.measured)
        if self.p95_s <= self.median_s or not self.median_s:
            return self.median_s
        sigma = log(self.p95_s / self.median_s) / _Z95
        return self.median_s * exp(sigma * random.gauss(0, 1))


# What a swap of staged packages took on the nodes of the laboratory, with room for larger machines.
USUAL: Final[Mapping[Phase, Spread]] = {
    Phase.DRAIN: Spread(30.0, 60.0),
    Phase.RELEASE: Spread(5.0, 10.0),
    Phase.SWAP: Spread(90.0, 240.0),
    Phase.VERIFY: Spread(20.0, 60.0),
    Phase.RESUME: Spread(5.0, 15.0),
    Phase.ROLLBACK: Spread(60.0, 180.0),
}
# Of a change to another interface: an apply of the daemon's configuration, and until kubelet and API have what is new.
USUAL_IN_PLACE: Final[Mapping[Phase, Spread]] = {
    Phase.SWAP: Spread(15.0, 40.0),
    Phase.VERIFY: Spread(5.0, 30.0),
    Phase.ROLLBACK: Spread(15.0, 40.0),
}


@dataclass(frozen=True, slots=True)
class BudgetModel:
    """A disruption budget: ``allowed`` of its pods may be gone at once, each for ``restart_s`` after it has ended."""

    name: str
    allowed: int
    restart_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PodModel:
    """A pod with a GPU; ``grace_s`` None: as long as pods usually take."""

    name: str
    grace_s: float | None = None
    budget: str = ""
    controller: str = "ReplicaSet"
    is_daemon: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeModel:
    """A node before the roll-out; ``driver`` is what runs on it. ``is_skipped``: people want it left alone."""

    name: str
    driver: str
    groups: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    pods: tuple[PodModel, ...] = ()
    is_cordoned: bool = False
    is_ready: bool = True
    is_skipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What goes wrong: shares of nodes or pods, each between 0 and 1, and outages of the API server.

    ``swap`` and ``verify``: the step fails. ``lost``: the node goes down in its swap and does not come back.
    ``pods``: a pod never ends. ``ill_per_day``: hardware fails that has nothing to do with the roll-out.
    """

    swap: float = 0.0
    verify: float = 0.0
    lost: float = 0.0
    pods: float = 0.0
    ill_per_day: float = 0.0
    away_every_s: float = 0.0
    away_for_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A roll-out that could be: ``rollout`` as it is declared, ``start`` when it begins.

    ``policy`` is given where nodes declare different limits. With an ``interface`` the nodes change over to it while
    they serve, and what stands in the place of drivers are the names of interfaces.
    """

    nodes: tuple[NodeModel, ...]
    target: str
    start: datetime
    interface: GpuInterface | None = None
    rollout: Rollout = field(default_factory=Rollout)
    budgets: tuple[BudgetModel, ...] = ()
    policy: Policy | None = None
    durations: Mapping[Phase, Spread] = field(default_factory=lambda: USUAL)
    faults: Faults = field(default_factory=Faults)
