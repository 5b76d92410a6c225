"""Derives from a declaration how pods and processes are made to leave a node, and how long they may take. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import AtTimeout, DaemonSets, SchedulerKind

if TYPE_CHECKING:
    from provision.declaration.spec.model import Rollout, Scheduler


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
