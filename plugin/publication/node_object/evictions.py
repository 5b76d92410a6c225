"""Whose turn it is to be evicted, of the pods that are to go: each until the API took it, and never again. Pure."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plugin.publication.node_object.model import Eviction

_REMEMBERED = 4096


class EvictionBook:
    """Remembers by uid: another pod of the same name is another one."""

    def __init__(self) -> None:
        self._taken: OrderedDict[str, None] = OrderedDict()
        self._refusals: Counter[str] = Counter()

    def due(self, wanted: Iterable[Eviction]) -> tuple[Eviction, ...]:
        """Return those of the pods that did not go so far, the one that was refused least often first."""
        left = [each for each in wanted if each.uid not in self._taken]
        self._refusals = Counter({each.uid: self._refusals[each.uid] for each in left})
        return tuple(sorted(left, key=lambda each: self._refusals[each.uid]))

    def taken(self, uid: str) -> None:
        """Hear that a pod goes, or is gone."""
        self._refusals.pop(uid, None)
        self._taken[uid] = None
        if len(self._taken) > _REMEMBERED:
            self._taken.popitem(last=False)

    def refused(self, uid: str) -> None:
        """Hear that a pod may not go now: the next one has its turn."""
        self._refusals[uid] += 1
