"""Sets declared labels and taints of Nodes, and takes them away when they are declared no more.

Which of them are grapnel's stands in an annotation of the Node, with their values. What others have set is never
changed: where a declared key has another value of theirs, that is a conflict, and where it has the same one it stays
theirs. Server-side apply would do so for labels; the taints of a Node are one atomic list to it, so that whoever owns
one taint owns all. So both are written by a merge patch on exactly the version that was looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.base.decoding import decoder_of
from provision.cluster.kubernetes.objects.nodes import Taint
from provision.rollout.interface.node_marks import MarkChange, NodeMarks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.cluster.kubernetes.objects.nodes import Node

MARKS: Final = "grapnel.dev/node-marks"


class Owned(msgspec.Struct, frozen=True, kw_only=True):
    """What of a Node is grapnel's: labels by key, values of taints by "key:effect"."""

    labels: dict[str, str] = {}
    taints: dict[str, str] = {}


def owned_by_us(node: Node) -> Owned:
    """Return what of a Node is grapnel's; nothing where its annotation cannot be read."""
    text = node.metadata.annotations.get(MARKS)
    try:
        return Owned() if text is None else decoder_of(Owned).decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return Owned()


def compare_marks(node: Node, wanted: NodeMarks) -> MarkChange:
    """Return how a Node differs from what is declared, in words."""
    return _Comparison(node, wanted).change


def render_marks(node: Node, wanted: NodeMarks) -> dict[str, Any] | None:
    """Return the JSON merge patch that gives a Node what is declared; None where there is nothing to do."""
    return _Comparison(node, wanted).patch()


class _Comparison:
    """A Node beside its marks: what is set, what is taken away, and what others have set."""

    def __init__(self, node: Node, wanted: NodeMarks) -> None:
        self._node = node
        self._owned = owned_by_us(node)
        self._present = {f"{taint.key}:{taint.effect}": taint for taint in node.spec.taints}
        taints = {f"{key}:{effect}": value for (key, effect), value in wanted.taints.items()}
        self._labels = _Difference(self._owned.labels, node.metadata.labels, wanted.labels)
        self._taints = _Difference(
            self._owned.taints, {name: taint.value for name, taint in self._present.items()}, taints
        )

    @property
    def change(self) -> MarkChange:
        return MarkChange(
            changes=(*self._labels.words("label"), *self._taints.words("taint")),
            conflicts=(*self._labels.conflicts("label"), *self._taints.conflicts("taint")),
            left=(*self._labels.left("label"), *self._taints.left("taint")),
        )

    def patch(self) -> dict[str, Any] | None:
        owned = Owned(labels=self._labels.ours(), taints=self._taints.ours())
        if owned == self._owned and not self.change.changes:
            return None
        kept = owned.labels or owned.taints
        patch: dict[str, Any] = {
            "metadata": {
                "resourceVersion": self._node.metadata.resource_version,
                "labels": {**self._labels.set, **dict.fromkeys(self._labels.gone)},
                "annotations": {MARKS: msgspec.json.encode(owned).decode() if kept else None},
            }
        }
        if self._taints.set or self._taints.gone:
            patch["spec"] = {"taints": [msgspec.to_builtins(taint) for taint in self._new_taints()]}
        return patch

    def _new_taints(self) -> Iterator[Taint]:
        changed = {*self._taints.set, *self._taints.gone}
        yield from (taint for name, taint in self._present.items() if name not in changed)
        for name, value in self._taints.set.items():
            key, _, effect = name.rpartition(":")
            yield Taint(key=key, effect=effect, value=value)


class _Difference:
    """Named values of one kind; ``owned`` are those that grapnel has set."""

    def __init__(self, owned: Mapping[str, str], present: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        self._owned, self._present, self._wanted = owned, present, wanted
        self.set = {
            name: value
            for name, value in wanted.items()
            if present.get(name) != value and (name not in present or name in owned)
        }
        self.gone = tuple(name for name in owned if name not in wanted and present.get(name) == owned[name])

    def ours(self) -> dict[str, str]:
        """Return what is grapnel's afterwards."""
        return {name: value for name, value in self._wanted.items() if name in self.set or name in self._owned}

    def words(self, kind: str) -> Iterator[str]:
        """Yield what changes."""
        for name, value in self.set.items():
            yield f"{kind} {name}={value}" if value else f"{kind} {name}"
        yield from (f"no {kind} {name}" for name in self.gone)

    def left(self, kind: str) -> Iterator[str]:
        """Yield what was ours, is wanted no more, and was given another value by others."""
        for name, value in self._owned.items():
            if name not in self._wanted and name in self._present and self._present[name] != value:
                yield f"{kind} {name} is '{self._present[name]}', and grapnel had set '{value}'"

    def conflicts(self, kind: str) -> Iterator[str]:
        """Yield what others have set to another value."""
        for name, value in self._wanted.items():
            if name in self._present and name not in self._owned and self._present[name] != value:
                yield f"{kind} {name} is '{self._present[name]}', set by somebody else, and declared as '{value}'"
