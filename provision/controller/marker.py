"""Writes on Nodes what the controller has brought them to: one request for each, on exactly the object it was about."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.cluster.api import CONFLICT, NOT_FOUND
from provision.cluster.exchange import MERGE_PATCH, Request, StatusError
from provision.cluster.kubernetes_cluster import path_of
from provision.cluster.objects import Node
from provision.controller.nodes import AS_DECLARED, FAILED, NOT_READY
from provision.rollout.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.cluster.api import Api
    from provision.controller.nodes import NodeBook

_AT_ONCE: Final = 4
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Mark:
    """What becomes of a Node of that ``uid``: it is as declared by ``fingerprint``, or failed to become so."""

    node: str
    uid: str
    fingerprint: str
    has_failed: bool = False


def render_mark(mark: Mark, joining: Node | None = None) -> dict[str, Any]:
    """Return the JSON merge patch for a mark; ``joining`` is the Node where its start-up taint is to be taken away."""
    annotations: dict[str, str | None] = {FAILED: mark.fingerprint}
    if not mark.has_failed:
        annotations = {AS_DECLARED: mark.fingerprint, FAILED: None}
    metadata = {"uid": mark.uid, "annotations": annotations}
    if joining is None or mark.has_failed:
        return {"metadata": metadata}
    # Taints are one list, replaced together: on the version in which they were read.
    metadata["resourceVersion"] = joining.metadata.resource_version
    kept = [msgspec.to_builtins(taint) for taint in joining.spec.taints if taint.key != NOT_READY]
    return {"metadata": metadata, "spec": {"taints": kept}}


class Marker:
    """Writes marks on threads of its own, from construction to `close`. What cannot be written is tried next round."""

    def __init__(self, api: Api, nodes: NodeBook, complain: Callable[[str], None]) -> None:
        self._api, self._nodes, self._complain = api, nodes, complain
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="mark")

    def mark(self, mark: Mark) -> None:
        """Write a mark soon."""
        self._pool.submit(self._write_or_complain, mark)

    def close(self) -> None:
        """Return when all that was handed in is written."""
        self._pool.shutdown(wait=True)

    def _write_or_complain(self, mark: Mark) -> None:
        try:
            self.write(mark)
        except ClusterError as error:
            self._complain(f"node {mark.node} is not marked: {error.message}")

    def write(self, mark: Mark) -> None:
        """Write a mark now. Raises ClusterError; a Node that has gone or was made again is left alone."""
        path, seen = path_of(mark.node), self._nodes.get(mark.node)
        for _attempt in range(_ATTEMPTS):
            try:
                joining = None
                if seen is None or seen.is_joining:
                    joining = self._api.call(Request(method="GET", path=path), Node, expected=(NOT_FOUND,))
                body = render_mark(mark, joining)
                request = Request(method="PATCH", path=path, body=body, content_type=MERGE_PATCH)
                written = self._api.call(request, Node, expected=(CONFLICT, NOT_FOUND))
            except StatusError as error:
                if error.code != CONFLICT or _is_another(error):
                    return
            else:
                self._nodes.put(written)
                return
        raise ClusterError(f"node {mark.node} is changed by others all the time")


def _is_another(error: StatusError) -> bool:
    """Tell whether a refusal says that the object is another one than the patch is about."""
    return "Precondition failed: UID" in error.status.message
