"""Says when failures stop a rollout, and why. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.rollout.decision.snapshot import Write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.rollout.decision.census import Census
    from provision.rollout.decision.policy import Policy
    from provision.rollout.decision.snapshot import Action, NodeState
    from provision.rollout.model import Record

_NAMED: Final = 3


def why_broken(census: Census, actions: Sequence[Action], policy: Policy, canary: int | None) -> str | None:
    """Return why no further node begins: more nodes have failed than may, or do so now, or one of the canary has.

    ``canary`` is the index of its wave, None where there is none. Counted are failures of this process, as what failed
    before is tried again first, and of those the ones that the change may have caused. A node on its way back counts
    from the beginning of that.
    """
    failed = _failed(census, actions)
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


def _failed(census: Census, actions: Sequence[Action]) -> list[tuple[NodeState, Record]]:
    known = [*census.failed, *census.returned, *census.flying]
    found = [(node, node.record) for node in known if node.record is not None and node.is_blamed]
    records = {a.node: a.record for a in actions if isinstance(a, Write) and a.record.is_blamed}
    now = [(node, records[node.name]) for node in census.flying if node.name in records and not node.is_blamed]
    return found + now if records else found


def _where(node: NodeState, record: Record) -> str:
    return f"{node.name} failed in {record.failed_in or record.phase}"
