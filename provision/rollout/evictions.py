"""Asks pods to leave, each only so often, and remembers what keeps those that do not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from provision.rollout.decision.drain import has_to_leave
from provision.rollout.interface.cluster import EvictionOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence
    from datetime import datetime

    from provision.rollout.decision.snapshot import Evict, NodeState
    from provision.rollout.interface.cluster import Cluster, Eviction

ASK_AGAIN: Final = timedelta(seconds=5)  # between two evictions of the same pod
ASKED_AT_ONCE: Final = 256  # pods; the others are asked in the turns that follow, so that none takes long


class Evictions:
    """The pods that one engine has asked to leave."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asked: dict[str, datetime] = {}  # when, by UID

    def ask(self, actions: Sequence[Evict], nodes: MutableMapping[str, NodeState], now: datetime) -> bool:
        """Ask those whose turn it is: one that was refused is not asked again at once. Return whether some are left.

        What was asked before for pods that need not leave now is taken back.
        """
        self._settle(actions, nodes)
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

    def _settle(self, actions: Sequence[Evict], nodes: Mapping[str, NodeState]) -> None:
        wanted = {pod.uid for action in actions for pod in action.pods}

        def is_wanted(uid: str) -> bool:
            return uid in wanted or any(_is_leaving(uid, node) for node in nodes.values())

        self._cluster.settle_evictions(is_wanted)


def _is_leaving(uid: str, node: NodeState) -> bool:
    """Tell whether a pod of a node in flight is being ended already."""
    return node.is_in_flight and any(pod.uid == uid and pod.is_terminating for pod in has_to_leave(node))


def _blocked(action: Evict, node: NodeState, answers: Mapping[str, Eviction]) -> dict[str, str]:
    blocked = {pod.uid: node.blocked[pod.uid] for pod in action.pods if pod.uid in node.blocked}
    for pod in action.pods:
        if (answer := answers.get(pod.uid)) is not None:
            blocked.pop(pod.uid, None)
            if answer.outcome is EvictionOutcome.BLOCKED:
                blocked[pod.uid] = answer.reason or "its eviction is refused"
    return blocked
