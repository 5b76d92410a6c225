"""Remembers what was tried on nodes, and says when the next try is due. Pure: the time is handed in.

What fails by chance (a node that is not reached, packages that do not download) is tried again, ever more rarely. What
a rollout has left failed is not: that is written on the Node, and a person, or another declaration, ends it. What a
round has not begun with is tried when something that blocked it is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from provision.controller.blockers import Change, change

if TYPE_CHECKING:
    from collections.abc import Collection

    from provision.controller.blockers import Blockers
    from provision.controller.nodes import SeenNode

FIRST_S: Final = 60.0
LONGEST_S: Final = 1800.0
LOOK_AGAIN_S: Final = 1800.0  # at a node that says that it is not as declared, and was found as declared


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last try of a node: ``key`` is what it was tried with, ``reason`` why it is not as declared since.

    ``blockers`` are what a round has seen that has not begun with the node, None for one that did; ``soonest_s`` when
    it is worth another try because of a change that may come and go.
    """

    key: str
    number: int
    next_s: float
    reason: str
    blockers: Blockers | None = None
    soonest_s: float = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether it did not fail, and was not begun."""
        return self.blockers is not None


def key_of(node: SeenNode, fingerprint: str) -> str:
    """Return what, when it changes, makes a node due at once."""
    return f"{node.uid} {fingerprint} {node.is_left_failed} {node.is_retried} {node.is_skipped} {node.is_ready}"


@dataclass(slots=True)
class Attempts:
    """The tries of the nodes of one stack, by node."""

    _by_node: dict[str, Attempt] = field(default_factory=dict)
    _waiting: set[str] = field(default_factory=set)  # those of them that are: of thousands, it is asked at each turn

    def failed(self, node: str, key: str, reason: str, now_s: float, *, needs_somebody: bool = False) -> None:
        """Note a try that did not bring a node to its declaration; where a person is needed, it is tried rarely."""
        former = self._by_node.get(node)
        number = former.number + 1 if former is not None and former.key == key else 1
        pause_s = LONGEST_S if needs_somebody else min(LONGEST_S, FIRST_S * 2 ** (number - 1))
        self._waiting.discard(node)
        self._by_node[node] = Attempt(key, number, now_s + pause_s, reason)

    def waited(self, node: str, key: str, reason: str, now_s: float, blockers: Blockers) -> None:
        """Note that a round has ended without beginning with a node, such as one that stopped; it is tried rarely.

        Once one of ``blockers`` is gone, `requeue_waiting` makes it due.
        """
        former = self._by_node.get(node)
        number = former.number + 1 if former is not None and former.is_waiting and former.key == key else 0
        pause_s = min(LONGEST_S, FIRST_S * 2 ** (number - 1)) if number else 0.0
        self._waiting.add(node)
        self._by_node[node] = Attempt(key, number, now_s + LONGEST_S, reason, blockers, now_s + pause_s)

    def requeue_waiting(self, blockers: Blockers, now_s: float) -> None:
        """Make waiting nodes due where a blocker is gone; for one that comes and goes, with a backoff."""
        changes: dict[int, Change] = {}  # those of one round have met the same
        for name in self._waiting:
            attempt = self._by_node[name]
            if attempt.blockers is None or attempt.next_s <= now_s:
                continue
            found = changes.get(id(attempt.blockers))
            if found is None:
                found = changes[id(attempt.blockers)] = change(attempt.blockers, blockers)
            if found is Change.BY_SOMEBODY or (found is Change.BY_ITSELF and now_s >= attempt.soonest_s):
                self._by_node[name] = replace(attempt, next_s=now_s)

    @property
    def has_waiting(self) -> bool:
        """Whether a round has not begun with some node."""
        return bool(self._waiting)

    def succeeded(self, node: str, key: str, now_s: float) -> None:
        """Note that a node is as declared: what it says of itself is looked into again after a while."""
        self._waiting.discard(node)
        self._by_node[node] = Attempt(key, 0, now_s + LOOK_AGAIN_S, "")

    def is_due(self, node: str, key: str, now_s: float) -> bool:
        """Tell whether a node that is not as declared is to be tried."""
        attempt = self._by_node.get(node)
        return attempt is None or attempt.key != key or now_s >= attempt.next_s

    def reason(self, node: str, key: str) -> str:
        """Return why a node is not as declared, as the last try found; empty where nothing was tried."""
        attempt = self._by_node.get(node)
        return attempt.reason if attempt is not None and attempt.key == key else ""

    def is_waiting(self, node: str, key: str) -> bool:
        """Tell whether the last round has left a node waiting, for that reason."""
        attempt = self._by_node.get(node)
        return attempt is not None and attempt.key == key and attempt.is_waiting

    def next_s(self) -> float | None:
        """Return when the next try of any node is due."""
        return min((each.next_s for each in self._by_node.values()), default=None)

    def forget_others(self, nodes: Collection[str]) -> None:
        """Forget nodes that have left."""
        for name in self._by_node.keys() - set(nodes):
            del self._by_node[name]
            self._waiting.discard(name)
