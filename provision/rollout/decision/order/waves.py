"""Says which wave may be changed now, and why the waves after it wait. Pure.

A wave is over when none of its nodes is still to be changed. Then it soaks, and its gate is looked at. A gate that was
passed in this process stays so: a node that becomes unhealthy later counts as unavailable, as any other does. The next
process looks at the gates again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final

from provision.rollout.decision.snapshot import A_MINUTE, AT_ONCE, FOR_EVER, LONG

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from provision.rollout.decision.census import Census
    from provision.rollout.decision.policy import Policy, WavePolicy
    from provision.rollout.decision.snapshot import NodeState, Snapshot
    from provision.rollout.interface.gates import GateState

_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """``wave`` may be changed now; the ones after it wait for ``reason``.

    ``may_end``: it ends by itself, or may. ``is_soaking``: it does, at a time that is known. ``canary`` is the first
    wave that has a node, None where no other follows it. ``gate`` is the closed one that they wait for.
    """

    wave: int = 0
    reason: str = ""
    may_end: bool = False
    is_soaking: bool = False
    canary: int | None = None
    gate: GateState | None = None

    @property
    def patience(self) -> int:
        """For how many seconds the reason is borne while nothing is under way."""
        if self.gate is not None:
            return patience_of(self.gate)
        return A_MINUTE if self.may_end else AT_ONCE


def patience_of(gate: GateState) -> int:
    """Return how long a closed gate is waited for: one that is not answered may never be again."""
    return FOR_EVER if gate.is_answered else LONG


def whose_turn(census: Census, snapshot: Snapshot, policy: Policy, now: datetime) -> Turn:
    """Return the wave that may be changed now."""
    if not policy.waves:
        return Turn()
    filled = sorted(census.waves)
    canary = filled[0] if len(filled) > 1 else None
    failures = sum(node.is_blamed for node in (*census.failed, *census.returned))
    left = [node for node in census.waiting if node.is_fit or not node.kept_out]  # the others are not waited for
    pending = {node.wave for node in chain(census.flying, left)}
    for index in filled:
        if index < snapshot.passed and index not in pending:
            continue
        members = [node for node in chain(census.flying, left) if node.wave == index] if index in pending else []
        wave, allowed = policy.waves[index], 0 if index == canary else policy.max_failures - failures
        turn = _WaveTurn(wave, index, members, snapshot, now)
        gate = next((each for each in snapshot.gates if not each.is_open and not each.holds_nodes), None)
        if gate is not None and not turn.has_begun:
            return Turn(wave=index - 1, reason=gate.as_reason, canary=canary, gate=gate)
        found = turn.why_not_over() or turn.why_not_proven(canary) or turn.why_not_healthy(allowed) or turn.why_held()
        if found is not None:
            reason, may_end, is_soaking = found
            return Turn(
                wave=index, reason=reason, may_end=may_end, is_soaking=is_soaking, canary=canary, gate=turn.gate
            )
    return Turn(wave=len(policy.waves), canary=canary)


def _in_the_way(node: NodeState) -> str:
    return node.obstacle or (node.kept_out if node.wants_to_begin else "")


_Found = tuple[str, bool, bool] | None  # the reason, whether it may end by itself, and whether it soaks


class _WaveTurn:
    """One wave at one moment: each method says why the next wave has to wait, None where it does not.

    ``pending`` are the nodes that are still to be changed, those in flight first.
    """

    def __init__(
        self, wave: WavePolicy, index: int, pending: Sequence[NodeState], snapshot: Snapshot, now: datetime
    ) -> None:
        self._wave, self._index, self._pending, self._now = wave, index, pending, now
        self._nodes = snapshot.nodes
        self._began, self._gates = snapshot.began, snapshot.gates
        self.gate: GateState | None = None  # the closed one that is waited for

    @cached_property
    def _members(self) -> list[NodeState]:
        return [node for node in self._nodes if node.wave == self._index]

    @cached_property
    def _changed(self) -> list[NodeState]:
        return [node for node in self._members if node.is_changed]

    @property
    def has_begun(self) -> bool:
        """Whether one of its nodes is in flight, or was changed."""
        return any(node.is_in_flight for node in self._pending) or bool(self._changed)

    def why_not_over(self) -> _Found:
        pending = self._pending
        if not pending:
            return None
        first = pending[0]
        phase = f": {first.record.phase}" if first.record is not None and first.is_in_flight else ""
        more = f" and {len(pending) - 1} more" if len(pending) > 1 else ""
        return f"waits for {self._wave.title}: {first.name}{phase}{more}", False, False

    def why_not_proven(self, canary: int | None) -> _Found:
        """Return what the canary lacks: one of its nodes has to be changed, and none of them may have failed."""
        unable = [node for node in self._members if _in_the_way(node)]
        failed = [node for node in unable if node.has_failed_before]
        if self._index != canary or not unable or (not failed and any(not node.obstacle for node in self._changed)):
            return None
        node = (failed or unable)[0]
        if failed:
            return (
                f"{node.name} of {self._wave.title} has failed, and cannot be tried again: {_in_the_way(node)}",
                True,
                False,
            )
        return f"no node of {self._wave.title} could be changed: {node.name}: {_in_the_way(node)}", True, False

    def why_not_healthy(self, allowed: int) -> _Found:
        sick = [node for node in self._changed if not node.view.is_ready or _is_taken_out(node)]
        if len(sick) > allowed:
            named = ", ".join(f"{node.name} {_sickness(node)}" for node in sick[:_NAMED])
            more = f" and {len(sick) - _NAMED} more" if len(sick) > _NAMED else ""
            may_end = any(not node.view.is_ready for node in sick)
            return f"{self._wave.title} is not healthy since its change: {named}{more}", may_end, False
        ends = [
            node.record.believed_since(self._now, self._began) + self._wave.soak
            for node in self._changed
            if node.record is not None
        ]
        if self._wave.soak and ends:
            return self._why_soaking(max(ends))
        return None

    def _why_soaking(self, end: datetime) -> _Found:
        """Return why a wave still soaks: it does so from its last change, or since a gate was opened again."""
        self.gate = next((gate for gate in self._gates if not gate.is_open), None)
        if self.gate is not None:
            return f"{self._wave.title} soaks again when its gate opens: {self.gate.as_reason}", True, False
        again = [gate.open_since + self._wave.soak for gate in self._gates if gate.open_since is not None]
        end = max([end, *again])
        if end > self._now:
            return f"{self._wave.title} soaks until {end:%Y-%m-%d %H:%M:%S} UTC", True, True
        return None

    def why_held(self) -> _Found:
        if not self._wave.is_held:
            return None
        hint = "look at its nodes, take `gate: hold` away from it, and run the same command again"
        return f"{self._wave.title} is done and holds the others: {hint}", False, False


def _is_taken_out(node: NodeState) -> bool:
    """Tell whether others cordoned a node after its change, as monitors do with a node that is ill."""
    return node.view.is_cordoned and node.record is not None and not node.record.was_cordoned


def _sickness(node: NodeState) -> str:
    return "was cordoned by somebody" if node.view.is_ready else "is not ready"
