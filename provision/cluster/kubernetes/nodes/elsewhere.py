"""Adds to what is seen of Nodes what other objects of the cluster say of them: locks, NodeMaintenances, pools."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from provision.cluster.kubernetes.nodes.maintenances import NOT_REQUESTED
from provision.rollout.model import NodeView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.cluster.kubernetes.nodes.locks import Locks
    from provision.cluster.kubernetes.nodes.maintenances import Maintenances
    from provision.cluster.kubernetes.nodes.pools import Pools
    from provision.cluster.kubernetes.objects.nodes import Node
    from provision.rollout.interface.cluster import NodeProblem
    from provision.rollout.model import Maintenance

_Words = tuple[str, "Maintenance | None", str]  # who holds the node, its maintenance, and a remark
_NOTHING: Final[_Words] = ("", None, "")


class Elsewhere:
    """What is read beside Nodes and pods; of a view that has not changed, it adds to the same object."""

    def __init__(self, locks: Locks | None, maintenances: Maintenances, pools: Pools) -> None:
        self._locks, self._maintenances, self._pools = locks, maintenances, pools
        self._former: dict[str, tuple[NodeView, _Words, NodeView]] = {}  # before, what was added, after

    def added_to(
        self, views: dict[str, NodeView | NodeProblem], nodes: Mapping[str, Node]
    ) -> dict[str, NodeView | NodeProblem]:
        """Return the views, with what is said elsewhere of the ``nodes`` that they are of."""
        holds = {} if self._locks is None else self._locks.holds()
        requested = self._maintenances.found()
        default = NOT_REQUESTED if self._maintenances.is_asked else None
        pools = self._pools.remarks(views.values())
        former, self._former = self._former, {}
        for name, node in nodes.items() if holds or default or pools else ():
            view = views.get(name)
            if not isinstance(view, NodeView):
                continue
            found = node.metadata.name
            words = (
                "" if view.held_by else holds.get(found, ""),
                requested.get(found, default),
                pools.get(view.pool, ""),
            )
            if words != _NOTHING:
                before, added, after = former.get(name, (None, _NOTHING, view))
                if before is not view or added != words:
                    after = _with(view, words)
                self._former[name] = (view, words, after)
                views[name] = after
        return views


def _with(view: NodeView, words: _Words) -> NodeView:
    held_by, maintenance, remark = words
    return replace(
        view,
        held_by=held_by or view.held_by,
        maintenance=maintenance,
        remarks=(*view.remarks, remark) if remark else view.remarks,
    )
