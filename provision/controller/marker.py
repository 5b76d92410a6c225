"""Writes on Nodes what the controller has brought them to, on exactly the object that it was about.

That a node is as declared is a claim about what was seen of it: it is written on the version of the Node that was
looked at, and not at all where the node is being changed again by then.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import MERGE_PATCH, Request, StatusError
from provision.cluster.kubernetes.cluster import path_of
from provision.cluster.kubernetes.nodes.marks import AS_DECLARED, LOOKED_AT, NVIDIA_STATE, UPGRADE
from provision.cluster.kubernetes.objects.nodes import Node
from provision.controller.nodes import FAILED, NOT_READY, see
from provision.rollout.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.objects.nodes import Taint
    from provision.controller.nodes import NodeBook, SeenNode
    from provision.rollout.model import Record

_AT_ONCE: Final = 4
_ATTEMPTS: Final = 5
AGAIN_S: Final = 60.0  # between two tries of a mark that cannot be written, such as for a permission that is missing


class Word(Enum):
    """What a mark says."""

    AS_DECLARED = "as declared"
    WITHDRAWN = "as declared no more"  # something is about to be changed on it
    FAILED = "failed"
    REMOVED = "removed"  # grapnel was taken off the node: nothing is said any more


@dataclass(frozen=True, slots=True)
class Mark:
    """What becomes of a Node of that ``uid``; ``fingerprint`` is what it is as declared by, or has failed with.

    ``ended`` is a record of a node that is as declared which says something else: it ends with what it describes.
    ``looked`` is when the node's daemon had spoken last, by its own clock, before the node was found as declared.
    """

    node: str
    uid: str
    fingerprint: str
    word: Word = Word.AS_DECLARED
    ended: Record | None = None
    looked: str = ""


def render_mark(mark: Mark, version: str = "", taints: Sequence[Taint] = ()) -> dict[str, Any]:
    """Return the merge patch of a mark. A claim is made on exactly that ``version`` of the Node.

    The start-up taint goes with it, where it is among the Node's ``taints``: they are one list, replaced together.
    """
    if mark.word is Word.REMOVED:
        gone = dict.fromkeys((AS_DECLARED, LOOKED_AT, FAILED, UPGRADE))
        return {"metadata": {"uid": mark.uid, "annotations": gone, "labels": dict.fromkeys((UPGRADE, NVIDIA_STATE))}}
    if mark.word is not Word.AS_DECLARED:
        annotation = {FAILED: mark.fingerprint} if mark.word is Word.FAILED else {AS_DECLARED: None}
        return {"metadata": {"uid": mark.uid, "annotations": annotation}}
    metadata: dict[str, Any] = {
        "uid": mark.uid,
        "resourceVersion": version,
        "annotations": {AS_DECLARED: mark.fingerprint, FAILED: None, LOOKED_AT: mark.looked or None},
    }
    if mark.ended is not None:
        metadata["annotations"][UPGRADE] = None
        metadata["labels"] = dict.fromkeys((UPGRADE, NVIDIA_STATE))
    kept = [msgspec.to_builtins(taint) for taint in taints if taint.key != NOT_READY]
    return {"metadata": metadata, **({"spec": {"taints": kept}} if len(kept) < len(taints) else {})}


class Marker:
    """Writes marks on threads of its own, from construction to `close`; `again` tries those that could not be written.

    ``clock`` counts seconds.
    """

    def __init__(
        self, api: Api, nodes: NodeBook, complain: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api, self._nodes, self._complain, self._clock = api, nodes, complain, clock
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="mark")
        self._mutex = threading.RLock()
        self._unwritten: dict[str, tuple[Mark, str, float]] = {}  # by node: the mark, why, and when it was tried
        self._handed_in: list[str] = []  # the node of each mark that has not been tried yet

    def mark(self, mark: Mark) -> None:
        """Write a mark soon."""
        with self._mutex:
            self._handed_in.append(mark.node)
        self._pool.submit(self._write_or_complain, mark)

    def marking(self) -> frozenset[str]:
        """Return the Nodes whose marks are still to be written; what has been written, the Nodes have by now."""
        with self._mutex:
            return frozenset((*self._handed_in, *self._unwritten))

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
        finally:
            with self._mutex:
                self._handed_in.remove(mark.node)

    def write(self, mark: Mark) -> None:
        """Write a mark now. Raises ClusterError.

        Nothing is written on a Node that has gone or was made again, and no claim on one that is being changed.
        """
        path, known = path_of(mark.node), self._nodes.get(mark.node)
        for attempt in range(_ATTEMPTS):
            try:
                if mark.word is not Word.AS_DECLARED:
                    body = render_mark(mark)
                elif not attempt and known is not None and not known.is_joining and _may_be_claimed(mark, known):
                    body = render_mark(mark, str(known.version))
                else:  # it was changed since, or is seen in the middle of what has ended
                    now = self._api.call(Request(method="GET", path=path), Node, expected=(NOT_FOUND,))
                    if not _may_be_claimed(mark, see(now)):
                        self._nodes.put(now)
                        return
                    body = render_mark(mark, now.metadata.resource_version, now.spec.taints)
                request = Request(method="PATCH", path=path, body=body, content_type=MERGE_PATCH)
                written = self._api.call(request, Node, expected=(CONFLICT, NOT_FOUND))
            except StatusError as error:
                if error.code != CONFLICT or _is_another(error):
                    return
            else:
                self._nodes.put(written)
                return
        raise ClusterError(f"node {mark.node} is changed by others all the time")

    def withdraw(self, node: str) -> None:
        """Take back that a node is as declared, before something is changed on it. Raises ClusterError.

        Costs no request where it does not claim to be.
        """
        seen = self._nodes.get(node)
        if seen is not None and seen.as_declared:
            self.write(Mark(node, seen.uid, "", Word.WITHDRAWN))

    def forget(self, nodes: Collection[str]) -> None:
        """Write nothing more of what could not be written on these Nodes: something else is declared by now."""
        with self._mutex:
            for node in self._unwritten.keys() & set(nodes):
                del self._unwritten[node]


def _may_be_claimed(mark: Mark, now: SeenNode) -> bool:
    """Tell whether a Node is still what its mark is about, and is not being changed."""
    return now.uid == mark.uid and not now.is_in_flight and (mark.ended is None or now.record == mark.ended)


def _is_another(error: StatusError) -> bool:
    """Tell whether a refusal says that the object is another one than the patch is about."""
    return "Precondition failed: UID" in error.status.message
