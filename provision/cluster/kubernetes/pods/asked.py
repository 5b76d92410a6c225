"""Reads what a question about one pod needs, by the smallest requests, and what else its namespace says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from provision.cluster.kubernetes.objects import AskedPod, Event, Pod

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.client import Api

_SHOWN: Final = 3
_NOT_MADE: Final = "FailedCreate"  # what ReplicaSets, Jobs, StatefulSets and DaemonSets say of a pod that is refused


def find_pod(api: Api, namespace: str, name: str) -> AskedPod | None:
    """Return a pod, None where there is none. It is a list: that is the right that people have. Raises ClusterError."""
    found = api.list_all(_folder(namespace, "pods"), AskedPod, selector=f"metadata.name={name}")
    return next(iter(found), None)


def names_of_pods(api: Api, namespace: str) -> list[str]:
    """Return the names of a namespace's pods. Raises ClusterError."""
    return [each.metadata.name for each in api.list_all(_folder(namespace, "pods"), Pod)]


def warnings_of(api: Api, pod: AskedPod) -> list[str]:
    """Return the last warnings about a pod, each in its newest words, the newest first. Raises ClusterError."""
    about = f"involvedObject.uid={pod.metadata.uid},type=Warning"
    return _newest(api, pod.metadata.namespace, about)


def refused_in(api: Api, namespace: str) -> list[str]:
    """Return why pods of a namespace could not be made lately, such as for want of quota. Raises ClusterError."""
    return _newest(api, namespace, f"reason={_NOT_MADE}", named=True)


def _newest(api: Api, namespace: str, selector: str, *, named: bool = False) -> list[str]:
    events = api.list_all(_folder(namespace, "events"), Event, selector=selector)
    events.sort(key=lambda each: int(each.metadata.resource_version or 0), reverse=True)
    told: dict[tuple[str, str], str] = {}
    for each in events:
        who = f"{each.involved_object.kind}/{each.involved_object.name}"
        told.setdefault((who, each.reason), f"{who}: {each.message}" if named else f"{each.reason}: {each.message}")
    return list(told.values())[:_SHOWN]


def _folder(namespace: str, what: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/{what}"
