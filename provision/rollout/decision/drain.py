"""Says what has to leave a node before its driver is changed, and how it is asked to. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from provision.rollout.decision.snapshot import Action, Evict, RunStep, Write
from provision.rollout.model import ChangeKind, Phase

if TYPE_CHECKING:
    from datetime import datetime

    from provision.rollout.decision.snapshot import Holder, NodeState, StepResult
    from provision.rollout.model import GpuPod, Record

_RETRY: Final = timedelta(seconds=5)
_NAMED: Final = 3
_WITHOUT_PODS: Final = (Phase.DRAIN, Phase.RELEASE, Phase.ROLLBACK)


def has_to_leave(node: NodeState) -> tuple[GpuPod, ...]:
    """Return the pods that have to leave; those of DaemonSets and of the kubelet's own files would come back."""
    pods = node.view.gpu_pods + node.holding if node.holding else node.view.gpu_pods
    for pod in pods:
        if pod.is_mirror_or_daemon or pod.stays:
            return tuple([pod for pod in pods if not pod.is_mirror_or_daemon and not pod.stays])
    return pods


def evictable(node: NodeState) -> tuple[GpuPod, ...]:
    """Return the pods that are asked to leave."""
    return tuple([pod for pod in has_to_leave(node) if not pod.only_waited])


def to_restart(node: NodeState, record: Record) -> tuple[GpuPod, ...]:
    """Return the pods that stayed through the exchange of the driver, and are asked to leave once it is over.

    They have the libraries of the former driver, which do not work with the new one; whoever made them starts them
    again. Where all that are left were refused, they are not waited for: no node stays out of service for it.
    """
    pods = tuple(pod for pod in _outlived(node, record) if pod.is_restarted)
    return pods if any(pod.uid not in node.blocked for pod in pods) else ()


def outdated(node: NodeState, record: Record) -> str:
    """Return which pods go on with the libraries of the former driver, and what ends that, empty where none does."""
    pods = _outlived(node, record)
    if not pods:
        return ""
    named = ", ".join(f"pod {pod}{_why_not(pod, node)}" for pod in pods[:_NAMED])
    first = pods[0]
    remedy = f"restart what can be, such as by `kubectl delete pod -n {first.namespace} {first.name}`"
    return (
        f"still with the libraries of {record.origin}, since before the exchange: {named}{_more(len(pods))}; {remedy}"
    )


def _why_not(pod: GpuPod, node: NodeState) -> str:
    why = node.blocked.get(pod.uid, pod.stays)
    return f" ({why})" if why else ""


def _outlived(node: NodeState, record: Record) -> tuple[GpuPod, ...]:
    """Return the pods that were there when the driver was exchanged, as the cluster says when it made them."""
    if record.phase is not Phase.RESUME or record.is_returning or record.kind is not ChangeKind.DRIVER:
        return ()
    if not record.origin or record.origin == record.target:
        return ()
    found = [pod for pod in node.view.gpu_pods if pod.is_mirror_or_daemon or pod.stays]
    return tuple(
        pod for pod in found if pod.created is not None and pod.created < record.since and not pod.is_terminating
    )


def waits_for_jobs(node: NodeState, until: datetime | None) -> str:
    """Return which pods, or jobs of another scheduler, are waited for, and until when."""
    named = [*(_pod(pod, node) for pod in node.view.jobs[:_NAMED]), *map(str, node.view.work[:_NAMED])][:_NAMED]
    limit = "" if until is None else f", until {until:%Y-%m-%d %H:%M:%S} UTC at the latest"
    return f"waits for {', '.join(named)}{_more(len(node.view.jobs) + len(node.view.work))} to end{limit}"


def held(node: NodeState, record: Record, step: StepResult | None, pods: tuple[GpuPod, ...]) -> str:
    """Return what keeps the node in its phase, empty when nothing does."""
    if record.phase in _WITHOUT_PODS and pods:
        named = [_pod(pod, node) for pod in pods[:_NAMED]]
        return f"{', '.join(named)}{_more(len(pods))} still on the node"
    if record.phase in (Phase.DRAIN, Phase.RELEASE) and node.view.work:
        named = [str(job) for job in node.view.work[:_NAMED]]
        return f"{', '.join(named)}{_more(len(node.view.work))} still on the node"
    if step is not None and step.holders:
        named = [_holder(one, node) for one in step.holders[:_NAMED]]
        return f"a GPU is held by {', '.join(named)}{_more(len(step.holders))}"
    if record.phase is Phase.RESUME and step is not None and step.is_done:
        return _why_not_back(node, record)
    return ""


def _why_not_back(node: NodeState, record: Record) -> str:
    """Return why a node cannot take pods yet. For a while after a reboot, its Node is as ready as it was before."""
    if not node.view.is_ready:
        return node.view.why_not_ready or "the kubelet is not ready"
    if record.boot and node.view.boot == record.boot:
        return "the kubelet has not reported since the reboot"
    return ""


def again(
    node: NodeState, record: Record, step: StepResult | None, now: datetime, pods: tuple[GpuPod, ...]
) -> Action | None:
    """Return what is tried again while something keeps the node in its phase."""
    if record.phase is Phase.RESUME:
        return None
    if (pods or node.view.work) and not node.view.is_cordoned:  # it was uncordoned: they would come back
        return Write(node.name, record, cordoned=True)
    if record.phase is Phase.CORDON:  # whatever keeps it there, jobs have yet to be waited for
        return None
    if node.view.work and not pods:  # jobs have a time limit of their own, and end by themselves
        return None
    if pods:
        staying = tuple([pod for pod in pods if not pod.is_terminating and not pod.only_waited])
        return Evict(node.name, staying) if staying else None
    return (
        RunStep(node.name, record.phase, record.way_back) if step is not None and now - step.ended >= _RETRY else None
    )


def _pod(pod: GpuPod, node: NodeState) -> str:
    why = node.blocked.get(pod.uid, pod.only_waited)
    if pod.is_terminating:
        why = f"{pod.ending or 'terminating'}{'' if node.view.is_ready else ', but the kubelet is not ready'}"
    name = f"pod {pod.namespace}/{pod.name}"
    return f"{name} ({why})" if why else name


def _holder(holder: Holder, node: NodeState) -> str:
    pods = {pod.uid: pod for pod in (*node.view.gpu_pods, *node.holding)}
    of = holder.unit
    if holder.pod_uid:
        pod = pods.get(holder.pod_uid)
        of = f"pod with UID {holder.pod_uid}" if pod is None else f"pod {pod}"
        of = of if pod is None else f"{of}{_why_left_alone(pod)}"
    return f"{holder.command} ({holder.pid}{', ' + of if of else ''})"


def _why_left_alone(pod: GpuPod) -> str:
    """Return why a pod that holds a GPU is not evicted, and what ends it; empty where it is."""
    if pod.stays:
        return f", left alone: {pod.stays}"
    if not pod.is_mirror_or_daemon:
        return ""
    kind, _, name = pod.controller.partition("/")
    if kind == "DaemonSet":
        return f" of DaemonSet {name}, left alone: keep it off the node, or declare `daemonSets: evict`"
    return ", left alone: it is a static pod, which its file on the node ends"


def _more(count: int) -> str:
    return f" and {count - _NAMED} more" if count > _NAMED else ""
