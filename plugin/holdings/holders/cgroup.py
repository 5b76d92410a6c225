"""Where a process belongs, as its control group says: unit, pod and container. Pure.

Not here: reading /proc, and what a pod or a container is called.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_POD = re.compile(r"(?:^|[/-])pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?=[/.:]|$)")
_CONTAINER = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_USERS = "user@"  # a user's own service manager, below which the user makes control groups


@dataclass(frozen=True)
class Place:
    """Where a process belongs; None where the control group does not say."""

    unit: str | None = None
    pod_uid: str | None = None
    container_id: str | None = None


def parse_cgroup(text: str) -> Place:
    """Return the place from /proc/PID/cgroup: cgroup v1 or v2, cgroupfs or systemd driver, any engine.

    Pods are `…/pod<uid>/<id>` or `…-pod<uid with underscores>.slice/<engine>-<id>.scope`; an engine whose driver is
    not the kubelet's makes `….slice:cri-containerd:<id>`. A static pod's uid has no dashes. Of a container in a
    container the outer one is told: the kubelet knows no other. Hierarchies that name two pods tell nothing of either.
    So it is with units: what is below the outermost was named by a user or a container, as they liked. A pod below a
    user's own manager does not count, for that reason.
    """
    paths = [line.split(":", 2)[-1] for line in text.split("\n")]  # a group's name may have any other line end
    units = list(filter(None, map(_outermost_unit, paths)))
    unit = units[-1] if units else None
    uid, container_id = _agreed(map(_pod_and_container, paths))
    return Place(unit, uid, container_id)


def _outermost_unit(path: str) -> str | None:
    return next((part for part in path.split("/") if part.endswith((".service", ".scope"))), None)


def _pod_and_container(path: str) -> tuple[str | None, str | None]:
    pod = None if (_outermost_unit(path) or "").startswith(_USERS) else _POD.search(path)
    container = _CONTAINER.search(path, pod.end() if pod else 0)
    return pod.group(1).replace("_", "-") if pod else None, container.group() if container else None


def _agreed(found: Iterable[tuple[str | None, str | None]]) -> tuple[str | None, str | None]:
    """Return what the hierarchies say together, those with a pod before those without."""
    told = set(found)
    with_pod = {each for each in told if each[0]}
    told = with_pod or told
    uids, ids = {uid for uid, _ in told if uid}, {container_id for _, container_id in told if container_id}
    if len(uids) > 1 or len(ids) > 1:
        return None, None
    return next(iter(uids), None), next(iter(ids), None)
