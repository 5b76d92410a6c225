"""Finds where a process belongs from its control group: unit, pod and container.

The node daemon answers the same (``plugin/holdings/holders/cgroup.py``); a test of both holds them together.
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
    """Return the place from /proc/PID/cgroup: cgroup v1 or v2, whatever makes the groups.

    kubelet and engine name pods ``…/pod<uid>/<id>`` with the cgroupfs driver, ``…-pod<uid,
    underscores>.slice/<engine>-<id>.scope`` with systemd's, and ``….slice:cri-containerd:<id>`` where they have
    different ones. The outermost unit counts: what is below it, a user or a container has named. A pod below a user's
    own manager does not count for that reason, and hierarchies that name two pods tell nothing of either.
    """
    paths = [line.split(":", 2)[-1] for line in text.split("\n")]  # a group's name may have any other line end
    units = [unit for unit in map(_outermost_unit, paths) if unit]
    uid, container_id = _agreed(map(_pod_and_container, paths))
    return Place(units[-1] if units else None, uid, container_id)


def _outermost_unit(path: str) -> str | None:
    return next((part for part in path.split("/") if part.endswith((".service", ".scope"))), None)


def _pod_and_container(path: str) -> tuple[str | None, str | None]:
    pod = None if (_outermost_unit(path) or "").startswith(_USERS) else _POD.search(path)
    container = _CONTAINER.search(path, pod.end() if pod else 0)
    return pod.group(1).replace("_", "-") if pod else None, container.group() if container else None


def _agreed(found: Iterable[tuple[str | None, str | None]]) -> tuple[str | None, str | None]:
    """Return what the hierarchies say together, those with a pod before those without."""
    told = set(found)
    told = {each for each in told if each[0]} or told
    uids, ids = {uid for uid, _ in told if uid}, {container_id for _, container_id in told if container_id}
    if len(uids) > 1 or len(ids) > 1:
        return None, None
    return next(iter(uids), None), next(iter(ids), None)
