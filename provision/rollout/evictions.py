"""Asks pods to leave, each only so often, and remembers what keeps those that do not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from provision.rollout.cluster import EvictionOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence
    from datetime import datetime

    from provision.rollout.cluster import Cluster, Eviction
    from provision.rollout.decision.snapshot import Evict, NodeState

ASK_AGAIN: Final = timedelta(seconds=5)  # between two evictions of the same pod
ASKED_AT_ONCE: Final = 256  # pods; the others are asked in the turns that follow, so that none takes long


class Evictions:
    """The pods that one engine has asked to leave."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asked: dict[str, datetime] = {}  # when, by UID

    def ask(self, actions: Sequence[Evict], nodes: MutableMapping[str, NodeState], now: datetime) -> bool:
        """Ask those whose turn it is: one that was refused is not asked again at once. Return whether some are left."""
        self._asked = {uid: when for uid, when in self._asked.items() if abs(now - when) < ASK_AGAIN}
        pods = [pod for action in actions for pod in action.pods if pod.uid not in self._asked]
        if not pods:
            return False
        answers = self._cluster.evict_all(pods[:ASKED_AT_ONCE])
        self._asked |= dict.fromkeys(answers, now)
        for action in actions:
            node = nodes[action.node]
            blocked = _blocked(action, node, answers)
            if blocked != node.blocked:
                nodes[action.node] = replace(node, blocked=blocked)
        return len(pods) > ASKED_AT_ONCE


def _blocked(action: Evict, node: NodeState, answers: Mapping[str, Eviction]) -> dict[str, str]:
    blocked = {pod.uid: node.blocked[pod.uid] for pod in action.pods if pod.uid in node.blocked}
    for pod in action.pods:
        if (answer := answers.get(pod.uid)) is not None:
            blocked.pop(pod.uid, None)
            if answer.outcome is EvictionOutcome.BLOCKED:
                blocked[pod.uid] = answer.reason or "its eviction is refused"
    return blocked
