"""Writes the status of GpuStacks, where it differs from the one that they have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from provision.cluster.api import CONFLICT, NOT_FOUND
from provision.cluster.exchange import MERGE_PATCH, Request, StatusError
from provision.stacks.follower import STACKS
from provision.stacks.objects import StackObject

if TYPE_CHECKING:
    from provision.cluster.api import Api
    from provision.stacks.status import StackStatus

_PATIENCE_S: Final = 5.0


def write_status(api: Api, name: str, uid: str, status: StackStatus) -> StackObject | None:
    """Replace the status of the stack of that ``uid``; None where it has gone. Raises ClusterError."""
    body: dict[str, Any] = {"metadata": {"uid": uid}, "status": msgspec.to_builtins(status)}
    path = f"{STACKS}/{quote(name, safe='')}/status"
    request = Request(method="PATCH", path=path, body=body, content_type=MERGE_PATCH)
    try:
        return api.call(request, StackObject, expected=(CONFLICT, NOT_FOUND), patience_s=_PATIENCE_S)
    except StatusError:
        return None
