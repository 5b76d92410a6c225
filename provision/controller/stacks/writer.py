"""Writes the status of GpuStacks where it differs from the one that they have, and what keeps them from going."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import MERGE_PATCH, Request, StatusError
from provision.controller.stacks.follower import STACKS
from provision.controller.stacks.model import StackObject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.cluster.kubernetes.api.client import Api
    from provision.controller.stacks.status import StackStatus

_PATIENCE_S: Final = 5.0
FINALIZER: Final = "grapnel.dev/nodes"  # what the stack was about to do on its Nodes comes to its end first


def write_status(api: Api, name: str, uid: str, status: StackStatus) -> StackObject | None:
    """Replace the status of the stack of that ``uid``; None where it has gone. Raises ClusterError."""
    body: dict[str, Any] = {"metadata": {"uid": uid}, "status": msgspec.to_builtins(status)}
    path = f"{STACKS}/{quote(name, safe='')}/status"
    request = Request(method="PATCH", path=path, body=body, content_type=MERGE_PATCH)
    try:
        return api.call(request, StackObject, expected=(CONFLICT, NOT_FOUND), patience_s=_PATIENCE_S)
    except StatusError:
        return None


def read_stack(api: Api, name: str) -> StackObject | None:
    """Return a stack as it is now, or None. Raises ClusterError."""
    try:
        request = Request(method="GET", path=f"{STACKS}/{quote(name, safe='')}")
        return api.call(request, StackObject, expected=(NOT_FOUND,))
    except StatusError:
        return None


def write_finalizer(
    api: Api, name: str, uid: str, version: str, finalizers: Sequence[str], *, wanted: bool
) -> StackObject | None:
    """Put our finalizer on a stack of that version, or take it off; None where it has changed meanwhile.

    Raises ClusterError; the API server refuses to put one on a stack that is being deleted.
    """
    others = [each for each in finalizers if each != FINALIZER]
    metadata = {
        "uid": uid,
        "resourceVersion": version,
        "finalizers": [*others, FINALIZER] if wanted else others,
    }
    path = f"{STACKS}/{quote(name, safe='')}"
    request = Request(method="PATCH", path=path, body={"metadata": metadata}, content_type=MERGE_PATCH)
    try:
        return api.call(request, StackObject, expected=(CONFLICT, NOT_FOUND), patience_s=_PATIENCE_S)
    except StatusError:
        return None
