"""Makes one policy of what nodes declare: how many may be out of service, when others follow, how they drain. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import AtTimeout, DaemonSets, Gate, Rollout, SchedulerKind
from provision.declaration.spec.values.shares import count_of
from provision.rollout.decision.calendar import calendar_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from provision.declaration.spec.model import Scheduler, Wave, Zones
    from provision.rollout.decision.calendar import Calendar
    from provision.rollout.interface.pause import Pause


@dataclass(frozen=True, slots=True, kw_only=True)
class WavePolicy:
    """What people call a wave, how long its nodes must stay healthy, and whether it then waits for a person."""

    title: str
    soak: timedelta = timedelta(0)
    is_held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonePolicy:
    """How many nodes of a zone may be out of service (None: as many as of the fleet), and whether zones take turns."""

    max_unavailable: int | str | None = None
    one_at_a_time: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How many nodes are changed at once, how many may be out of service for any reason, and how many may fail.

    A changed node has to stay healthy for ``soak`` before the next one begins. ``waves`` follow one another; which
    nodes are in which is known of each node, and so is its zone.
    Nodes are taken out of service when the ``calendar`` has time for one, which takes ``node_time`` (None: as
    measured). A rollout either ``waits`` for that, or ends. ``despite`` is a pause that was known when a person started
    this, and that does not hold it up.
    """

    max_parallel: int = 1
    max_unavailable: int = 1
    soak: timedelta = timedelta(0)
    max_failures: int = 0
    waves: tuple[WavePolicy, ...] = ()
    zones: ZonePolicy | None = None
    calendar: Calendar | None = None
    node_time: timedelta | None = None
    waits: bool = True
    despite: Pause | None = None


def strictest(declared: Collection[Rollout], nodes: int) -> Policy:
    """Return the policy that keeps what each of the nodes declares; percentages are of ``nodes``, rounded up.

    All of them declare the same waves, zones, windows and blackouts.
    """
    declarations = tuple(declared) or (Rollout(),)
    return Policy(
        max_parallel=min(one.max_parallel for one in declarations),
        max_unavailable=min(count_of(one.max_unavailable, nodes) for one in declarations),
        soak=timedelta(minutes=max(one.soak_minutes for one in declarations)),
        max_failures=min(one.max_failures for one in declarations),
        waves=tuple(_wave(index, wave, declarations[0]) for index, wave in enumerate(declarations[0].waves)),
        zones=_zones(declarations[0].zones),
        calendar=calendar_of(declarations[0]),
        node_time=_time(declarations),
    )


def _time(declarations: Collection[Rollout]) -> timedelta | None:
    declared = [one.node_minutes for one in declarations if one.node_minutes is not None]
    return timedelta(minutes=max(declared)) if declared else None


def _zones(zones: Zones | None) -> ZonePolicy | None:
    if zones is None:
        return None
    return ZonePolicy(max_unavailable=zones.max_unavailable, one_at_a_time=zones.one_at_a_time)


def _wave(index: int, wave: Wave, rollout: Rollout) -> WavePolicy:
    title = f"wave {index + 1} of {len(rollout.waves)}"
    name = wave.name or ("canary" if index == 0 and len(rollout.waves) > 1 else "")
    return WavePolicy(
        title=f"{title} ({name})" if name else title,
        soak=timedelta(minutes=wave.soak_minutes),
        is_held=wave.gate is Gate.HOLD,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPolicy:
    """What is done about what uses a node's GPUs.

    ``limit`` is how long pods may take to leave, where nothing else is named. ``waits``: some pods are waited for
    before any is evicted, or jobs of another scheduler, for ``jobs`` (None: as long as it takes). When that is over, it
    ``gives_up`` the node, or evicts them. ``release`` is how long processes may hold a GPU, None: ``limit``.
    ``taints``: pods of DaemonSets are evicted, and a taint keeps them off the node. ``maintenance`` is how long a
    maintenance that was requested may take to be granted.
    """

    limit: timedelta = timedelta(minutes=5)
    waits: bool = False
    jobs: timedelta | None = None
    gives_up: bool = False
    release: timedelta | None = None
    taints: bool = False
    maintenance: timedelta = timedelta(hours=1)


_HAVE_JOBS: Final = (SchedulerKind.SLURM, SchedulerKind.COMMANDS)  # which are never ended, only waited for


def drain_policy(rollout: Rollout, scheduler: Scheduler) -> DrainPolicy:
    """Return what the sections say."""
    wait, drain = rollout.wait_for, rollout.drain
    selects = bool(wait.pod_selector or wait.namespaces) or drain.spares_pods
    return DrainPolicy(
        limit=timedelta(minutes=rollout.drain_timeout_minutes),
        waits=selects or scheduler.kind in _HAVE_JOBS,
        jobs=timedelta(minutes=wait.timeout_minutes) if wait.timeout_minutes else None,
        gives_up=wait.on_timeout is AtTimeout.GIVE_UP,
        release=timedelta(minutes=drain.release_timeout_minutes) if drain.release_timeout_minutes else None,
        taints=drain.daemon_sets is DaemonSets.EVICT,
        maintenance=timedelta(minutes=rollout.maintenance.timeout_minutes),
    )
