"""Naive readers of a cluster's objects, who believe names, labels and marks: they prove that an attack would succeed.

Never used by anything but the tests. Each is what grapnel once did, or what a reader does who does not ask who has
written an object. They read the same objects of the same API server as grapnel does beside them.
"""

from __future__ import annotations

import json
from typing import Any

Object = dict[str, Any]


def pod_of(job: str, pods: list[Object]) -> str:
    """Return the pod of a Job: the last one with its label."""
    found = [each for each in pods if each["metadata"].get("labels", {}).get("job-name") == job]
    return max(found, key=lambda each: each["metadata"]["creationTimestamp"])["metadata"]["name"] if found else ""


def words_about(job: str, events: list[Object]) -> str:
    """Return what the newest Event about a Job of that name says."""
    found = [each["message"] for each in events if each["involvedObject"].get("name") == job]
    return found[-1] if found else ""


def pods_with(labels: dict[str, str], pods: list[Object]) -> list[str]:
    """Return the pods of a Deployment: those with its labels."""
    return [each["metadata"]["name"] for each in pods if labels.items() <= each["metadata"].get("labels", {}).items()]


def in_the_way(pods: list[Object]) -> list[str]:
    """Return the pods that a drain is about: those that say neither that they are grapnel's nor a DaemonSet's."""
    return [each["metadata"]["name"] for each in pods if not _says_that_it_stays(each["metadata"])]


def _says_that_it_stays(metadata: Object) -> bool:
    owners = {each["kind"] for each in metadata.get("ownerReferences", [])}
    ours = {"grapnel.dev/node-job", "grapnel.dev/node-daemon"}
    return bool(ours & metadata.get("labels", {}).keys()) or "DaemonSet" in owners


def is_as_declared(node: Object, fingerprint: str) -> bool:
    """Tell whether a node has been brought to its declaration: its mark says so."""
    return bool(node["metadata"].get("annotations", {}).get("grapnel.dev/as-declared") == fingerprint)


def units_of(pod: str, nodes: list[Object]) -> int:
    """Return the memory units that a pod holds: what any node says of a pod of that name."""
    written = [each["metadata"].get("annotations", {}).get("grapnel.dev/memory-units", "{}") for each in nodes]
    pods = [each for text in written for each in json.loads(text).get("pods", []) if each["name"] == pod]
    return sum(units for each in pods for cards in each["containers"].values() for units in cards.values())


def busy_nodes(jobs: list[Object]) -> list[str]:
    """Return the nodes that are being changed: those that a Job with our label names, whoever has made it."""
    ours = [each for each in jobs if "grapnel.dev/node-job" in each["metadata"].get("labels", {})]
    return [each["metadata"]["annotations"]["grapnel.dev/node"] for each in ours]


def holder_of(lease: str, leases: list[Object]) -> str:
    """Return who holds the lease of that name."""
    return next((each["spec"]["holderIdentity"] for each in leases if each["metadata"]["name"] == lease), "")


def is_held_by_kured(node: str, daemon_sets: list[Object]) -> bool:
    """Tell whether kured is about to reboot a node: the lock of a DaemonSet of that name says so."""
    locks = [
        each["metadata"].get("annotations", {}).get("weave.works/kured-node-lock", "{}")
        for each in daemon_sets
        if each["metadata"]["name"] == "kured"
    ]
    return any(json.loads(lock).get("nodeID") == node for lock in locks)


def end_of(log: list[bytes]) -> str:
    """Return how a run ended: what the last line of its log says that is JSON with a status."""
    said = [json.loads(line) for line in log if line.startswith(b"{")]
    return next((each["status"] for each in reversed(said) if "status" in each), "")
