"""Writes on Nodes what the controller has brought them to: one request for each, on exactly the object it was about."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.cluster.api import CONFLICT, NOT_FOUND
from provision.cluster.exchange import MERGE_PATCH, Request, StatusError
from provision.cluster.kubernetes_cluster import path_of
from provision.cluster.marks import NVIDIA_STATE, UPGRADE
from provision.cluster.objects import Node
from provision.controller.nodes import AS_DECLARED, FAILED, NOT_READY
from provision.rollout.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.cluster.api import Api
    from provision.controller.nodes import NodeBook

_AT_ONCE: Final = 4
_ATTEMPTS: Final = 5
AGAIN_S: Final = 60.0  # between two tries of a mark that cannot be written, such as for a permission that is missing


class Word(Enum):
    """What a mark says."""

    AS_DECLARED = "as declared"
    FAILED = "failed"
    REMOVED = "removed"  # grapnel was taken off the node: nothing is said any more


@dataclass(frozen=True, slots=True)
class Mark:
    """What becomes of a Node of that ``uid``; ``fingerprint`` is what it is as declared by, or has failed with."""

    node: str
    uid: str
    fingerprint: str
    word: Word = Word.AS_DECLARED


def render_mark(mark: Mark, joining: Node | None = None) -> dict[str, Any]:
    """Return the JSON merge patch for a mark; ``joining`` is the Node where its start-up taint is to be taken away."""
    if mark.word is Word.REMOVED:
        gone = dict.fromkeys((AS_DECLARED, FAILED, UPGRADE))
        return {"metadata": {"uid": mark.uid, "annotations": gone, "labels": dict.fromkeys((UPGRADE, NVIDIA_STATE))}}
    annotations: dict[str, str | None] = {FAILED: mark.fingerprint}
    if mark.word is Word.AS_DECLARED:
        annotations = {AS_DECLARED: mark.fingerprint, FAILED: None}
    metadata: dict[str, Any] = {"uid": mark.uid, "annotations": annotations}
    if joining is None or mark.word is Word.FAILED:
        return {"metadata": metadata}
    # Taints are one list, replaced together: on the version in which they were read.
    metadata["resourceVersion"] = joining.metadata.resource_version
    kept = [msgspec.to_builtins(taint) for taint in joining.spec.taints if taint.key != NOT_READY]
    return {"metadata": metadata, "spec": {"taints": kept}}


class Marker:
    """Writes marks on threads of its own, from construction to `close`; `again` tries those that could not be written.

    ``clock`` counts seconds.
    """

    def __init__(
        self, api: Api, nodes: NodeBook, complain: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api, self._nodes, self._complain, self._clock = api, nodes, complain, clock
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="mark")
        self._mutex = threading.Lock()
        self._unwritten: dict[str, tuple[Mark, str, float]] = {}  # by node: the mark, why, and when it was tried

    def mark(self, mark: Mark) -> None:
        """Write a mark soon."""
        self._pool.submit(self._write_or_complain, mark)

    def unwritten(self) -> dict[str, str]:
        """Return the Nodes whose marks could not be written, and why."""
        with self._mutex:
            return {node: why for node, (_mark, why, _when) in self._unwritten.items()}

    def again(self) -> None:
        """Write soon what could not be written a while ago; forget Nodes that have gone."""
        now = self._clock()
        with self._mutex:
            due = [(mark, why) for mark, why, tried in self._unwritten.values() if now - tried >= AGAIN_S]
            for mark, why in due:
                seen = self._nodes.get(mark.node)
                if seen is None or seen.uid != mark.uid:
                    del self._unwritten[mark.node]
                else:
                    self._unwritten[mark.node] = (mark, why, now)  # it is told until it is written
                    self.mark(mark)

    def close(self) -> None:
        """Return when all that was handed in is written."""
        self._pool.shutdown(wait=True)

    def _write_or_complain(self, mark: Mark) -> None:
        try:
            self.write(mark)
        except ClusterError as error:
            why = f"it cannot be marked: {error.message}"
            self._complain(f"node {mark.node}: {why}")
            with self._mutex:
                self._unwritten[mark.node] = (mark, why, self._clock())
        else:
            with self._mutex:
                self._unwritten.pop(mark.node, None)

    def write(self, mark: Mark) -> None:
        """Write a mark now. Raises ClusterError; a Node that has gone or was made again is left alone."""
        path, seen = path_of(mark.node), self._nodes.get(mark.node)
        for _attempt in range(_ATTEMPTS):
            try:
                joining = None
                if (seen is None or seen.is_joining) and mark.word is Word.AS_DECLARED:
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
