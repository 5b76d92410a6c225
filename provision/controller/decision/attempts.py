"""Remembers what was tried on nodes, and says when the next try is due. Pure: the time is handed in.

What fails by chance (a node that is not reached, packages that do not download) is tried again, ever more rarely. What
a rollout has left failed is not: that is written on the Node, and a person, or another declaration, ends it. What a
round has not begun with is tried when something that blocked it is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from provision.controller.decision.blockers import is_lifted, returned

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from provision.controller.decision.blockers import Blockers
    from provision.controller.nodes import SeenNode

FIRST_S: Final = 60.0
LONGEST_S: Final = 1800.0
LOOK_AGAIN_S: Final = 1800.0  # at a node that says that it is not as declared, and was found as declared


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last try of a node: ``key`` is what it was tried with, ``reason`` why it is not as declared since.

    ``blockers`` are what a round has seen that has not begun with the node, None for one that did. ``driver`` is the
    one that the daemon of a node reported which was found as declared.
    """

    key: str
    number: int
    next_s: float
    reason: str
    blockers: Blockers | None = None
    driver: str = ""

    @property
    def is_waiting(self) -> bool:
        """Whether it did not fail, and was not begun."""
        return self.blockers is not None


def key_of(node: SeenNode, fingerprint: str) -> str:
    """Return what, when it changes, makes a node due at once."""
    upgrade = f"{node.is_in_flight} {node.is_left_failed} {node.is_retried}"
    return f"{node.uid} {fingerprint} {upgrade} {node.is_skipped} {node.is_ready}"


@dataclass(frozen=True, slots=True)
class Returns:
    """How often others were tried because a node was back in service, and when last."""

    number: int
    last_s: float


@dataclass(slots=True)
class Attempts:
    """The tries of the nodes of one stack, by node."""

    _by_node: dict[str, Attempt] = field(default_factory=dict)
    _waiting: set[str] = field(default_factory=set)  # those of them that are: of thousands, it is asked at each turn
    _returns: dict[str, Returns] = field(default_factory=dict)

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
        self._waiting.add(node)
        self._by_node[node] = Attempt(key, 0, now_s + LONGEST_S, reason, blockers)

    def requeue_waiting(self, blockers: Blockers) -> None:
        """Make waiting nodes due where a blocker is gone; for a node that comes and goes, ever more rarely."""
        now_s = blockers.noted_s
        verdicts: dict[int, bool] = {}  # those of one round have met the same
        counted: set[str] = set()
        for name in self._waiting:
            attempt = self._by_node[name]
            former = attempt.blockers
            if former is None or attempt.next_s <= now_s:
                continue
            if id(former) not in verdicts:
                back = {each for each in returned(former, blockers) if self._counts(each, former, blockers)}
                verdicts[id(former)] = bool(back) or is_lifted(former, blockers)
                counted |= back
            if verdicts[id(former)]:
                self._by_node[name] = replace(attempt, next_s=now_s)
        for name in counted:
            self._returns[name] = Returns(self._number_of(name, now_s) + 1, now_s)

    def forget_waiting(self) -> None:
        """Make nodes due that a round has left waiting, for a reason that is over for all of them."""
        for name in self._waiting:
            del self._by_node[name]
        self._waiting.clear()

    def _counts(self, node: str, former: Blockers, now: Blockers) -> bool:
        """Tell whether the return of a node is worth a round: it was worth none yet, and not too many before it."""
        number = self._number_of(node, now.noted_s)
        if not number:
            return True
        is_new = now.back.get(node, now.noted_s) > self._returns[node].last_s
        return is_new and now.noted_s - former.noted_s >= min(LONGEST_S, FIRST_S * 2 ** (number - 1))

    def _number_of(self, node: str, now_s: float) -> int:
        former = self._returns.get(node)
        return 0 if former is None or now_s - former.last_s >= 2 * LONGEST_S else former.number

    @property
    def has_waiting(self) -> bool:
        """Whether a round has not begun with some node."""
        return bool(self._waiting)

    def succeeded(self, node: str, key: str, now_s: float, driver: str = "") -> None:
        """Note that a node is as declared: what it says of itself is looked into again after a while.

        It is at once where its daemon reports another ``driver`` than it did then.
        """
        self._waiting.discard(node)
        self._by_node[node] = Attempt(key, 0, now_s + LOOK_AGAIN_S, "", driver=driver)

    def begun(self, nodes: Iterable[str]) -> None:
        """Note that rounds are about these nodes now: that they were as declared before says nothing any more."""
        for name in nodes:
            attempt = self._by_node.get(name)
            if attempt is not None and not attempt.number and not attempt.is_waiting:
                del self._by_node[name]

    def is_due(self, node: str, key: str, now_s: float, driver: str = "", *, claims: bool = True) -> bool:
        """Tell whether a node that is not as declared is to be tried; ``driver`` is what its daemon reports.

        That it was found as declared says nothing where it does not claim so any more: it was changed since.
        """
        attempt = self._by_node.get(node)
        if attempt is None or attempt.key != key or now_s >= attempt.next_s:
            return True
        is_success = not attempt.number and not attempt.is_waiting
        return is_success and (attempt.driver != driver or not claims)

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
        for name in self._returns.keys() - set(nodes):
            del self._returns[name]
