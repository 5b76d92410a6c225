"""Finds the pods that use a GPU or are waited for, among what the API server lists. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from provision.cluster.kubernetes.pods.pod_rules import DRAIN_SKIP, NOTHING, PodRules, tolerates, tolerates_taint
from provision.declaration.spec.model import DaemonSets
from provision.declaration.spec.text.excerpt import few
from provision.rollout.model import GpuPod

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.cluster.kubernetes.objects.claims import Allocated, ResourceClaim
    from provision.cluster.kubernetes.objects.core import OwnerReference
    from provision.cluster.kubernetes.objects.pods import AskedPod, Container, Pod

DRIVER: Final = "gpu.nvidia.com"  # of claims of whole GPUs and their parts
NVIDIA: Final = "nvidia.com"  # every extended resource and every DRA driver of this domain is about GPUs
_RESOURCES: Final = f"{NVIDIA}/"
MIRROR: Final = "kubernetes.io/config.mirror"  # annotation of a kubelet's static pod: evicting its mirror stops nothing
FOR_EVER: Final = inf
_ENDS: Final = "NoExecute"  # effect of the taint on devices that ends pods
FINISHED: Final = frozenset({"Succeeded", "Failed"})  # their containers have ended, their devices are free
NODE_JOB: Final = "grapnel.dev/node-job"  # label of the pod that changes the node: it is not in its own way
NODE_DAEMON: Final = "grapnel.dev/node-daemon"  # label of the daemon where it is a pod: a node is released by it
_NONE: Final = re.compile(r"\+?0*(\.0*)?([A-Za-z]*|[eE][+-]?[0-9]+)")  # a quantity of nothing, such as "0" or "0k"


class Given(NamedTuple):
    """What is known of a claim: the DRA drivers that allocated it, and for how many seconds it tolerates our taint."""

    drivers: frozenset[str] = frozenset()
    tolerates_s: float = 0.0


# Tells what a claim was given, by its namespace and name; None where that cannot be known.
Claims = Callable[[str, str], "Given | None"]


def unknown(_namespace: str, _name: str) -> Given | None:
    """Know no claim: a pod with any counts as one with a GPU."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUse:
    """What a pod means for its node: whether it ``has_gpu``, and whether it ``is_job``: it is waited for first.

    ``is_unread``: its claims cannot be read, and nothing else says that it has one.
    """

    node: str
    pod: GpuPod
    has_gpu: bool
    is_job: bool
    is_unread: bool = False


