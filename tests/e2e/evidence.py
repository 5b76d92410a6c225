"""Collects evidence of why something did not happen, shown with every wait that timed out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubernetes.client.exceptions import ApiException

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.e2e.api import Api
    from tests.e2e.stage import GpuNode

LINES = 12
EVENTS = 20
UNITS = ("grapnel-node", "kubelet", "containerd", "crio")


def pods_in_words(api: Api, namespace: str) -> Iterator[str]:
    """Yield the state of every pod of a namespace, the end of its log, and the namespace's events."""
    if not namespace:
        return
    for pod in api.pods(namespace):
        status = pod.status
        reason = " ".join(filter(None, (status.phase, status.reason, status.message)))
        yield f"pod {pod.metadata.name} on {pod.spec.node_name}: {reason}"
        for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
            yield f"  container {container.name}: {_state(container)}"
            yield from _indented(_log(api, pod, container.name))
    yield from [f"event {line}" for line in api.events(namespace)][-EVENTS:]


def nodes_in_words(api: Api, nodes: Sequence[GpuNode]) -> Iterator[str]:
    """Yield conditions, resources and, of the lab's nodes, the ends of the journals."""
    for gpu_node in nodes:
        node = api.node(gpu_node.name)
        conditions = ", ".join(f"{each.type}={each.status}" for each in node.status.conditions)
        yield f"node {gpu_node.name} ({gpu_node.engine}): {conditions}; unschedulable={node.spec.unschedulable}"
        yield f"  allocatable {node.status.allocatable}; taints {node.spec.taints}"
        if gpu_node.lab is not None:
            for unit in UNITS:
                yield f"  journal of {unit}:"
                yield from _indented(gpu_node.lab.journal(unit, LINES))


def _state(container: Any) -> str:
    state = container.state
    if state.waiting:
        return f"waiting: {state.waiting.reason} {state.waiting.message or ''}"
    if state.terminated:
        return f"ended with {state.terminated.exit_code}: {state.terminated.reason} {state.terminated.message or ''}"
    return f"running, {container.restart_count} restarts"


def _log(api: Api, pod: Any, container: str) -> str:
    try:
        return api.log(pod.metadata.namespace, pod.metadata.name, container)
    except ApiException as error:
        return f"(no log: {error.reason})"


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.splitlines()[-LINES:]]
