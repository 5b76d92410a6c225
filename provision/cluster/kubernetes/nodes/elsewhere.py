"""Adds to what is seen of Nodes what other objects of the cluster say of them: locks, NodeMaintenances, pools."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from provision.cluster.kubernetes.nodes.maintenances import NOT_REQUESTED
from provision.cluster.kubernetes.nodes.polled import Polled
from provision.cluster.kubernetes.objects.core import Metadata
from provision.declaration.spec.model import Tool
from provision.rollout.model import NodeView

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.nodes.locks import Locks
    from provision.cluster.kubernetes.nodes.maintenances import Maintenances
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


# Reads which MachineConfigPools of OpenShift are paused (openshift/api, machineconfiguration/v1/types.go). That holds
# no upgrade: the machine-config-operator begins nothing on the nodes of a paused pool, and a node that it has begun
# with says so itself. People should know of it, since what was held back comes when the pool is resumed.

POOLS: Final = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools"
# Set by NVIDIA's maintenance operator on a pool that it has paused (Mellanox/maintenance-operator,
# internal/openshift/mcp.go).
PAUSED_BY_OPERATOR: Final = "maintenance.nvidia.com/mcp-paused"


class _Configuration(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""


class _Spec(msgspec.Struct, frozen=True, kw_only=True):
    paused: bool = False
    configuration: _Configuration = _Configuration()


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    configuration: _Configuration = _Configuration()


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A MachineConfigPool: what its nodes are to have, and what they all have."""

    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def remark(self) -> str:
        """What there is to know of its nodes, empty where it is not paused."""
        if not self.spec.paused:
            return ""
        name, wanted = self.metadata.name, self.spec.configuration.name
        by = " by NVIDIA's maintenance operator" if PAUSED_BY_OPERATOR in self.metadata.annotations else ""
        held_back = wanted if wanted and wanted != self.status.configuration.name else ""
        then = f", which then brings {held_back}, and may reboot it" if held_back else ""
        return (
            f"its MachineConfigPool {name} is paused{by}: the machine-config-operator changes nothing until it is "
            f"resumed{then}"
        )


class Pools:
    """The pools of a cluster, where Nodes say that they are in one, and these may be listed."""

    def __init__(self, api: Api, respect: Collection[Tool]) -> None:
        self._api, self._is_asked = api, Tool.MACHINE_CONFIG_OPERATOR in respect
        self._polled = Polled(self._read, api.clock)
        self._is_openshift = False

    def remarks(self, views: Iterable[NodeView | NodeProblem]) -> Mapping[str, str]:
        """Return what there is to know, by the names of pools."""
        if not self._is_asked:
            return {}
        self._is_openshift = self._is_openshift or any(isinstance(view, NodeView) and view.pool for view in views)
        return self._polled.found() if self._is_openshift else {}

    def _read(self) -> dict[str, str]:
        pools = self._api.list_all(POOLS, Pool)
        return {pool.metadata.name: pool.remark for pool in pools if pool.remark}
