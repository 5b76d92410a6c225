"""Says when failures stop a rollout, and why. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.rollout.decision.snapshot import Write
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.rollout.decision.census import Census
    from provision.rollout.decision.policy import Policy
    from provision.rollout.decision.snapshot import Action, NodeState
    from provision.rollout.model import Record

_NAMED: Final = 3


def why_broken(census: Census, actions: Sequence[Action], policy: Policy, canary: int | None) -> str | None:
    """Return why no further node begins: more nodes have failed than may, or do so now, or one of the canary has.

    ``canary`` is the index of its wave, None where there is none. Counted are failures of this process: what failed
    before is tried again first.
    """
    failed = [*((node, node.record) for node in census.failed), *_failing(census, actions)]
    if not failed:
        return None
    first = next((node for node, _record in failed if canary is not None and node.wave == canary), None)
    if first is not None:
        where = next(_where(node, record) for node, record in failed if node is first)
        return f"{where}, in {policy.waves[canary or 0].title}: no node of the first wave may fail"
    if len(failed) <= policy.max_failures:
        return None
    named = ", ".join(_where(node, record) for node, record in failed[:_NAMED])
    more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    limit = f", and maxFailures is {policy.max_failures}" if policy.max_failures else ""
    return f"{named}{more}{limit}"


def _failing(census: Census, actions: Sequence[Action]) -> list[tuple[NodeState, Record]]:
    records = {a.node: a.record for a in actions if isinstance(a, Write) and a.record.phase is Phase.FAILED}
    return [(node, records[node.name]) for node in census.flying if node.name in records] if records else []


def _where(node: NodeState, record: Record | None) -> str:
    return f"{node.name} failed in {record.failed_in}" if record is not None else f"{node.name} failed"
