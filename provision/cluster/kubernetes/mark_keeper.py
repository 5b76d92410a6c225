"""Looks at the labels and taints of Nodes, and has them changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from provision.cluster.kubernetes.api.client import CONFLICT
from provision.cluster.kubernetes.api.exchange import MERGE_PATCH, Request, StatusError
from provision.cluster.kubernetes.api.parallel import each
from provision.cluster.kubernetes.nodes.node_marks import MARKS, compare_marks, render_marks
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.watch.informer import NODES
from provision.rollout.errors import ClusterError, ConflictError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.cluster.kubernetes.api.client import Api
    from provision.rollout.interface.node_marks import MarkChange, NodeMarks

_FEW: Final = 8  # up to so many Nodes are read one by one
_ATTEMPTS: Final = 5


class MarkKeeper:
    """Compares and sets the marks of Nodes. ``acting`` is the API for changes, ``find`` reads one Node by its name."""

    def __init__(self, api: Api, acting: Api, find: Callable[[str], Node | None]) -> None:
        self._api, self._acting, self._find = api, acting, find

    def compare(self, wanted: Mapping[str, NodeMarks], seen: Mapping[str, Node]) -> dict[str, MarkChange]:
        """Return how Nodes differ, by the names in the inventory; those without a difference are left out.

        Only Nodes for which something is declared, or was, are read; ``seen`` are all of them as they were observed.
        """
        asked = {
            name: seen[name].metadata.name
            for name, marks in wanted.items()
            if name in seen and (marks or MARKS in seen[name].metadata.annotations)
        }
        nodes = self._read(tuple(asked.values()))
        compared = {
            name: compare_marks(node, wanted[name])
            for name, node_name in asked.items()
            if (node := nodes.get(node_name)) is not None
        }
        return {name: change for name, change in compared.items() if change.changes or change.conflicts or change.left}

    def _read(self, names: tuple[str, ...]) -> dict[str, Node]:
        if len(names) > _FEW:
            return {node.metadata.name: node for node in self._api.list_all(NODES, Node)}
        found = each(self._find, names)
        for answer in found:
            if isinstance(answer, ClusterError):
                raise answer
        return {node.metadata.name: node for node in found if isinstance(node, Node)}

    def set(self, wanted: Mapping[str, NodeMarks], seen: Mapping[str, Node]) -> dict[str, ClusterError]:
        """Give Nodes their marks; return what went wrong, by name."""
        names = tuple(name for name in wanted if name in seen)
        answers = each(lambda name: self._set(seen[name].metadata.name, wanted[name]), names)
        return {name: one for name, one in zip(names, answers, strict=True) if isinstance(one, ClusterError)}

    def _set(self, name: str, marks: NodeMarks) -> None:
        for _attempt in range(_ATTEMPTS):
            node = self._find(name)
            patch = None if node is None else render_marks(node, marks)
            if node is None or patch is None:
                return
            path = f"{NODES}/{quote(node.metadata.name, safe='')}"
            request = Request(method="PATCH", path=path, body=patch, content_type=MERGE_PATCH)
            try:
                self._acting.call(request, Node, expected=(CONFLICT,))
            except StatusError:
                continue  # changed meanwhile, such as by its kubelet
            return
        raise ConflictError(
            f"node {name} of {self._api.name} was changed by others again and again while it was to be labelled",
            hint="run apply again",
        )