@dataclass(frozen=True, slots=True)
class NodePods:
    """The pods of a node that matter, by namespace and name; ``unread`` are those of which claims cannot be read."""

    gpu: tuple[GpuPod, ...] = ()
    jobs: tuple[GpuPod, ...] = ()
    unread: tuple[GpuPod, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """What people should know of them."""
        if not self.unread:
            return ()
        pods = few([str(pod) for pod in self.unread])
        return (f"claims cannot be read here, so pods that have any count as pods with GPUs: {pods}",)


NO_PODS: Final = NodePods()


def node_pods(uses: Iterable[PodUse]) -> NodePods:
    """Return the pods of one node in their order."""
    in_order = sorted(uses, key=lambda use: (use.pod.namespace, use.pod.name))
    return NodePods(
        gpu=_spared(tuple(use.pod for use in in_order if use.has_gpu)),
        jobs=tuple(use.pod for use in in_order if use.is_job),
        unread=tuple(use.pod for use in in_order if use.is_unread),
    )


def _spared(pods: tuple[GpuPod, ...]) -> tuple[GpuPod, ...]:
    """Return pods of a node, of which none is ended by a taint where one would be that may not be yet: all have it."""
    if not any(pod.is_by_claims and _has_time(pod) for pod in pods):
        return pods
    return tuple(replace(pod, is_by_claims=False) for pod in pods)


def _has_time(pod: GpuPod) -> bool:
    """Tell whether a pod is left alone, or leaves when something else has come first."""
    return pod.is_mirror_or_daemon or bool(pod.stays or pod.only_waited) or pod.is_replaced_first


def pod_use(pod: Pod, rules: PodRules, claims: Claims = unknown) -> PodUse | None:
    """Return what a pod means for the node that it is bound to; None where it is neither in the way nor waited for.

    Where ``claims`` does not know one, its pod counts as one with a GPU.
    """
    if not pod.spec.node_name or pod.status.phase in FINISHED:
        return None
    if _is_grapnels(pod, rules) and not has_gpu_of(pod, rules, claims):
        return None
    has_gpu = rules.takes_all or has_gpu_of(pod, rules, claims)
    is_selected = rules.awaits(pod.metadata.namespace, pod.metadata.labels)
    if not has_gpu and not is_selected:
        return None
    found = drained_pod(pod, rules)
    given = [_given(name, pod, claims) for name in claim_names(pod)] if rules.taints else []
    if ends := [each.tolerates_s for each in given if DRIVER in each.drivers]:
        found = replace(found, is_by_claims=min(ends) < FOR_EVER, tolerates_s=min(ends))
    is_own = not found.is_mirror_or_daemon and not _is_daemon(pod.metadata.controller)  # those of DaemonSets never end
    is_job = is_own and (is_selected or (has_gpu and bool(found.only_waited)))
    if not (has_gpu or is_job):
        return None
    is_unread = has_gpu and not rules.takes_all and not has_gpu_of(pod, rules, _nothing_where_unknown(claims))
    return PodUse(node=pod.spec.node_name, pod=found, has_gpu=has_gpu, is_job=is_job, is_unread=is_unread)


def _nothing_where_unknown(claims: Claims) -> Claims:
    return lambda namespace, name: claims(namespace, name) or Given()


def _is_grapnels(pod: Pod, rules: PodRules) -> bool:
    """Tell whether a pod does grapnel's own work on the node, so that it has to be there until the end.

    Whoever may make pods may write labels and owners, and every kubelet may write mirrors of its own. What counts is
    the namespace, in which the API server lets no other user make pods.
    """
    meta = pod.metadata
    owner = meta.controller
    if meta.namespace != rules.namespace or MIRROR in meta.annotations or owner is None:
        return False
    is_daemon = NODE_DAEMON in meta.labels and _is_daemon(owner)
    return is_daemon or (NODE_JOB in meta.labels and owner.is_a("batch", "Job"))


def has_gpu_of(pod: Pod, rules: PodRules, claims: Claims) -> bool:
    """Return whether a pod asks for a GPU, or can get one without asking.

    A sidecar keeps its GPU as long as the pod is there. What an init container had is free when it has ended.
    """
    return (
        any(_asks(container, rules) for container in pod.spec.containers)
        or any(_asks(container, rules) and not _has_ended(container, pod) for container in pod.spec.init_containers)
        or pod.spec.runtime_class_name in rules.giving_classes
        or any(_is_gpu_claim(name, pod, claims) for name in claim_names(pod))
    )


def drained_pod(pod: Pod, rules: PodRules) -> GpuPod:
    """Return a pod as the rollout knows it, with what is done about it."""
    controller = pod.metadata.controller
    is_daemon = _is_daemon(controller)
    is_left_alone = MIRROR in pod.metadata.annotations or (is_daemon and rules.daemon_sets is DaemonSets.IGNORE)
    return GpuPod(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        is_terminating=pod.metadata.deletion_timestamp is not None,
        is_mirror_or_daemon=is_left_alone,
        controller="" if controller is None else f"{controller.kind}/{controller.name}",
        ending=_ending(pod),
        stays="" if is_left_alone else _why_it_stays(pod, rules, is_daemon=is_daemon),
        only_waited="" if is_left_alone else _why_only_waited(pod, rules, controller),
        node=pod.spec.node_name,
        is_replaced_first=not is_daemon and rules.replaces_first(pod.metadata.namespace, pod.metadata.labels),
        created=pod.metadata.creation_timestamp,
        is_restarted=is_left_alone and is_daemon and pod.metadata.labels.get(DRAIN_SKIP) != "true",
    )


def _ending(pod: Pod) -> str:
    """Return how far a pod is that is being deleted: one that stays longer than that has a reason of its own."""
    deadline = pod.metadata.deletion_timestamp
    if deadline is None:
        return ""
    kept = f", then kept by finalizer {', '.join(pod.metadata.finalizers)}" if pod.metadata.finalizers else ""
    return f"terminating, its grace period ends at {deadline}{kept}"


def _why_it_stays(pod: Pod, rules: PodRules, *, is_daemon: bool) -> str:
    if pod.metadata.labels.get(DRAIN_SKIP) == "true":
        return f"it has the label {DRAIN_SKIP}=true"
    if is_daemon and rules.daemon_sets is DaemonSets.EVICT and tolerates(pod.spec.tolerations):
        return "its DaemonSet tolerates every taint, and would start it again at once"
    return ""


def _why_only_waited(pod: Pod, rules: PodRules, controller: OwnerReference | None) -> str:
    if pod.metadata.namespace in rules.only_wait:
        return f"namespace {pod.metadata.namespace} may only be waited for"
    if _is_daemon(controller) and rules.daemon_sets is DaemonSets.WAIT:
        return "pods of DaemonSets are only waited for"
    if controller is None and rules.keeps_bare:
        return "nothing would restart it"
    if rules.keeps_data and any(each.empty_dir is not None and not each.empty_dir.medium for each in pod.spec.volumes):
        return "its emptyDir would be lost"
    return ""


def _asks(container: Container, rules: PodRules) -> bool:
    return any(
        (name.startswith(_RESOURCES) or name in rules.resources) and _NONE.fullmatch(quantity) is None
        for asked in (container.resources.requests, container.resources.limits)
        for name, quantity in asked.items()
    )


def _has_ended(container: Container, pod: Pod) -> bool:
    """Tell whether an init container has done its work; a sidecar is started again whenever it ends."""
    if container.restart_policy == "Always":
        return False
    ended = [each.state.terminated for each in pod.status.init_container_statuses if each.name == container.name]
    return bool(ended) and ended[0] is not None and ended[0].exit_code == 0


def claim_names(pod: Pod | AskedPod) -> list[str]:
    """Return the names of a pod's ResourceClaims; empty ones are still to be made."""
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    named = [each.resource_claim_name or made.get(each.name) or NOTHING for each in pod.spec.resource_claims]
    extended = pod.status.extended_resource_claim_status
    return named if extended is None else [*named, extended.resource_claim_name]


def _given(name: str, pod: Pod, claims: Claims) -> Given:
    """Return what a claim was given, as far as that is known."""
    return (claims(pod.metadata.namespace, name) if name else None) or Given()


def _is_gpu_claim(name: str, pod: Pod, claims: Claims) -> bool:
    given = claims(pod.metadata.namespace, name) if name else Given()
    return given is None or any(driver == NVIDIA or driver.endswith(f".{NVIDIA}") for driver in given.drivers)


def given_of(claim: ResourceClaim) -> Given:
    """Return what a claim was given. Kubernetes ends its pods at the first device that tolerates our taint no more."""
    times = [_tolerates(each) for each in claim.results if each.driver == DRIVER]
    return Given(claim.drivers, min(times, default=0.0))


def _tolerates(device: Allocated) -> float:
    """Return for how many seconds a device of a claim tolerates our taint, as Kubernetes has it.

    A toleration that names no effect is none of NoExecute here, other than with pods.
    """
    every = [each for each in device.tolerations if each.effect == _ENDS and tolerates_taint(each)]
    if any(each.toleration_seconds is None for each in every):
        return FOR_EVER
    return float(max(0, min((each.toleration_seconds or 0 for each in every), default=0)))


def _is_daemon(controller: OwnerReference | None) -> bool:
    return controller is not None and controller.is_a("apps", "DaemonSet")
