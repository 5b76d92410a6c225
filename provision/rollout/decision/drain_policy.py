"""Derives from a declaration how pods and processes are made to leave a node, and how long they may take. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from provision.spec.model import Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPolicy:
    """What is done about what uses a node's GPUs.

    ``waits``: some pods are waited for before any is evicted, for ``jobs`` (None: as long as it takes).
    """

    waits: bool = False
    jobs: timedelta | None = None


EVICT_ALL: Final = DrainPolicy()


def drain_policy(rollout: Rollout) -> DrainPolicy:
    """Return what the section says."""
    wait, drain = rollout.wait_for, rollout.drain
    return DrainPolicy(
        waits=bool(wait.pod_selector or wait.namespaces) or drain.spares_pods,
        jobs=timedelta(minutes=wait.timeout_minutes) if wait.timeout_minutes else None,
    )
