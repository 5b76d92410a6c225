"""Says what may be done at a time when no node may be taken out of service. Pure.

Nodes whose GPUs may be out of service already are brought to their end. One that only waits for pods or jobs to leave
goes back into service, and begins again when it may: until then it would be cordoned for nothing. No pod is evicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from provision.rollout.decision.advance import has_to_be_granted
from provision.rollout.decision.calendar import usual_time
from provision.rollout.decision.drain import has_to_leave
from provision.rollout.decision.snapshot import Evict, Write
from provision.rollout.decision.turning import put_back
from provision.rollout.model import UNTOUCHED, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from provision.rollout.decision.order.domains import Domain
    from provision.rollout.decision.policy import Policy
    from provision.rollout.decision.snapshot import Action, NodeState
    from provision.rollout.model import Record

NODE_TIME: Final = timedelta(minutes=30)  # before one was measured


@dataclass(frozen=True, slots=True)
class OpeningHours:
    """Whether nodes may be out of service at this time, and why no further one may begin: not enough of it is left."""

    is_open: bool
    closed: str = ""


_ALWAYS: Final = OpeningHours(is_open=True)


def opening_hours(nodes: Iterable[NodeState], policy: Policy, now: datetime) -> OpeningHours:
    """Return what the calendar of a rollout says of this moment."""
    calendar = policy.calendar
    if calendar is None:
        return _ALWAYS
    needed = policy.node_time or _measured(nodes)
    return OpeningHours(is_open=calendar.closes(now) is not None, closed=calendar.why_closed(now, needed))


def outside_hours(  # noqa: PLR0917 - what a move is, and what it depends on
    node: NodeState, record: Record, action: Action | None, held: str, closed: str, domain: Domain | None = None
) -> tuple[Action | None, str]:
    """Return what is done to a node in flight instead of ``action``, and what keeps it in its phase.

    One that only waits is put back, unless another node of its domain may serve with another driver by now.
    """
    is_verified_next = isinstance(action, Write) and action.record.phase is Phase.VERIFY
    if node.obstacle or is_verified_next:
        return action, held
    is_asking = record.phase is Phase.CORDON and has_to_be_granted(node, record)
    is_waiting = is_asking or record.phase is Phase.JOBS or any(not pod.is_terminating for pod in has_to_leave(node))
    is_bound = domain is not None and (domain.is_committed or bool(domain.why_not_back(record.origin)))
    if record.phase in UNTOUCHED and not record.is_touched and is_waiting and not is_bound:
        return put_back(node, record, ""), ""
    if isinstance(action, Evict) and record.phase is not Phase.RESUME:  # of what does not work any more
        return None, f"no pod is evicted now: {closed}"
    return action, held


def _measured(nodes: Iterable[NodeState]) -> timedelta:
    """Return how long nodes of this upgrade usually were out of service."""
    took = [
        record.since - record.began
        for node in nodes
        if (record := node.view.record) is not None and record.phase is Phase.DONE and record.target == node.target
    ]
    return usual_time(took) if took else NODE_TIME
