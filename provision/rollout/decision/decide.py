"""Decides what happens next in the fleet, and why each node that waits does. Pure.

Nodes in flight come first and are always brought to their end. Another one begins only while nothing has
failed, a slot is free, enough of the fleet is in service, and what was changed before has stayed healthy for as
long as it has to. Where nothing can move and nothing is under way, that is the end, with its reason: nobody
has to wait without knowing why.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from provision.rollout.decision.advance import advance, begin
from provision.rollout.decision.snapshot import Decision, Write
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from provision.rollout.decision.policy import Policy
    from provision.rollout.decision.snapshot import Action, NodeState, Snapshot

# A kubelet that was restarted is ready again within seconds; one that is gone for good is noticed after 40 s.
STILL: Final = timedelta(seconds=60)
_NAMED: Final = 3


def decide(snapshot: Snapshot, policy: Policy, now: datetime) -> Decision:
    """Return the actions of this moment; the same snapshot always gives the same ones."""
    flying = [node for node in snapshot.nodes if node.is_in_flight]
    actions, waiting = _go_on(snapshot, now)
    stop = _failure(snapshot, actions) or _stuck(flying)
    waiting |= {node.name: node.obstacle for node in snapshot.nodes if node.obstacle and node.has_failed_before}
    queue = _Queue(snapshot, policy, now)
    for node in in_order(snapshot.nodes):
        reason = f"stopped: {stop}" if stop else queue.why_not(node)
        if reason:
            waiting[node.name] = reason
        else:
            actions.append(begin(node, now))
            queue.take(node)
    is_still = not actions and all(node.obstacle and not node.is_busy for node in flying)
    stop = stop or (queue.standstill(snapshot.still_since) if is_still else None)
    is_over = is_still and (bool(stop) or not in_order(snapshot.nodes))
    return Decision(actions=tuple(actions), waiting=waiting, stop=stop, is_over=is_over, is_still=is_still)


def _go_on(snapshot: Snapshot, now: datetime) -> tuple[list[Action], dict[str, str]]:
    """Return what is done on nodes that are out of service, and what keeps them in their phases."""
    actions: list[Action] = []
    waiting: dict[str, str] = {}
    for node in snapshot.nodes:
        if not node.is_in_flight or node.is_busy or node.record is None:
            continue
        action, held = (None, node.obstacle) if node.obstacle else advance(node, node.record, now, snapshot.began)
        actions += [action] if action is not None else []
        waiting |= {node.name: held} if held else {}
    return actions, waiting


def in_order(nodes: Sequence[NodeState]) -> list[NodeState]:
    """Return the nodes that are still to begin: those that failed before, then the others as they stand."""
    wanting = [node for node in nodes if node.wants_to_begin]
    return sorted(wanting, key=lambda node: not node.has_failed_before)


def _failure(snapshot: Snapshot, actions: Sequence[Action]) -> str | None:
    """Return why no further node begins, as soon as one has failed in this process, or does so now."""
    failed = [(node.name, node.record) for node in snapshot.nodes if node.has_failed]
    failed += [(action.node, action.record) for action in actions if isinstance(action, Write)]
    for name, record in failed:
        if record is not None and record.phase is Phase.FAILED:
            return f"{name} failed in {record.failed_in}"
    return None


def _stuck(flying: Sequence[NodeState]) -> str | None:
    for node in flying:
        if node.obstacle and not node.is_busy and node.record is not None:
            return f"{node.name} is out of service in {node.record.phase} and cannot continue: {node.obstacle}"
    return None


class _Queue:
    """Hands out what may begin: one decision's count of slots."""

    def __init__(self, snapshot: Snapshot, policy: Policy, now: datetime) -> None:
        nodes, began = snapshot.nodes, snapshot.began
        self._policy, self._now = policy, now
        self._total = len(nodes)
        self._flying = {node.name: node.record.phase for node in nodes if node.is_in_flight and node.record}
        self._cordoned = {node.name for node in nodes if node.view.is_cordoned}
        self._not_ready = {node.name for node in nodes if not node.view.is_ready}
        done = [(node, node.record) for node in nodes if node.record is not None and node.record.phase is Phase.DONE]
        self._soaking = [
            (node, record.believed_since(now, began) + policy.soak)
            for node, record in done
            if record.target == node.target and now < record.believed_since(now, began) + policy.soak
        ]
        self._reasons: list[tuple[str, bool]] = []  # and whether it ends by itself, or may

    def take(self, node: NodeState) -> None:
        """Count a node that begins now."""
        self._flying[node.name] = Phase.CORDON
        self._cordoned.add(node.name)

    def why_not(self, node: NodeState) -> str:
        """Return why a node does not begin now, empty when it does."""
        reason, may_end = self._why_not(node)
        if reason:
            self._reasons.append((reason, may_end))
        return reason

    def standstill(self, since: datetime | None) -> str | None:
        """Return why it is over although nodes wait and nothing is under way, ``since`` when that is so.

        At once where only a person can change it, after a while where it may pass, never while a node soaks.
        """
        if not self._reasons or self._is_soaking:
            return None
        may_end = any(may_end for _reason, may_end in self._reasons)
        is_over = not may_end or (since is not None and self._now - since >= STILL)
        return self._reasons[0][0] if is_over else None

    @property
    def _is_soaking(self) -> bool:
        return bool(self._soaking) and all(node.view.is_ready for node, _until in self._soaking)

    def _why_not(self, node: NodeState) -> tuple[str, bool]:
        if not node.view.is_ready:
            return f"{node.name} is not ready: bring its kubelet back first", True
        if len(self._flying) >= self._policy.max_parallel:
            name, phase = next(iter(self._flying.items()))
            more = f" and {len(self._flying) - 1} more" if len(self._flying) > 1 else ""
            return f"waits for {name}: {phase}{more}", True
        if node.has_failed_before:
            return "", True
        reason = self._soaks()
        return (reason, True) if reason else self._too_few_in_service(node)

    def _soaks(self) -> str:
        for node, _until in self._soaking:
            if not node.view.is_ready:
                return f"{node.name} has not been ready since it was changed"
        if not self._soaking:
            return ""
        node, until = max(self._soaking, key=lambda one: one[1])
        return f"soaks until {until:%Y-%m-%d %H:%M:%S} UTC: {node.name} was just changed"

    def _too_few_in_service(self, node: NodeState) -> tuple[str, bool]:
        limit = self._policy.max_unavailable
        others = (self._cordoned | self._not_ready | set(self._flying)) - {node.name}
        if node.view.is_cordoned or len(others) < limit:
            return "", True
        named = [f"{name} {self._state(name)}" for name in sorted(others)[:_NAMED]]
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        may_end = len(self._cordoned - self._flying.keys()) < limit
        return f"{limit} of {self._total} nodes may be unavailable: {', '.join(named)}{more}", may_end

    def _state(self, name: str) -> str:
        if name in self._flying:
            return f"is in {self._flying[name]}"
        return "is cordoned" if name in self._cordoned else "is not ready"
