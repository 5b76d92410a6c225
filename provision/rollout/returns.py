"""Forgets what is over: a failed upgrade once the former driver is the declared one, any once grapnel was taken away.

Until then a node that went back is in service with another driver than the declared one, and an administrator has to
know why.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from provision.apply.model import Note, Status
from provision.rollout.errors import ClusterError, ConflictError
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Collection

    from provision.apply.model import NodeResult
    from provision.rollout.decision.prepare import Prepared
    from provision.rollout.interface.cluster import Cluster
    from provision.rollout.interface.progress import RolloutObserver
    from provision.rollout.model import NodeView

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


def forget_removed(cluster: Cluster, nodes: Collection[str], observe: RolloutObserver, holder: str) -> None:
    """Forget the upgrades of nodes from which it was taken away what they were about.

    What cannot be written now, the next removal writes; until then it does not count (`rollout.status`).
    """
    try:
        over = [name for name, view in cluster.observe(tuple(nodes)).items() if _is_over(view)]
        if not over:
            return
        with cluster.lease(holder):
            for name, view in cluster.observe(over).items():
                if _is_over(view):
                    cluster.write(name, None)
    except ClusterError as error:
        observe(Note("", f"what upgrades came to is not forgotten yet: {error.message}"))


def _is_over(view: NodeView | NodeProblem) -> bool:
    return not isinstance(view, NodeProblem) and view.record is not None and view.record.phase.is_in_service
