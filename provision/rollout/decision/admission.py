"""Says which of the nodes that wait may begin now, and why the others may not. Pure.

What keeps all of them waiting is worked out once: it changes only with a node that begins.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from provision.rollout.decision.order.zones import ZoneLimits
from provision.rollout.decision.snapshot import A_MINUTE, AT_ONCE, LONG
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from provision.rollout.decision.census import Census
    from provision.rollout.decision.order.domains import Domain
    from provision.rollout.decision.order.waves import Turn
    from provision.rollout.decision.policy import Policy
    from provision.rollout.decision.snapshot import NodeState

_NAMED: Final = 3

_Reason = tuple[str, int]  # and how long it is borne
NOTHING: Final[_Reason] = ("", AT_ONCE)


class Admission:
    """Hands out what may begin: one decision's count of slots."""

    def __init__(self, census: Census, policy: Policy, now: datetime, turn: Turn, closed: _Reason = NOTHING) -> None:
        """Begin to count; ``closed`` is why no node at all may begin now."""
        self._policy, self._now, self._total = policy, now, census.total
        self._turn, self._has_waves = turn, bool(policy.waves)
        self._last_wave = turn.wave if policy.waves else 0
        self._phases, self._cordoned, self._not_ready = dict(census.phases), set(census.cordoned), census.not_ready
        self._soaking = census.soaking
        self._closed = closed
        self._turn_patience = turn.patience if policy.waits or turn.gate is None else AT_ONCE
        # A node that failed, and that maxFailures allows for, leaves the others their budget.
        failed = {node.name for node in census.failed}
        self._cordoned -= failed
        self._out = self._cordoned | (self._not_ready - failed) | self._phases.keys()
        self._zones = (
            None
            if policy.zones is None
            else ZoneLimits(policy.zones, census.nodes, self._out, census.waiting, self._last_wave)
        )
        self._first_out: list[str] | None = None  # worked out when it is asked for
        self._soaks = self._why_soaking()
        self._ahead = NOTHING  # what the nodes behind a domain wait for whose turn it is
        self._full: _Reason | None = None
        self._too_few: _Reason | None = None
        self._first_reason = self._first_skip = ""
        self._patience = AT_ONCE

    def take(self, node: NodeState) -> None:
        """Count a node that begins now."""
        name = node.name
        self._phases[name] = Phase.SWAP if node.kind.is_in_place else Phase.CORDON
        if not node.kind.is_in_place:
            self._cordoned.add(name)
        if self._zones is not None:
            self._zones.take(node, is_out_already=name in self._out)
        if name not in self._out:
            self._out.add(name)
            if self._first_out is not None:
                insort(self._first_out, name)
                del self._first_out[_NAMED:]
        self._full = self._too_few = None

    def why_not(self, node: NodeState) -> str:
        """Return why a node does not begin now, empty when it does."""
        return self._tell(node, self._ahead if self._ahead[0] else self._why_not(node))

    def why_not_together(self, domain: Domain) -> str:
        """Return why the nodes of a domain that have to begin do not, empty when all of them do.

        What has to follow nodes of the domain that are on their way already waits for no turn and for no slot.
        """
        first = domain.waiting[0]
        if reason := domain.why_not_begin():
            return self._tell(first, (reason, AT_ONCE))
        if self._closed[0]:
            return self._tell(first, self._closed)
        for node in domain.waiting:
            if not node.is_fit:
                reason, patience = self._why_unfit(node)
                who = "" if reason.startswith(node.name) else f"{node.name} "
                return self._tell(node, (f"its domain {domain.title} waits: {who}{reason}", patience))
        found = NOTHING if domain.flying else self._ahead if self._ahead[0] else self._why_not(first)
        return self._tell(first, found if found[0] else self._why_no_room_together(domain))

    def _tell(self, node: NodeState, found: _Reason) -> str:
        """Return a reason, and remember what keeps the fleet waiting where nothing else is under way."""
        reason, patience = found
        if not reason:
            return ""
        if node.view.is_skipped:
            self._first_skip = self._first_skip or f"{node.name} {reason}"
        elif not self._first_reason:
            self._first_reason = reason
        self._patience = max(self._patience, patience)
        return reason

    def standstill(self, since: datetime | None) -> str | None:
        """Return why it is over although nodes wait and nothing is under way, ``since`` when that is so.

        At once where only a person can change it, after a while where it may pass, never while a node soaks.
        """
        reason = self._first_reason or self._first_skip
        if not reason or self._is_soaking or self._turn.is_soaking:
            return None
        is_over = not self._patience or (since is not None and (self._now - since).total_seconds() >= self._patience)
        return reason if is_over else None

    @property
    def _is_soaking(self) -> bool:
        return bool(self._soaking) and all(node.view.is_ready for node, _until in self._soaking)

    def _why_unfit(self, node: NodeState) -> _Reason:
        view = node.view
        if node.is_fit:
            return NOTHING
        if not view.is_ready:
            return f"{node.name} is not ready: {view.why_not_ready or 'bring its kubelet back first'}", A_MINUTE
        return node.kept_out, AT_ONCE if view.is_skipped else LONG

    def _why_no_room_together(self, domain: Domain) -> _Reason:
        """Return why a whole domain may not be out of service; what it waits for is then kept free for it."""
        count, limit = len(domain.waiting), self._policy.max_unavailable
        joining = [node for node in domain.waiting if node.name not in self._out]
        new = len(joining)
        if new > limit:
            what = f"its domain {domain.title} takes {new} nodes out of service together"
            return f"{what}, and maxUnavailable allows {limit} of {self._total}: raise it", AT_ONCE
        if not domain.flying and self._phases and len(self._phases) + count > self._policy.max_parallel:
            reason = self._why_full()
        elif new and len(self._out) + new > limit:
            may_end = len(self._cordoned - self._phases.keys()) + new <= limit
            reason = self._why_too_few()[0], A_MINUTE if may_end else AT_ONCE
        elif full := self._why_zone_full(joining):
            reason = full, A_MINUTE
        else:
            return NOTHING
        told = f"its domain {domain.title} of {count} {'node' if count == 1 else 'nodes'} begins together: {reason[0]}"
        if self._phases and len(self._out - self._phases.keys()) + new <= limit:  # else no other's end makes room
            self._ahead = f"waits for domain {domain.title}, whose turn it is: {reason[0]}", reason[1]
        return told, reason[1]

    def _why_zone_full(self, joining: Sequence[NodeState]) -> str:
        if self._zones is None:
            return ""
        counts = Counter(node.zone for node in joining)
        return next((reason for node in joining if (reason := self._zones.why_full(node, counts[node.zone]))), "")

    def _why_not(self, node: NodeState) -> _Reason:
        view = node.view
        unfit = self._why_unfit(node)
        if unfit[0]:
            return unfit
        if self._closed[0]:
            return self._closed
        if self._has_waves and not node.has_failed_before and (node.wave or 0) > self._turn.wave:
            return self._turn.reason, self._turn_patience
        if len(self._phases) >= self._policy.max_parallel:
            if self._full is None:
                self._full = self._why_full()
            return self._full
        if node.has_failed_before and view.is_cordoned:
            return NOTHING
        return self._why_no_room(node)

    def _why_no_room(self, node: NodeState) -> _Reason:
        """Return why one node more may not be out of service."""
        if self._soaks[0]:
            return self._soaks
        if self._zones is not None and (reason := self._zones.why_not_now(node)):
            return reason, A_MINUTE
        if node.view.is_cordoned:  # it is out already
            return NOTHING
        if self._zones is not None and (reason := self._zones.why_full(node)):
            return reason, A_MINUTE
        if len(self._out) < self._policy.max_unavailable:
            return NOTHING
        if self._too_few is None:
            self._too_few = self._why_too_few()
        return self._too_few

    def _why_full(self) -> _Reason:
        name, phase = next(iter(self._phases.items()))
        more = f" and {len(self._phases) - 1} more" if len(self._phases) > 1 else ""
        return f"waits for {name}: {phase}{more}", A_MINUTE

    def _why_soaking(self) -> _Reason:
        for node, _until in self._soaking:
            if not node.view.is_ready:
                return f"{node.name} has not been ready since it was changed", A_MINUTE
        if not self._soaking:
            return NOTHING
        node, until = max(self._soaking, key=lambda one: one[1])
        return f"soaks until {until:%Y-%m-%d %H:%M:%S} UTC: {node.name} was just changed", A_MINUTE

    def _why_too_few(self) -> _Reason:
        limit = self._policy.max_unavailable
        if self._first_out is None:
            self._first_out = nsmallest(_NAMED, self._out)
        named = [f"{name} {self._state(name)}" for name in self._first_out]
        more = f" and {len(self._out) - _NAMED} more" if len(self._out) > _NAMED else ""
        may_end = len(self._cordoned) - len(self._cordoned & self._phases.keys()) < limit
        return (
            f"{limit} of {self._total} nodes may be unavailable: {', '.join(named)}{more}",
            A_MINUTE if may_end else AT_ONCE,
        )

    def _state(self, name: str) -> str:
        if name in self._phases:
            return f"is in {self._phases[name]}"
        return "is cordoned" if name in self._cordoned else "is not ready"
