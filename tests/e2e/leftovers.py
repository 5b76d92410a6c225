"""What a test leaves for the next one: nodes out of service, GPUs that are not offered, pods that have some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.e2e.fleet import UPGRADE
from tests.e2e.manifests import RESOURCE
from tests.e2e.room import ENDED
from tests.e2e.waiting import TIMEOUT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tests.e2e.stage import Stage


def leftovers(stage: Stage, rooms: Collection[str]) -> list[str]:
    """Return what is not as a test may expect it, in words; pods of ``rooms`` belong there."""
    return [*_of_nodes(stage), *_of_pods(stage, rooms)]


def _of_nodes(stage: Stage) -> Iterator[str]:
    for lab_node in stage.lab_nodes:
        node = stage.api.node(lab_node.name)
        phase = (node.metadata.labels or {}).get(UPGRADE, "")
        if node.spec.unschedulable:
            yield f"{lab_node.name} is cordoned, its upgrade is at {phase or 'nothing'}"
        for taint in node.spec.taints or ():
            if not node.spec.unschedulable:  # whose taint is on it as well
                yield f"{lab_node.name} has the taint {taint.key}:{taint.effect}"
        offered = stage.api.allocatable(lab_node.name)
        if offered != len(lab_node.uuids):
            yield f"{lab_node.name} offers {offered} of {len(lab_node.uuids)} GPUs"


def _of_pods(stage: Stage, rooms: Collection[str]) -> Iterator[str]:
    for pod in stage.api.all_pods():
        meta = pod.metadata
        if _takes_gpus(pod) and pod.status.phase not in ENDED and meta.namespace not in rooms:
            ending = "" if meta.deletion_timestamp is None else f", ending since {meta.deletion_timestamp:%H:%M:%S}"
            yield f"pod {meta.namespace}/{meta.name} is {pod.status.phase} on {pod.spec.node_name}{ending}"


def _takes_gpus(pod: Any) -> bool:
    """Tell whether the scheduler counts GPUs of a node as taken by a pod: also those that an init container had."""
    containers = (*(pod.spec.init_containers or ()), *pod.spec.containers)
    return any(RESOURCE in (each.resources.limits or {}) for each in containers)


def require_clean(stage: Stage, rooms: Collection[str], by: str, *, timeout_s: float = TIMEOUT_S) -> None:
    """Wait until nothing is left over: pods take a moment to end, and a kubelet tells of its GPUs every ten seconds.

    ``by`` is who was here before.
    """
    found: list[str] = []

    def is_clean() -> bool:
        found[:] = leftovers(stage, rooms)
        return not found

    wait_for(
        f"the stage is clean after {by}",
        is_clean,
        timeout_s=timeout_s,
        evidence=lambda: "\n".join([f"left by {by}:", *found, stage.evidence()]),
    )
