"""`grapnel explain pod`, `node` and `claim`: why a pod has the GPUs that it has, or none; from the API alone."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from provision.base.errors import ExitCode, GrapnelError, UsageError
from provision.cli.look.answering import folder, newest, rendered, tried
from provision.cli.look.explain_claim import claim_explained
from provision.cli.session.scope import cluster_words
from provision.cluster import open_api
from provision.cluster.kubernetes.api.exchange import StatusError
from provision.cluster.kubernetes.nodes.fit import Candidate
from provision.cluster.kubernetes.nodes.pod_reasons import (
    PodFacts,
    explain_node,
    explain_pod,
    waits_for_node,
)
from provision.cluster.kubernetes.objects.claims import ResourceClaim
from provision.cluster.kubernetes.objects.pods import AskedPod, Pod
from provision.cluster.kubernetes.pods.claims import served_path
from provision.cluster.kubernetes.pods.gpu_pods import claim_names
from provision.cluster.kubernetes.runtime_class import read_runtime_class
from provision.cluster.kubernetes.usage import Usage
from provision.cluster.reader import KubernetesReader
from provision.controller.stacks.reader import see_stacks
from provision.declaration.spec.validate import nearest
from provision.report.console import make_console
from provision.report.runs.remedies import Invocation
from provision.report.status import render_node_status
from provision.report.terminal import show
from provision.rollout.status.derive import fleet_status

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from provision.cluster.kubernetes.api.client import Api
    from provision.report.progress.watching import Drawing
    from provision.rollout.status.model import FleetStatus, StackSeen

_NOT_MADE: Final = "FailedCreate"  # what ReplicaSets, Jobs, StatefulSets and DaemonSets say of a pod that is refused


def explain_thing(args: argparse.Namespace) -> int:
    """Print why a pod, a node or a claim stands as it does."""
    if args.key not in ("pod", "node", "claim"):
        raise UsageError(f"'{args.name}' is of no use behind a key", hint="`grapnel explain pod NAMESPACE/NAME`")
    namespace, _, name = (args.name or "").partition("/")
    if args.key != "node" and not (namespace and name):
        hint = f"name it with its namespace: `grapnel explain {args.key} default/train-0`"
        raise UsageError(f"which {args.key}?", hint=hint)
    api = open_api(args.kubeconfig, args.context, os.environ)
    if api is None:
        raise GrapnelError("there is no cluster to ask", hint="add `--kubeconfig`")
    invocation = Invocation(cluster_words(args))
    match args.key:
        case "pod":
            told = _pod(api, namespace, name, invocation)
        case "claim":
            told = claim_explained(api, namespace, name)
        case _:
            told = _node(api, args.name, invocation)
    show(make_console(sys.stdout), told)
    return ExitCode.DONE


def _pod(api: Api, namespace: str, name: str, invocation: Invocation) -> Drawing:
    pod = _find_pod(api, namespace, name)
    if pod is None:
        raise _no_pod(api, namespace, name)
    unread: list[str] = []
    reader = KubernetesReader(api, None, {}, stacks=see_stacks, usage=Usage(api))
    status = tried(lambda: fleet_status(reader.look()), "nodes", unread) if waits_for_node(pod) else None
    stacks = _stacks(api, status, unread)
    wanted = pod.spec.runtime_class_name
    before = len(unread)
    found = tried(lambda: read_runtime_class(api, wanted), "its RuntimeClass", unread) if wanted else None
    is_class_known = len(unread) == before
    claims = tried(lambda: _claims_of(api, pod), "its ResourceClaims", unread) if claim_names(pod) else ()
    warnings = [] if _is_well(pod) else tried(lambda: _warnings_of(api, pod), "Events about it", unread) or []
    facts = PodFacts(
        pod=pod,
        candidates=() if status is None else tuple(_candidates(reader, status)),
        plugins=tuple(each.plugin for each in stacks if each.plugin is not None and each.plugin.enabled),
        handlers=tuple(dict.fromkeys(handler for each in stacks for handler in each.handlers)),
        runtime_class=found,
        is_class_known=is_class_known,
        claims=claims,
        warnings=tuple(warnings),
        unread=tuple(unread),
    )
    return tuple(rendered(explain_pod(facts, invocation)))


def _no_pod(api: Api, namespace: str, name: str) -> GrapnelError:
    """Return that there is no such pod, with what is near: another name, or why none could be made."""
    unread: list[str] = []
    near = nearest(name, _names_of_pods(api, namespace))
    refused = tried(lambda: _refused_in(api, namespace), "why pods could not be made", unread) or ()
    hints = [f"did you mean {namespace}/{near}?"] if near else []
    hints += [f"pods that could not be made there: {'; '.join(refused)}"] if refused else unread
    hint = "; ".join(hints) or f"`kubectl -n {namespace} get pods` shows the names"
    return GrapnelError(f"there is no pod {namespace}/{name} in {api.name}", hint=hint)


def _node(api: Api, name: str, invocation: Invocation) -> Drawing:
    reader = KubernetesReader(api, [name], {}, stacks=see_stacks, usage=Usage(api), pods_of=name)
    status = fleet_status(reader.look())
    node = reader.known.get(name)
    if node is None:
        near = nearest(name, list(reader.known))
        hint = f"did you mean {near}?" if near else "`kubectl get nodes` shows the names"
        raise GrapnelError(f"{name} is not a node of {api.name}", hint=hint)
    (candidate,) = (each for each in _candidates(reader, status) if each.node is node)
    answer = explain_node(candidate, invocation)
    return (*render_node_status(status, name, invocation), *rendered(answer))


def _candidates(reader: KubernetesReader, status: FleetStatus) -> Iterator[Candidate]:
    """Yield every Node, with how it stands in the words that are true here."""
    known = {each.name: replace(each, situation=status.told(each.situation)) for each in status.nodes}
    return (Candidate(node, known.get(name)) for name, node in reader.known.items())


def _stacks(api: Api, status: FleetStatus | None, unread: list[str]) -> tuple[StackSeen, ...]:
    """Return the GpuStacks; where nodes were read, they were read with them."""
    if status is not None:
        unread += status.seen.complaints
        return status.seen.stacks
    stacks, complaint = see_stacks(api, {})
    unread += [complaint] if complaint else []
    return stacks


def _find_pod(api: Api, namespace: str, name: str) -> AskedPod | None:
    """Return a pod, or None. Raises ClusterError.

    It is listed by name rather than got: the roles in `deploy/rbac` grant `list` of pods, not `get`.
    """
    found = api.list_all(folder(namespace, "pods"), AskedPod, selector=f"metadata.name={name}")
    return next(iter(found), None)


def _claims_of(api: Api, pod: AskedPod) -> tuple[ResourceClaim, ...]:
    """Return those of a pod's claims that are there. Raises ClusterError."""
    wanted = set(claim_names(pod))
    try:
        served = served_path(api)
    except StatusError:  # an API server without any
        return ()
    path = f"{served}/namespaces/{quote(pod.metadata.namespace, safe='')}/resourceclaims"
    return tuple(each for each in api.list_all(path, ResourceClaim) if each.metadata.name in wanted)


def _names_of_pods(api: Api, namespace: str) -> list[str]:
    """Return the names of a namespace's pods. Raises ClusterError."""
    return [each.metadata.name for each in api.list_all(folder(namespace, "pods"), Pod)]


def _warnings_of(api: Api, pod: AskedPod) -> list[str]:
    """Return the last warnings about a pod, each in its newest words, the newest first. Raises ClusterError."""
    about = f"involvedObject.uid={pod.metadata.uid},type=Warning"
    return newest(api, pod.metadata.namespace, about)


def _refused_in(api: Api, namespace: str) -> list[str]:
    """Return why pods of a namespace could not be made lately, such as for want of quota. Raises ClusterError."""
    return newest(api, namespace, f"reason={_NOT_MADE}", named=True)


def _is_well(pod: AskedPod) -> bool:
    """Tell whether nothing has to be looked for: warnings about a pod that runs are of what is over."""
    return pod.status.phase == "Running" and all(
        each.state.waiting is None and each.state.terminated is None for each in pod.status.container_statuses
    )
