"""Pods that were refused on each node, and which of them have room since. Pure, but for being changed; of one thread.

kube-scheduler and the extender follow the API server each for itself. Of what becomes free, the scheduler may hear
first, ask at once, and be refused by what was known a moment before. It asks again when something else happens in the
cluster, or after five minutes. So a pod that has room now, and was not asked about since, is to be tried again.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from plugin.gpushare.books.model import Pod

PATIENCE_S = 1.0  # in which a scheduler that has heard the same asks by itself
_AT_ONCE = 16
_KEPT = 256  # whoever is placed wakes the others, so that not all need to be known


@dataclass
class _Refused:
    pod: Pod
    nodes: frozenset[str]
    priority: int
    at_s: float
    is_woken: bool = False


class Waiting:
    """Who was refused last."""

    def __init__(self) -> None:
        self._refused: dict[str, _Refused] = {}  # by uid; whoever was refused last is the last
        self._changed: dict[str, float] = {}  # node → since when it may have room

    def refused(self, pod: Pod, nodes: Iterable[str], priority: int, now_s: float) -> None:
        """Take that a pod was refused on all nodes that its scheduler would have given it."""
        self.forget(pod.uid)
        self._refused[pod.uid] = _Refused(pod, frozenset(map(sys.intern, nodes)), priority, now_s)
        if len(self._refused) > _KEPT:
            del self._refused[next(iter(self._refused))]

    def forget(self, uid: str) -> None:
        """Take that a pod waits no more, or not for units."""
        self._refused.pop(uid, None)

    def changed(self, nodes: Iterable[str], now_s: float) -> None:
        """Take that nodes may have room now."""
        for node in nodes:
            self._changed.setdefault(node, now_s)

    def to_wake(self, fits: Callable[[Pod, str], bool], now_s: float) -> list[Pod]:
        """Return pods that fit by now and were not asked about, one for each node: it may not have room for more.

        The one of the highest priority comes first, then who has waited longest. A pod is returned once until it is
        refused again.
        """
        found: list[Pod] = []
        for node, since_s in tuple(self._changed.items()):
            fitting = [each for each in self._refused.values() if self._has_room(each, node, fits)]
            if not fitting:
                del self._changed[node]
                continue
            due = [each for each in fitting if max(since_s, each.at_s) + PATIENCE_S <= now_s]
            if due and len(found) < _AT_ONCE:
                first = min(due, key=lambda each: (-each.priority, each.at_s))
                first.is_woken = True
                found.append(first.pod)
        return found

    @staticmethod
    def _has_room(refused: _Refused, node: str, fits: Callable[[Pod, str], bool]) -> bool:
        return not refused.is_woken and node in refused.nodes and fits(refused.pod, node)
