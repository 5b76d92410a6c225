"""Makes one cluster of several: nodes of Kubernetes, of Slurm, and others, in one rollout.

Each node is asked and told where it belongs. The limits of a rollout count all of them. One engine has every lock that
any of them has: two engines meet in the lock of the state file on one machine, in the lease of Kubernetes otherwise.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from provision.rollout.interface.cluster import Eviction, EvictionOutcome
from provision.rollout.interface.tenancy import without_kubernetes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from provision.rollout.errors import ClusterError
    from provision.rollout.interface.cluster import Cluster, NodeProblem, NodeWrite
    from provision.rollout.interface.node_marks import MarkChange, NodeMarks
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.standing import Standing
    from provision.rollout.interface.tenancy import TenancyChange, TenancyOrder
    from provision.rollout.model import GpuPod, NodeView, Record


class CompositeCluster:
    """Several clusters. ``homes`` says where each node belongs.

    ``keepers`` have the locks, in the order in which they are taken, and are told how the rollout stands; the first is
    the one that answers where a question is not about a node. ``pods_of`` has the nodes' pods, where there are any.
    """

    def __init__(self, homes: Mapping[str, Cluster], keepers: Sequence[Cluster], pods_of: Cluster | None) -> None:
        self._homes = homes
        self._keepers = tuple(keepers)
        self._pods_of = pods_of
        self._members = tuple({id(home): home for home in homes.values()}.values())
        self.name = "; ".join(member.name for member in self._members)

    def observe(self, nodes: Collection[str]) -> dict[str, NodeView | NodeProblem]:
        """Return what is true of each node where it belongs, in the order in which they were asked for."""
        found: dict[str, NodeView | NodeProblem] = {}
        for member in self._members:
            names = [name for name in nodes if self._homes[name] is member]
            if names:
                found |= member.observe(names)
        return {name: found[name] for name in nodes}

    @contextlib.contextmanager
    def watching(self, nodes: Collection[str], wake: Callable[[], None]) -> Iterator[None]:
        """Follow the changes of the nodes of each place."""
        with contextlib.ExitStack() as stack:
            for member in self._members:
                names = [name for name in nodes if self._homes[name] is member]
                if names:
                    stack.enter_context(member.watching(names, wake))
            yield

    def write(self, node: str, record: Record | None, *, cordoned: bool | None = None) -> None:
        """Remember ``record`` and cordon or uncordon where the node belongs."""
        self._homes[node].write(node, record, cordoned=cordoned)

    def withdraw_claims(self, nodes: Collection[str]) -> None:
        """Take it back where the nodes belong."""
        for member in self._members:
            if mine := [node for node in nodes if self._homes.get(node) is member]:
                member.withdraw_claims(mine)

    def find_pods(self, node: str, uids: Collection[str]) -> tuple[GpuPod, ...]:
        """Return the pods of these UIDs that are on a node now."""
        return self._homes[node].find_pods(node, uids)

    def write_all(self, changes: Sequence[NodeWrite]) -> dict[str, ClusterError]:
        """Do the same for several nodes, all of one place together."""
        refused: dict[str, ClusterError] = {}
        for member in self._members:
            if mine := [change for change in changes if self._homes[change.node] is member]:
                refused |= member.write_all(mine)
        return refused

    def evict_all(self, pods: Sequence[GpuPod]) -> dict[str, Eviction]:
        """Ask for several pods to leave their nodes."""
        if self._pods_of is None:
            return {pod.uid: Eviction(outcome=EvictionOutcome.GONE) for pod in pods}
        return dict(self._pods_of.evict_all(pods))

    def refusals(self, pods: Collection[GpuPod]) -> Mapping[str, str]:
        """Return why each of these pods could not be evicted now."""
        return {} if self._pods_of is None else self._pods_of.refusals(pods)

    def evict(self, pod: GpuPod) -> Eviction:
        """Ask for the pod to leave its node."""
        return Eviction(outcome=EvictionOutcome.GONE) if self._pods_of is None else self._pods_of.evict(pod)

    def request_maintenance(self, node: str) -> None:
        """Request it where the node belongs."""
        self._homes[node].request_maintenance(node)

    def settle_evictions(self, is_wanted: Callable[[str], bool]) -> None:
        """Take back what was asked for pods that are not wanted to leave any more."""
        if self._pods_of is not None:
            self._pods_of.settle_evictions(is_wanted)

    def has_runtime_class(self, name: str, handler: str) -> bool:
        """Return whether the RuntimeClass is there, or would not be read."""
        return (self._pods_of or self._keepers[0]).has_runtime_class(name, handler)

    def ensure_runtime_class(self, name: str, handler: str) -> bool:
        """Return whether the RuntimeClass had to be created."""
        return (self._pods_of or self._keepers[0]).ensure_runtime_class(name, handler)

    def why_runtime_class_stays(self, name: str) -> str | None:
        """Return why the RuntimeClass has to stay, where there may be one."""
        return None if self._pods_of is None else self._pods_of.why_runtime_class_stays(name)

    def remove_runtime_class(self, name: str) -> str:
        """Delete the RuntimeClass unless a pod needs it."""
        return "" if self._pods_of is None else self._pods_of.remove_runtime_class(name)

    def compare_marks(self, wanted: Mapping[str, NodeMarks]) -> Mapping[str, MarkChange]:
        """Return how labels and taints differ, where there are Nodes."""
        return {} if self._pods_of is None else self._pods_of.compare_marks(self._of_pods(wanted))

    def set_marks(self, wanted: Mapping[str, NodeMarks]) -> Mapping[str, ClusterError]:
        """Give Nodes their labels and taints, where there are Nodes."""
        return {} if self._pods_of is None else self._pods_of.set_marks(self._of_pods(wanted))

    def compare_tenancy(self, order: TenancyOrder) -> TenancyChange:
        """Return how quotas, priorities and queues differ, where there are pods."""
        return without_kubernetes(order) if self._pods_of is None else self._pods_of.compare_tenancy(order)

    def set_tenancy(self, order: TenancyOrder) -> TenancyChange:
        """Make them as declared, where there are pods."""
        return without_kubernetes(order) if self._pods_of is None else self._pods_of.set_tenancy(order)

    def _of_pods(self, wanted: Mapping[str, NodeMarks]) -> dict[str, NodeMarks]:
        return {name: marks for name, marks in wanted.items() if self._homes.get(name) is self._pods_of}

    @contextlib.contextmanager
    def lease(self, holder: str) -> Iterator[None]:
        """Have every lock while inside; when one is held by another process, none is kept."""
        with contextlib.ExitStack() as stack:
            for keeper in self._keepers:
                stack.enter_context(keeper.lease(holder))
            yield

    def check_lease(self) -> None:
        """Raise LeaseLostError when any of the locks is lost."""
        for keeper in self._keepers:
            keeper.check_lease()

    def paused(self) -> Pause | None:
        """Return the pause of any of them: each one holds the whole rollout."""
        return next((pause for keeper in self._keepers if (pause := keeper.paused()) is not None), None)

    def publish(self, standing: Standing) -> None:
        """Tell everybody: who reads one of the places sees the whole rollout."""
        for keeper in self._keepers:
            keeper.publish(standing)
