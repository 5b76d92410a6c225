"""Forgets that an upgrade failed on a node once the driver that it went back to is the declared one.

Until then the node is in service with another driver than the declared one, and somebody has to know why.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from provision.apply.model import Note, Status
from provision.rollout.cluster import NodeProblem
from provision.rollout.errors import ClusterError, ConflictError
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Collection

    from provision.apply.model import NodeResult
    from provision.rollout.cluster import Cluster
    from provision.rollout.decision.prepare import Prepared
    from provision.rollout.progress import RolloutObserver

_AS_DECLARED: Final = (Status.CONVERGED, Status.UNCHANGED)


def forget_returns(
    cluster: Cluster, prepared: Prepared, results: Collection[NodeResult], observe: RolloutObserver, holder: str
) -> None:
    """Forget it of nodes that are as declared without having gone through the rollout of this apply.

    The lease is held already where there was a rollout. What cannot be written now, the next apply writes.
    """
    good = {result.node for result in results if result.status in _AS_DECLARED}.difference(prepared.rollout)
    before = {
        state.name: state.record
        for state in prepared.states
        if state.name in good and state.record is not None and state.record.phase is Phase.RETURNED
    }
    if not before:
        return
    try:
        with contextlib.nullcontext() if prepared.rollout else cluster.lease(holder):
            for name, view in cluster.observe(tuple(before)).items():
                if not isinstance(view, NodeProblem) and view.record == before[name]:
                    _forget(cluster, name, observe)
    except ClusterError as error:
        observe(Note("", f"that upgrades failed is not forgotten yet: {error.message}"))


def _forget(cluster: Cluster, name: str, observe: RolloutObserver) -> None:
    try:
        cluster.write(name, None)
    except ConflictError as error:  # whoever is at it knows better
        observe(Note(name, f"{error.message}: that an upgrade failed on it is kept"))
        return
    observe(Note(name, "has the declared driver: that an upgrade failed on it is forgotten"))
