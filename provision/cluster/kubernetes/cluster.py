"""Keeps node state in Kubernetes: labels and an annotation of the Node, evictions, the RuntimeClass, a Lease."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote

from provision.cluster.errors import ForbiddenError
from provision.cluster.kubernetes.access import require_access
from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import MERGE_PATCH, Request, StatusError
from provision.cluster.kubernetes.api.parallel import each
from provision.cluster.kubernetes.lease import Tenure, hold, holder_now, pause_of, read_lease
from provision.cluster.kubernetes.mark_keeper import MarkKeeper
from provision.cluster.kubernetes.nodes.elsewhere import Elsewhere, Pools
from provision.cluster.kubernetes.nodes.maintenances import Maintenances, needs_withdrawal
from provision.cluster.kubernetes.nodes.marks import (
    AS_DECLARED,
    UPGRADE,
    former_record,
    render_patch,
    render_withdrawal,
)
from provision.cluster.kubernetes.nodes.node_view import view_of
from provision.cluster.kubernetes.nodes.others import EVERYTHING, Asked
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.objects.pods import Pod
from provision.cluster.kubernetes.permissions import LEADER_NAME
from provision.cluster.kubernetes.pods.budgets import refusals
from provision.cluster.kubernetes.pods.claims import ClaimReader
from provision.cluster.kubernetes.pods.eviction import evict
from provision.cluster.kubernetes.pods.evictions.device_taints import DeviceTaints
from provision.cluster.kubernetes.pods.evictions.replacements import Replacements
from provision.cluster.kubernetes.pods.evictions.requests import EvictionRequests
from provision.cluster.kubernetes.pods.gpu_pods import drained_pod
from provision.cluster.kubernetes.reporter import NodeReporter
from provision.cluster.kubernetes.runtime_class import (
    ensure_runtime_class,
    has_runtime_class,
    remove_runtime_class,
    why_it_stays,
)
from provision.cluster.kubernetes.tenancy.keeper import TenancyKeeper
from provision.cluster.kubernetes.watch.informer import ALIVE, FEW, NODES, PODS, Informer
from provision.cluster.kubernetes.watch.mirror import essence
from provision.cluster.progress import encode_progress
from provision.rollout.errors import ClusterError, ConflictError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.nodes.locks import Locks
    from provision.cluster.kubernetes.pods.pod_rules import PodRules
    from provision.cluster.machine import Machine
    from provision.rollout.interface.cluster import Eviction, NodeProblem, NodeWrite
    from provision.rollout.interface.node_marks import MarkChange, NodeMarks
    from provision.rollout.interface.pause import Pause
    from provision.rollout.interface.standing import Standing
    from provision.rollout.interface.tenancy import TenancyChange, TenancyOrder
    from provision.rollout.model import GpuPod, NodeView, Record

_ATTEMPTS: Final = 5
_ONE_BY_ONE: Final = 50  # up to so many Nodes are looked at once by themselves, where the cluster may have thousands


class Held(Protocol):
    """A hold on the lease."""

    @property
    def pause(self) -> Pause | None:
        """Who wants no further node to begin."""

    def check(self) -> None:
        """Raise LeaseLostError when the lease is no longer certain to be held."""

    def publish(self, standing: Standing) -> None:
        """Hear how a rollout under the lease stands."""


class KubernetesCluster:
    """A cluster of Kubernetes. `write` and `evict` may be called by several threads, for different nodes.

    ``machines`` are what is known of them, by their names in the inventory; every `observe` looks at it again.
    ``rules`` are what its pods are judged by, ``asked`` what the declaration wants to know of Nodes,
    ``locks`` what other tools hold by objects of their own. With a ``tenure`` the lease is held by whoever has that:
    `lease` does not take it, and machines are called what their Nodes are called.
    """

    def __init__(
        self,
        api: Api,
        *,
        rules: PodRules,
        machines: Mapping[str, Machine],
        asked: Asked = EVERYTHING,
        locks: Locks | None = None,
        tenure: Held | None = None,
    ) -> None:
        self.name = api.name
        self._api = api
        self._acting = api.guarded(self.check_lease)  # for whatever changes something
        self._rules = rules
        self._claims = ClaimReader(api)
        self._replacements = Replacements(api, self._acting, keeps=rules.keeps_unreplaced)
        self._requests = EvictionRequests(api, self._acting, is_used=rules.requests)
        self._taints = DeviceTaints(api, self._acting, is_used=rules.taints)
        self._machines = machines
        self._asked = asked
        self._marks = MarkKeeper(api, self._acting, self._read)
        self._tenancy = TenancyKeeper(api, self._acting)
        self._maintenances = Maintenances(api, self._acting, is_asked=asked.maintenances)
        self._elsewhere = Elsewhere(locks, self._maintenances, Pools(api, asked.respect))
        self._seen: dict[str, Node] = {}
        self._views: dict[str, NodeView | NodeProblem] = {}
        self._informer: Informer | None = None
        self._shared = tenure
        self._tenure: Held | None = tenure
        self._standing: Standing | None = None

    def observe(self, nodes: Collection[str]) -> dict[str, NodeView | NodeProblem]:
        """Return what is true of each node.

        Nodes are read before pods: a node that was seen cordoned gets no pod that this call could miss, save one
        that the scheduler was just binding.
        """
        informer = self._informer
        views = (
            self._informer_of(nodes, lambda: None, few=_ONE_BY_ONE).look(nodes)
            if informer is None
            else informer.observe(nodes)
        )
        return self._elsewhere.added_to(views, self._seen)

    @contextlib.contextmanager
    def watching(self, nodes: Collection[str], wake: Callable[[], None]) -> Iterator[None]:
        """Follow Nodes and pods by watches while inside; raises ClusterError where that cannot begin."""
        self._informer = self._informer_of(nodes, wake)
        try:
            self._informer.start()
            yield
        finally:
            self._informer.stop()
            self._informer = None

    def reporter(self, *, events: bool, kinds: Collection[str]) -> NodeReporter:
        """Return what writes Events and conditions on the Nodes while a rollout runs, with its own permissions."""
        return NodeReporter(self._api, self._seen.get, events=events, kinds=kinds)

    def write(self, node: str, record: Record | None, *, cordoned: bool | None = None) -> None:
        """Remember ``record`` and set the cordon of a node that was observed before, in one patch."""
        seen = self._seen[node]
        if needs_withdrawal(seen, record):  # before the record that would be the only trace of it is over
            self._maintenances.withdraw(seen)
        if record is None or record.phase.is_in_service:
            self._taints.end(seen.metadata.name)
        for _attempt in range(_ATTEMPTS):
            patch = render_patch(record, cordoned=cordoned, node=seen)
            request = Request(method="PATCH", path=node_path(seen), body=patch, content_type=MERGE_PATCH)
            try:
                written = self._acting.call(request, Node, expected=(CONFLICT, NOT_FOUND))
            except StatusError:
                now = self._get(seen)
            else:
                self._keep(node, written)
                return
            if now is not None and _holds(now, patch):  # our own patch, whose answer was lost
                self._keep(node, now)
                return
            if now is None or not _is_untouched(seen, now, cordon=cordoned is not None):
                if now is not None and self._informer is not None:
                    self._informer.read(now)
                break
            seen = now  # changed where it does not matter here, such as by its kubelet
        raise ConflictError(
            f"node {seen.metadata.name} of {self.name} was changed by somebody else meanwhile",
            hint="run apply again: it continues from what is recorded now",
        )

    def withdraw_claims(self, nodes: Collection[str]) -> None:
        """Take the annotation off the Nodes that have it."""
        claimed = [
            name for name in nodes if name in self._seen and AS_DECLARED in self._seen[name].metadata.annotations
        ]
        answers = each(self._withdraw_claim, claimed)
        if (failed := next((answer for answer in answers if isinstance(answer, ClusterError)), None)) is not None:
            raise failed

    def _withdraw_claim(self, name: str) -> None:
        seen = self._seen[name]
        patch = render_withdrawal(seen)
        request = Request(method="PATCH", path=node_path(seen), body=patch, content_type=MERGE_PATCH)
        with contextlib.suppress(StatusError):  # it has gone, or is another one
            self._keep(name, self._acting.call(request, Node, expected=(CONFLICT, NOT_FOUND)))

    def request_maintenance(self, node: str) -> None:
        """Request a NodeMaintenance for it."""
        self._maintenances.request(self._seen[node])

    def find_pods(self, node: str, uids: Collection[str]) -> tuple[GpuPod, ...]:
        """Return the pods of these UIDs that are on a node now, as the API server has them."""
        seen = self._seen.get(node)
        where = "" if seen is None else f"spec.nodeName={seen.metadata.name},{ALIVE}"
        pods = self._api.list_all(PODS, Pod, selector=where) if where else ()
        return tuple(drained_pod(pod, self._rules) for pod in pods if pod.metadata.uid in uids)

    def write_all(self, changes: Sequence[NodeWrite]) -> dict[str, ClusterError]:
        """Do the same for several nodes, several at a time."""
        answers = each(lambda one: self.write(one.node, one.record, cordoned=one.cordoned), changes)
        return {
            one.node: answer for one, answer in zip(changes, answers, strict=True) if isinstance(answer, ClusterError)
        }

    def evict_all(self, pods: Sequence[GpuPod]) -> dict[str, Eviction]:
        """Ask for several pods to leave, several at a time.

        Those of one owner that are replaced first one after the other: each is to see what became of the one before.
        """
        groups: dict[str, list[GpuPod]] = {}
        for pod in pods:
            groups.setdefault(f"{pod.namespace}/{pod.controller}" if pod.is_replaced_first else pod.uid, []).append(pod)
        answers: dict[str, Eviction] = {}
        for group in each(lambda group: [(pod.uid, self.evict(pod)) for pod in group], list(groups.values())):
            if isinstance(group, ClusterError):
                raise group
            answers.update(group)
        return answers

    def refusals(self, pods: Collection[GpuPod]) -> dict[str, str]:
        """Return why each of these pods could not be evicted now: its replacement, or its disruption budgets."""
        first = {pod.uid: self._replacements.foresee(pod) for pod in pods if pod.is_replaced_first}
        asked = [pod for pod in pods if first.get(pod.uid) is None and not self._taints.ends(pod)]
        refused = refusals(self._api, asked)
        return refused | {uid: reason for uid, reason in first.items() if reason}

    def evict(self, pod: GpuPod) -> Eviction:
        """Ask for the pod to leave its node: by its replacement, a taint, a request, or by the Eviction API."""
        answer = self._replacements.ask(pod) if pod.is_replaced_first else None
        return answer or self._taints.ask(pod) or self._requests.ask(pod) or evict(self._acting, pod)

    def settle_evictions(self, is_wanted: Callable[[str], bool]) -> None:
        """Take back the EvictionRequests for pods that are not wanted to leave any more."""
        self._requests.settle(is_wanted)

    def has_runtime_class(self, name: str, handler: str) -> bool:
        """Return whether the RuntimeClass is there."""
        return has_runtime_class(self._api, name, handler)

    def ensure_runtime_class(self, name: str, handler: str) -> bool:
        """Return whether the RuntimeClass had to be created."""
        return ensure_runtime_class(self._acting, name, handler)

    def why_runtime_class_stays(self, name: str) -> str | None:
        """Return why the RuntimeClass has to stay."""
        return why_it_stays(self._api, name)

    def remove_runtime_class(self, name: str) -> str:
        """Delete the RuntimeClass unless a pod needs it."""
        return remove_runtime_class(self._api, self._acting, name)

    def compare_marks(self, wanted: Mapping[str, NodeMarks]) -> Mapping[str, MarkChange]:
        """Return how the labels and taints of Nodes differ from what is declared."""
        return self._marks.compare(wanted, self._seen)

    def set_marks(self, wanted: Mapping[str, NodeMarks]) -> Mapping[str, ClusterError]:
        """Give Nodes their labels and taints."""
        return self._marks.set(wanted, self._seen)

    def compare_tenancy(self, order: TenancyOrder) -> TenancyChange:
        """Return how quotas, priorities and queues differ from what a stack declares."""
        return self._tenancy.compare(order)

    def set_tenancy(self, order: TenancyOrder) -> TenancyChange:
        """Make quotas, priorities and queues as a stack declares them."""
        return self._tenancy.bring(order)

    @contextlib.contextmanager
    def lease(self, holder: str) -> Iterator[None]:
        """Keep every other engine out while inside; what this one may do is made sure of first."""
        require_access(
            self._api,
            replacing=self._rules.replacing,
            requesting=self._asked.maintenances,
            tainting=self._rules.taints,
        )
        self._requests.begin()
        self._standing = None
        if self._shared is not None:
            self._sweep()
            yield
            return
        tenure = Tenure(self._api, holder, progress=self._progress)
        with hold(tenure):
            self._tenure = tenure
            try:
                self._sweep()
                yield
            finally:
                self._tenure = None

    def _sweep(self) -> None:
        """Take back what other processes have left; not before these are out."""
        self._taints.settle(self._is_out)
        self._maintenances.sweep(self._read)

    def _is_out(self, node: str) -> bool:
        """Tell whether a Node that was seen is out of service, or was not seen."""
        seen = next((each for each in self._seen.values() if each.metadata.name == node), None)
        record = None if seen is None else former_record(seen)
        return seen is None or (record is not None and not record.phase.is_in_service)

    def paused(self) -> Pause | None:
        """Return the pause as it was when the lease was last renewed; outside of a lease, as it is now."""
        tenure = self._tenure
        if tenure is not None:
            return tenure.pause
        lease = read_lease(self._api)
        return None if lease is None else pause_of(lease.metadata.annotations)

    def leading_controller(self) -> str:
        """Return the replica of a controller that leads, empty where none does, or that may not be asked."""
        try:
            return holder_now(self._api, LEADER_NAME)
        except ForbiddenError:  # a role from before there was that lease
            return ""

    def publish(self, standing: Standing) -> None:
        """Have the next renewal of the lease carry it along."""
        self._standing = standing
        if self._shared is not None:
            self._shared.publish(standing)

    def _keep(self, name: str, node: Node) -> None:
        self._seen[name] = essence(node)
        if self._informer is not None:
            self._informer.written(node)

    def _progress(self) -> str:
        """Return what is published, with the names of Nodes. Called by the thread that renews the lease, too."""
        standing = self._standing
        if standing is None:
            return ""
        return encode_progress(standing, {name: node.metadata.name for name, node in self._seen.copy().items()})

    def check_lease(self) -> None:
        """Raise LeaseLostError when this engine has lost the lease, by its own clock."""
        if self._tenure is not None:
            self._tenure.check()

    def _informer_of(self, nodes: Collection[str], wake: Callable[[], None], few: int = FEW) -> Informer:
        known = [self._seen[name].metadata.name for name in nodes if name in self._seen]
        if self._shared is not None:
            known = list(nodes)
        limit = FEW if self._shared is None else few
        return Informer(
            self._api,
            only=known if len(known) == len(nodes) <= limit else (),
            see=lambda node: view_of(node.metadata.name, node, self.name, asked=self._asked),
            rules=self._rules,
            claims=self._claims.given,
            machines=self._machines,
            seen=self._seen,
            views=self._views,
            wake=wake,
        )

    def _get(self, node: Node) -> Node | None:
        """Return the node as it is now; None when it has left the cluster."""
        return self._read(node.metadata.name)

    def _read(self, name: str) -> Node | None:
        try:
            return self._api.call(Request(method="GET", path=path_of(name)), Node, expected=(NOT_FOUND,))
        except StatusError:
            return None


def node_path(node: Node) -> str:
    """Return the path of a Node in the API."""
    return path_of(node.metadata.name)


def path_of(name: str) -> str:
    """Return the path of the Node of a name."""
    return f"{NODES}/{quote(name, safe='')}"


def _holds(node: Node, patch: Mapping[str, Mapping[str, Mapping[str, object]]]) -> bool:
    """Return whether the node already is as the patch wants it."""
    wanted = patch["metadata"]["annotations"][UPGRADE]
    cordon = patch.get("spec", {}).get("unschedulable", node.spec.unschedulable)
    return node.metadata.annotations.get(UPGRADE) == wanted and node.spec.unschedulable == cordon


def _is_untouched(seen: Node, now: Node, *, cordon: bool) -> bool:
    """Return whether what was decided on is still so: the node itself, its record, the cordon if it is to be set."""
    return (
        now.metadata.uid == seen.metadata.uid
        and now.metadata.annotations.get(UPGRADE) == seen.metadata.annotations.get(UPGRADE)
        and (not cordon or now.spec.unschedulable == seen.spec.unschedulable)
    )
