"""What the hook asks: limits for one container. Everything in it is doubted. Pure.

The path has to be that of a container which the kubelet knows, and of the very container that is being started: below a
pod's group, and named after the container's id. Nothing but the engine makes such a group. A group that a container
makes for itself is further down, and is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plugin.base.errors import LimitError
from plugin.devices.allocation.answer import REQUIRED, render_memory
from plugin.holdings.holders.cgroup import parse_cgroup
from plugin.sharing.memory_limits.units import is_device_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_PATH = 1024
_ID = re.compile(r"[0-9a-f]{64}")
_SCOPE = ".scope"
_INNER = "container"  # crun's own group inside of the scope that systemd made for it
_OTHER_ENGINE = "limits are set for containers that the kubelet starts"


# The annotation `grapnel.dev/memory`: how much memory of which GPU (or MIG device) a container was given.
# `UUID=BYTES,UUID=BYTES`, after `required,` where the container must not start without its limits. The device plugin
# writes it into its answer to Allocate; the hook reads it where it trusts `grapnel.dev/allocation`.

_MAX_GPUS = 64
_MAX_DIGITS = 15  # far more than any GPU has, and far less than NVML's "no limit"


@dataclass(frozen=True)
class GivenMemory:
    """Bytes by the UUID of each GPU, and whether the driver has to keep to them."""

    memory: Mapping[str, int]
    is_required: bool = False


def render_annotation(given: GivenMemory) -> str:
    """Return the annotation's value; "" for nothing, which is no annotation."""
    return render_memory(given.memory, is_required=given.is_required) if given.memory else ""


def parse_annotation(text: str) -> GivenMemory:
    """Return what an annotation says; raises ValueError for everything that `render_annotation` does not write."""
    entries = text.split(",")
    is_required = entries[0] == REQUIRED
    amounts = entries[1:] if is_required else entries
    if not 0 < len(amounts) <= _MAX_GPUS:
        raise ValueError(f"it names no GPU, or more than {_MAX_GPUS}")
    memory: dict[str, int] = {}
    for entry in amounts:
        uuid, _, size = entry.partition("=")
        if not is_device_uuid(uuid) or uuid in memory:
            raise ValueError(f"{entry[:64]!a} does not name another GPU by its UUID")
        memory[uuid] = _parse_bytes(size)
    return GivenMemory(memory, is_required)


def _parse_bytes(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and not text.startswith("0") and len(text) <= _MAX_DIGITS
    if not is_number:
        raise ValueError(f"{text[:64]!a} is not a number of bytes")
    return int(text)


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
        raise ValueError("container, cgroup and memory must be texts")
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
