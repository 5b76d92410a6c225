"""Takes back what grapnel has made in a cluster: labels and taints of Nodes, RuntimeClasses.

What is taken back is found on the objects themselves (an annotation, a label), so that a run that was killed is
continued by the next one, and what others have made or changed since stays. Nothing is taken from a node on which
the removal failed, and no RuntimeClass that a machine may still need.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.apply.model import Status
from provision.apply.removal import Part
from provision.declaration.spec.text.excerpt import few
from provision.rollout.errors import ClusterError
from provision.rollout.interface.node_marks import NO_MARKS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from provision.apply.model import NodeResult
    from provision.base.errors import GrapnelError
    from provision.rollout.changes.removing import Removing
    from provision.rollout.interface.cluster import Cluster
    from provision.rollout.interface.node_marks import MarkChange

_GONE = (Status.REMOVED, Status.UNCHANGED)


@dataclass(frozen=True, slots=True)
class ClusterRemoval:
    """What is taken back in a cluster: ``marks`` by node, names of RuntimeClasses. ``stays`` says what is not, and why.

    ``failed`` is what went wrong where it was tried.
    """

    marks: Mapping[str, MarkChange] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()
    failed: tuple[GrapnelError, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is taken back."""
        return bool(self.classes or any(each.changes for each in self.marks.values()))


def plan_cluster_removal(removing: Removing, cluster: Cluster, nodes: Collection[str]) -> ClusterRemoval:
    """Return what would be taken back for nodes that have been observed. Raises ClusterError."""
    marks = cluster.compare_marks(dict.fromkeys(nodes, NO_MARKS)) if Part.NODE in removing.parts else {}
    found = {name: _why_class_stays(removing, cluster, name) for name in removing.classes}
    return ClusterRemoval(
        marks=marks,
        classes=tuple(name for name, reason in found.items() if reason is not None and not reason),
        stays=(*_left(marks), *(_stays(name, reason) for name, reason in found.items() if reason)),
    )


def take_back(
    cluster: Cluster, planned: ClusterRemoval, results: Collection[NodeResult], holder: str
) -> ClusterRemoval:
    """Take back what was planned, under the lease; return what is gone, what stays, and what went wrong."""
    if not planned:
        return planned
    try:
        with cluster.lease(holder):
            return _take_back(cluster, planned, results)
    except ClusterError as error:  # the nodes are done, and their results have to be seen
        return ClusterRemoval(failed=(error,))


def _take_back(cluster: Cluster, planned: ClusterRemoval, results: Collection[NodeResult]) -> ClusterRemoval:
    failing = [result.node for result in results if result.status not in _GONE]
    wanted = {name: each for name, each in planned.marks.items() if name not in failing and each.changes}
    refused = cluster.set_marks(dict.fromkeys(wanted, NO_MARKS)) if wanted else {}
    stays, classes = list(planned.stays), []
    for name in planned.classes:
        reason = f"{few(failing)} may still need it" if failing else _removed(cluster, name)
        if reason:
            stays.append(_stays(name, reason))
        else:
            classes.append(name)
    return ClusterRemoval(
        marks={name: each for name, each in wanted.items() if name not in refused},
        classes=tuple(classes),
        stays=tuple(stays),
        failed=tuple(dict.fromkeys(refused.values())),
    )


def _removed(cluster: Cluster, name: str) -> str:
    try:
        return cluster.remove_runtime_class(name)
    except ClusterError as error:
        return f"{error.message} ({error.hint})" if error.hint else error.message


def _why_class_stays(removing: Removing, cluster: Cluster, name: str) -> str | None:
    reason = cluster.why_runtime_class_stays(name)
    users = removing.unselected.get(name, ())
    if reason is None or reason or not users:
        return reason
    return f"{few(users)} may need it, too; with all nodes it goes"


def _stays(name: str, reason: str) -> str:
    return f"RuntimeClass {name} stays: {reason}"


def _left(marks: Mapping[str, MarkChange]) -> Iterator[str]:
    for node, each in marks.items():
        yield from (f"node {node} keeps what somebody has changed: {what}" for what in each.left)
