"""Defines what the rollout asks of the place where node state lives; ``provision.cluster`` implements it.

Nodes are named as in the inventory. Errors of all methods: ``provision.rollout.errors``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from provision.rollout.errors import ClusterError, ConflictError
from provision.rollout.interface.tenancy import without_kubernetes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from provision.rollout.interface.node_marks import MarkChange, NodeMarks
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.standing import Standing
    from provision.rollout.interface.tenancy import TenancyChange, TenancyOrder
    from provision.rollout.model import GpuPod, NodeView, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProblem:
    """Why nothing can be decided about one node: not in the cluster, an ambiguous name, a broken record."""

    name: str
    message: str
    hint: str = ""


class EvictionOutcome(StrEnum):
    """How an attempt to evict a pod ended."""

    EVICTED = "evicted"  # accepted: the pod now has its own grace period to end
    GONE = "gone"  # it is not there any more; a pod of the same name is another one
    BLOCKED = "blocked"  # refused for now, such as by a PodDisruptionBudget; ask again later


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """The answer to an eviction; ``reason`` says why one was BLOCKED, with the budget's name if there is one."""

    outcome: EvictionOutcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeWrite:
    """What `Cluster.write` takes, for one node of several."""

    node: str
    record: Record
    cordoned: bool | None


class Cluster(Protocol):
    """Where node state lives."""

    @property
    def name(self) -> str:
        """What messages call it, such as "cluster stage at https://127.0.0.1:6443"."""

    def observe(self, nodes: Collection[str]) -> Mapping[str, NodeView | NodeProblem]:
        """Return what is true of each of ``nodes``; every name that was asked is in the answer.

        A node that has not changed is the same object as before. Inside `watching` the answer may be as old as
        changes take to arrive; but a node that is being drained is shown without pods only when a read that began
        after it was cordoned found none.
        """

    def watching(self, nodes: Collection[str], wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Follow the changes of ``nodes`` while inside, and call ``wake``, from any thread, when there are some."""

    def write(self, node: str, record: Record | None, *, cordoned: bool | None = None) -> None:
        """Remember ``record`` (None: forget it) and cordon or uncordon, all of it or nothing.

        ``cordoned=None`` leaves the cordon as it is. Raises ConflictError when the node's record or cordon is no
        longer as it was last observed or written here: observe again and decide again. Other changes of the node
        are no conflict.
        """

    def withdraw_claims(self, nodes: Collection[str]) -> None:
        """Take back that nodes are as declared, before something is changed on them where they stand.

        `write` does so by itself. It costs no request where nothing claims it. Raises ClusterError; then nothing may
        begin.
        """

    def find_pods(self, node: str, uids: Collection[str]) -> tuple[GpuPod, ...]:
        """Return the pods of these UIDs that are on a node now, whether they asked for a GPU or not.

        A node says which pods hold its GPUs: one that is not bound to it is never returned.
        """

    def write_all(self, changes: Sequence[NodeWrite]) -> Mapping[str, ClusterError]:
        """Do the same for several nodes, each of them once; return what went wrong, by node: the others are written."""

    def evict_all(self, pods: Sequence[GpuPod]) -> Mapping[str, Eviction]:
        """Do as `evict` for several pods; return the answers by UID."""

    def refusals(self, pods: Collection[GpuPod]) -> Mapping[str, str]:
        """Return why each of these pods could not be evicted now, by UID; without those of which that is not known."""

    def evict(self, pod: GpuPod) -> Eviction:
        """Ask for the pod to leave its node, within its own grace period and its disruption budgets.

        One that is replaced first is BLOCKED until its replacement is ready elsewhere.
        """

    def settle_evictions(self, is_wanted: Callable[[str], bool]) -> None:
        """Take back what was asked for pods, by UID, that are not wanted to leave any more, and have not begun to.

        Called in every turn; that costs no request where there is nothing of the kind. What a process that was killed
        has asked for is known as well.
        """

    def request_maintenance(self, node: str) -> None:
        """Request what `NodeView.maintenance` says is missing; the `write` that ends the upgrade withdraws it."""

    def has_runtime_class(self, name: str, handler: str) -> bool:
        """Return whether the RuntimeClass is there, or is not needed. Raises RuntimeClassError as below."""

    def ensure_runtime_class(self, name: str, handler: str) -> bool:
        """Return whether the RuntimeClass had to be created.

        Raises RuntimeClassError when one of that name has another handler.
        """

    def why_runtime_class_stays(self, name: str) -> str | None:
        """Return why `remove_runtime_class` would leave it, empty where it would not; None: there is none."""

    def remove_runtime_class(self, name: str) -> str:
        """Delete it where grapnel has made it and no pod names it; return why it stays, empty where it is gone."""

    def compare_marks(self, wanted: Mapping[str, NodeMarks]) -> Mapping[str, MarkChange]:
        """Return how labels and taints of nodes that were observed differ; nodes without a difference are left out."""

    def set_marks(self, wanted: Mapping[str, NodeMarks]) -> Mapping[str, ClusterError]:
        """Give nodes their labels and taints, and take away what is declared no more; return what went wrong.

        What others have set stays as it is.
        """

    def compare_tenancy(self, order: TenancyOrder) -> TenancyChange:
        """Return how quotas, priorities and queues differ from what a stack declares; changes nothing."""

    def set_tenancy(self, order: TenancyOrder) -> TenancyChange:
        """Make them as declared, take back what this stack declares no more, and return what was done.

        What others have made or set stays as it is, and is among the problems.
        """

    def lease(self, holder: str) -> AbstractContextManager[None]:
        """Keep every other engine out while inside; the same ``holder`` takes its own lease over at once.

        Raises HeldError when another process holds it. When it is lost inside, the next `write`, `evict`,
        `ensure_runtime_class` or `check_lease` raises LeaseLostError and does nothing.
        """

    def paused(self) -> Pause | None:
        """Return who wants no further node to begin, None where no pause does.

        Inside `lease` it costs no request, and is known within seconds.
        """

    def check_lease(self) -> None:
        """Raise LeaseLostError when the lease is lost: for what is done elsewhere. Costs no request."""

    def publish(self, standing: Standing) -> None:
        """Tell whoever reads the state of the fleet how the rollout stands, soon; never an error, called often.

        Only inside `lease`: what was said last stays after it, until the next one.
        """


class OneByOne:
    """Adds to a cluster that answers at once what only a remote one has to do in another way."""

    def watching(self: Cluster, nodes: Collection[str], wake: Callable[[], None]) -> AbstractContextManager[None]:
        """There is nothing to follow: every `observe` looks."""
        del nodes, wake
        return nullcontext()

    def withdraw_claims(self: Cluster, nodes: Collection[str]) -> None:
        """There is no controller that claims anything."""
        del nodes

    def find_pods(self: Cluster, node: str, uids: Collection[str]) -> tuple[GpuPod, ...]:
        """There are no pods but those that `observe` shows."""
        del node, uids
        return ()

    def refusals(self: Cluster, pods: Collection[GpuPod]) -> Mapping[str, str]:
        """There are no budgets."""
        del pods
        return {}

    def request_maintenance(self: Cluster, node: str) -> None:
        """No other system has to be asked."""
        del node

    def why_runtime_class_stays(self: Cluster, name: str) -> str | None:
        """There is none."""
        del name
        return None

    def remove_runtime_class(self: Cluster, name: str) -> str:
        """There is none."""
        del name
        return ""

    def compare_marks(self: Cluster, wanted: Mapping[str, NodeMarks]) -> Mapping[str, MarkChange]:
        """There are no objects that could be labelled."""
        del wanted
        return {}

    def set_marks(self: Cluster, wanted: Mapping[str, NodeMarks]) -> Mapping[str, ClusterError]:
        """There are no objects that could be labelled."""
        del wanted
        return {}

    def compare_tenancy(self: Cluster, order: TenancyOrder) -> TenancyChange:
        """There is nowhere to keep quotas."""
        return without_kubernetes(order)

    def set_tenancy(self: Cluster, order: TenancyOrder) -> TenancyChange:
        """There is nowhere to keep quotas."""
        return without_kubernetes(order)

    def settle_evictions(self: Cluster, is_wanted: Callable[[str], bool]) -> None:
        """There is nothing to take back: what is asked is done or refused at once."""
        del is_wanted

    def write_all(self: Cluster, changes: Sequence[NodeWrite]) -> Mapping[str, ClusterError]:
        """Write one after the other; after an error that is not about one node, nothing more is tried."""
        failed: dict[str, ClusterError] = {}
        general: ClusterError | None = None
        for change in changes:
            if general is not None:
                failed[change.node] = general
                continue
            try:
                self.write(change.node, change.record, cordoned=change.cordoned)
            except ConflictError as error:
                failed[change.node] = error
            except ClusterError as error:
                failed[change.node] = general = error
        return failed

    def evict_all(self: Cluster, pods: Sequence[GpuPod]) -> Mapping[str, Eviction]:
        """Evict one after the other."""
        return {pod.uid: self.evict(pod) for pod in pods}
