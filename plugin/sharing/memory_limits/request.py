"""What the hook asks: limits for one container. Everything in it is doubted. Pure.

The path has to be that of a container which the kubelet knows, and of the very container that is being started: below a
pod's group, and named after the container's id. Nothing but the engine makes such a group. A group that a container
makes for itself is further down, and is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from plugin.base.errors import LimitError
from plugin.holdings.holders.cgroup import parse_cgroup
from plugin.sharing.memory_limits.annotation import GivenMemory, parse_annotation

_MAX_PATH = 1024
_ID = re.compile(r"[0-9a-f]{64}")
_SCOPE = ".scope"
_INNER = "container"  # crun's own group inside of the scope that systemd made for it
_OTHER_ENGINE = "limits are set for containers that the kubelet starts"


@dataclass(frozen=True)
class LimitRequest:
    """A container, its control group below the root of the hierarchy, and the memory that its annotation names."""

    container_id: str
    group: str
    given: GivenMemory


def parse_request(content: dict[str, Any]) -> LimitRequest:
    """Return the request; raises ValueError for one that the hook does not write, and LimitError for a group.

    `group` is "" where the node has another hierarchy than cgroup v2: the answer is the driver's then.
    """
    container_id, group, memory = (content.get(key) for key in ("container", "cgroup", "memory"))
    if not isinstance(container_id, str) or not isinstance(group, str) or not isinstance(memory, str):
        raise ValueError("container, cgroup and memory must be texts")  # noqa: TRY004 - one kind of error for all of it
    return LimitRequest(container_id, group, parse_annotation(memory))


def check_group(request: LimitRequest) -> None:
    """Raise LimitError unless the group is that of this container."""
    path, names = request.group, request.group.split("/")
    if not path:
        raise LimitError("the container is in no group of cgroup v2", "memory limits take cgroup v2 alone (unified)")
    is_plain = path.isprintable() and path.isascii() and len(path) <= _MAX_PATH
    if not is_plain or names[0] or any(name in {"", ".", ".."} for name in names[1:]):
        raise LimitError(f"{path[:_MAX_PATH]!a} is not the path of a control group", _OTHER_ENGINE)
    outer, own = _split(names)
    if parse_cgroup(f"0::{path}").pod_uid is None or _ID.fullmatch(request.container_id) is None:
        raise LimitError(f"{path} is not the group of a pod's container", _OTHER_ENGINE)
    pods_own = own if ":" in own else outer[-1]  # `….slice:cri-containerd:<id>` is the name of both
    is_in_a_container = any(_ID.search(name) for name in outer)
    is_named = own.removesuffix(_SCOPE).endswith(request.container_id) and len(_ID.findall(own)) == 1
    if is_in_a_container or not is_named or parse_cgroup(f"0::/{pods_own}").pod_uid is None:
        raise LimitError(f"{path} is not the group of container {request.container_id}", _OTHER_ENGINE)


def _split(names: list[str]) -> tuple[list[str], str]:
    """Return the names of the groups around a container's, and its own."""
    end = -2 if names[-1] == _INNER else -1
    return names[:end], names[end]
