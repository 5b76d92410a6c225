"""Says before a rollout which of its evictions disruption budgets would refuse now, and which they never allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from provision.cluster.errors import ForbiddenError, RefusedError
from provision.cluster.kubernetes.objects.pods import DisruptionBudget, Pod
from provision.cluster.kubernetes.pods.eviction import TWO_BUDGETS
from provision.declaration.spec.values.label_selector import parse_selector

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.objects.core import LabelSelector
    from provision.rollout.model import GpuPod

_BUDGETS: Final = "/apis/policy/v1/poddisruptionbudgets"
_OPERATORS: Final = {"In": "in", "NotIn": "notin"}


def refusals(api: Api, pods: Collection[GpuPod]) -> dict[str, str]:
    """Return why these pods could not be evicted now, by UID; nothing where budgets may not be listed."""
    if not pods:
        return {}
    places = {pod.namespace for pod in pods}
    try:
        budgets = [each for each in api.list_all(_BUDGETS, DisruptionBudget) if each.metadata.namespace in places]
        seen = [pod for place in sorted({each.metadata.namespace for each in budgets}) for pod in _pods(api, place)]
    except (ForbiddenError, RefusedError):
        return {}
    wanted = {pod.uid for pod in pods}
    found = {pod.metadata.uid: why_not(pod, budgets) for pod in seen if pod.metadata.uid in wanted}
    return {uid: reason for uid, reason in found.items() if reason}


def why_not(pod: Pod, budgets: Iterable[DisruptionBudget]) -> str:
    """Return why a pod could not be evicted now; empty where it could. Pure."""
    mine = [budget for budget in budgets if _selects(budget, pod)]
    if len(mine) > 1:
        return TWO_BUDGETS
    return why_refused(mine[0]) if mine else ""


def why_refused(budget: DisruptionBudget) -> str:
    """Return why a budget allows no eviction now; empty where it allows one."""
    name, status = budget.metadata.name, budget.status
    if status.disruptions_allowed > 0:
        return ""
    total, wanted = status.expected_pods, status.desired_healthy
    if total and wanted >= total:
        return f"budget {name} never allows an eviction, as it needs all of its {total} pods: scale up, or change it"
    return f"would wait for budget {name}: {status.current_healthy} of {total} pods are healthy, and it needs {wanted}"


def render_selector(selector: LabelSelector) -> str:
    """Return a selector of an object as people write it; an empty one selects everything."""
    return ",".join(_requirements(selector))


def _requirements(selector: LabelSelector) -> Iterator[str]:
    for key, value in selector.match_labels.items():
        yield f"{key}={value}"
    for each in selector.match_expressions:
        if each.operator in _OPERATORS:
            yield f"{each.key} {_OPERATORS[each.operator]} ({','.join(each.values)})"
        else:
            yield each.key if each.operator == "Exists" else f"!{each.key}"


def _selects(budget: DisruptionBudget, pod: Pod) -> bool:
    selector = budget.spec.selector
    if selector is None or budget.metadata.namespace != pod.metadata.namespace:
        return False
    return parse_selector(render_selector(selector)).matches(pod.metadata.labels)


def _pods(api: Api, namespace: str) -> list[Pod]:
    return api.list_all(f"/api/v1/namespaces/{quote(namespace, safe='')}/pods", Pod)
